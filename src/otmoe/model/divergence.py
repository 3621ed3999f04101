"""Transport divergences: how far one mixture of experts is from another.

At each x, moving the mass of the experts of f to those of g costs the mass times a divergence
between the experts. The exact divergence respects both gates; the relaxed one forgets that of g, so
that every expert of f goes to the nearest of g.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import optimize, sparse

from otmoe.arrays import numerics
from otmoe.arrays.numerics import Array, Floats, block_sum, design, namespace, row_blocks, to_numpy
from otmoe.model.experts import Experts
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput, RunError
from otmoe.text.sentences import Error

Cost = Callable[[Experts, Experts, Array], Array]
"""A divergence between experts: called as cost(source, target, design), it returns (n, L, K)."""

MOVES = 100
"""Moves per expert that a transport problem may take; the most that any was seen to need is 4."""


# -- costs -------------------------------------------------------------------------------------


def kl(source: Experts, target: Experts, design: Array) -> Array:
    """Return KL(source_l || target_k) at every row, (n, L, K) (maths 2).

    Parameters
    ----------
    source, target : Experts
        L and K experts of one family.
    design : array of shape (n, p)
        Rows, a column of ones in front.
    """
    return source.kl_cost(design, target)


def squared_hellinger(source: Experts, target: Experts, design: Array) -> Array:
    """Return the squared Hellinger distance of source_l and target_k, (n, L, K) (maths 9).

    Between 0 and 1: no pair of experts can make up a whole mean, as it can with :func:`kl`.

    Parameters
    ----------
    source, target : Experts
        L and K experts of one family.
    design : array of shape (n, p)
        Rows, a column of ones in front.
    """
    return source.hellinger_cost(design, target)


# -- divergences -------------------------------------------------------------------------------


def relaxed_divergence(f: MoE, g: MoE, X: Array, cost: Cost = kl) -> float:
    """Return R_c(f, g), the mean over x of sum_l pi_l(x) min_k c_lk(x) (maths 9).

    The gate of g plays no part: with the right experts it is zero under any gate.

    Parameters
    ----------
    f, g : MoE
        Of one family; any number of experts.
    X : array of shape (n, d)
    cost : callable
        :func:`kl`, :func:`squared_hellinger`, or another function with their arguments.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data = simulate(n_samples=500, n_experts=3, n_features=2, random_state=0)
    >>> round(relaxed_divergence(data.truth.take([0, 1]), data.truth, data.X), 9)
    0.0
    """

    def block(design: Array) -> float:
        xp = namespace(design)
        nearest = xp.min(cost(f.experts, g.experts, design), axis=2)
        return float(xp.sum(f.gate.prob(design) * nearest))

    return _mean(block, f, g, X)


def transport_divergence(f: MoE, g: MoE, X: Array, cost: Cost = kl) -> float:
    """Return T_c(f, g), the mean over x of the least cost of taking gate to gate (maths 9).

    Exact: a transport problem with both gates as marginals is solved at every row.

    Parameters
    ----------
    f, g : MoE
        Of one family; any number of experts.
    X : array of shape (n, d)
    cost : callable
        :func:`kl`, :func:`squared_hellinger`, or another function with their arguments.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data = simulate(n_samples=500, n_experts=3, n_features=2, random_state=0)
    >>> transport_divergence(data.truth, data.truth.take([2, 0, 1]), data.X) < 1e-12
    True
    >>> two = data.truth.take([0, 1])
    >>> 0 < transport_divergence(two, data.truth, data.X, squared_hellinger) < 1
    True
    """

    def block(design: Array) -> float:
        costs = cost(f.experts, g.experts, design)
        return float(transport_costs(costs, f.gate.prob(design), g.gate.prob(design)).sum())

    return _mean(block, f, g, X)


def _mean(block: Callable[[Array], float], f: MoE, g: MoE, X: Array) -> float:
    """Return the mean over rows of what `block` sums over the design of some of them."""
    if (a := f.experts.family) != (b := g.experts.family):
        raise InvalidInput(Error.DIVERGENCE_FAMILIES, family=a, other=b)
    if f.experts.coef.shape[1:] != g.experts.coef.shape[1:]:
        raise InvalidInput(
            Error.DIVERGENCE_SHAPES, shape=f.experts.coef.shape[1:], other=g.experts.coef.shape[1:]
        )
    if X.ndim != 2 or X.shape[1] != f.n_features or X.shape[0] == 0:
        raise InvalidInput(Error.X_SHAPE, shape=tuple(X.shape), features=f.n_features)
    # So many numbers does a row need: costs, and what they are made from, for each class.
    width = 2 * f.n_experts * g.n_experts * f.experts.n_linear + f.experts.n_columns
    rows = row_blocks(X.shape[0], width, on_device=not isinstance(X, np.ndarray), least=1)
    return block_sum(lambda s: block(design(X[s, :])), rows, None) / X.shape[0]


# -- transport problems ------------------------------------------------------------------------


def transport_costs(cost: Array, supply: Array, demand: Array, *, moves: int = MOVES) -> Floats:
    """Return the least costs of n small transport problems (maths 9).

    Exact, up to the rounding of masses: no entropy, no tolerance.

    Parameters
    ----------
    cost : array of shape (n, L, K)
    supply : array of shape (n, L)
    demand : array of shape (n, K)
        Of the same total as the supply, in every row.
    moves : int
        Per expert, after which a problem is left to linear programming.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> cost = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    >>> transport_costs(cost, np.array([[0.3, 0.7]]), np.array([[0.5, 0.5]]))
    array([0.2])
    """
    cost, supply, demand = (np.asarray(to_numpy(a), np.float64) for a in (cost, supply, demand))
    _check_problems(cost, supply, demand)
    n, L, K = cost.shape
    if numerics.kernels is None:
        return transport_costs_plain(cost, supply, demand)
    if L < K:  # the kernel is made for few sinks
        cost, supply, demand = cost.swapaxes(1, 2), demand, supply
    cost, supply, demand = map(np.ascontiguousarray, (cost, supply, demand))
    out = np.empty(n)
    numerics.kernels.transport(cost, supply, demand, moves * (L + K), out)
    left = np.isnan(out)
    if np.any(left):
        out[left] = transport_costs_plain(cost[left], supply[left], demand[left])
    return out


def transport_costs_plain(cost: Floats, supply: Floats, demand: Floats) -> Floats:
    """Version of :func:`transport_costs` by linear programming: a thousand times slower."""
    n, L, K = cost.shape
    sums = sparse.vstack(
        [
            sparse.kron(sparse.eye_array(L), np.ones((1, K))),
            sparse.kron(np.ones((1, L)), sparse.eye_array(K)),
        ]
    ).tocsr()[:-1]  # the last sum follows from the others
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    out = np.empty(n)
    for i in range(n):
        unit = cost[i].max() or 1.0
        masses = np.concatenate([supply[i], demand[i, :-1]])
        found = optimize.linprog(
            cost[i].ravel() / unit, A_eq=sums, b_eq=masses, method="highs", options=options
        )
        if found.status != 0:
            raise RunError(Error.LINEAR_PROGRAM, problem=i, reason=found.message)
        out[i] = unit * found.fun
    return out


def _check_problems(cost: Floats, supply: Floats, demand: Floats) -> None:
    """Refuse problems that have no solution."""
    if cost.ndim != 3 or supply.shape != cost.shape[:2] or demand.shape != cost.shape[::2]:
        raise InvalidInput(
            Error.TRANSPORT_SHAPES, cost=cost.shape, supply=supply.shape, demand=demand.shape
        )
    if not np.all(np.isfinite(cost)):
        raise InvalidInput(Error.COST_NOT_FINITE)
    for name, mass in (("supply", supply), ("demand", demand)):
        if not np.all((mass >= 0) & np.isfinite(mass)):
            raise InvalidInput(Error.NOT_MASSES, name=name)
    there, here = supply.sum(axis=1), demand.sum(axis=1)
    differ = np.abs(there - here) > 1e-9 * (there + here)
    if np.any(differ):
        row = int(np.flatnonzero(differ)[0])
        raise InvalidInput(Error.TOTALS_DIFFER, row=row, supply=there[row], demand=here[row])
