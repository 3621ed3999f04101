"""Which coefficients of experts are free: columns left out, coefficients in common (maths 21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Array, Floats, namespace
from otmoe.model.experts import Experts, FitStatistics, Response


@dataclass(frozen=True)
class Structure:
    """What the experts of a model see, and what they share (maths 21).

    The parameters are theta = C psi: a column that an expert does not see has the coefficient zero,
    and coefficients in common are equal. Models hold the whole of theta; only solvers ask for C.

    Attributes
    ----------
    columns : tuple of tuples of int, optional
        Columns of the design that experts see, 0 (the intercept) first: one tuple for all of them,
        or one for each. None means all columns.
    common : tuple of int
        Columns whose coefficient is the same in every expert that sees them.
    common_variance : bool
        Whether experts share their dispersion.
    names : tuple of str, optional
        Of the experts, where each has columns of its own.
    origin : tuple of float, optional
        Row of the design at which the user's features are all zero, on a standardised scale: what
        an expert predicts there is the user's intercept. None on the user's own scale.

    Examples
    --------
    >>> Structure(common=(1,)).coefficients(2, 1, 2)
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.],
           [0., 1., 0.]])
    """

    columns: tuple[tuple[int, ...], ...] | None = None
    common: tuple[int, ...] = ()
    common_variance: bool = False
    names: tuple[str, ...] | None = None
    origin: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            columns = tuple(tuple(sorted({0, *own})) for own in self.columns)
            object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "common", tuple(sorted(set(self.common))))

    # -- what it says -------------------------------------------------------------------------

    @property
    def labelled(self) -> bool:
        """Whether experts have columns of their own, so that their order means something."""
        return self.columns is not None and len(self.columns) > 1

    def restricts(self, n_columns: int) -> bool:
        """Say whether anything is not free, in models of so many columns."""
        everything = self.columns is None or all(len(own) == n_columns for own in self.columns)
        return not everything or self.labelled or bool(self.common) or self.common_variance

    def seen(self, expert: int, n_columns: int) -> tuple[int, ...]:
        """Return the columns that an expert sees."""
        if self.columns is None:
            return tuple(range(n_columns))
        return self.columns[expert if self.labelled else 0]

    def relaxed(self) -> Self:
        """Return the structure in which every expert sees what any of them does."""
        if self.columns is None or not self.labelled:
            return self
        return replace(self, columns=(tuple(set().union(*self.columns)),), names=None)

    def take(self, order: Sequence[int] | Floats) -> Self:
        """Return the structure of experts in another order, or of some of them."""
        if self.columns is None or not self.labelled:
            return self
        places = np.arange(len(self.columns))[order]
        columns = tuple(self.columns[k] for k in places)
        names = None if self.names is None else tuple(self.names[k] for k in places)
        return replace(self, columns=columns, names=names if len(set(names or ())) > 1 else None)

    def order(self, mass: Floats) -> Floats:
        """Return the order of finished experts, (K,): by mass, where names do not say.

        Experts with columns of their own stay where they are, the heavier first among those that
        see the same columns.
        """
        order = np.argsort(-mass, kind="stable")
        if self.columns is None or not self.labelled:
            return order
        found = np.zeros(len(mass), dtype=int)
        for own in set(self.columns):
            here = [k for k, seen in enumerate(self.columns) if seen == own]
            found[here] = [k for k in order if k in here]
        return found

    def at(self, origin: Floats | None) -> Self:
        """Return the structure on another scale, given the user's origin there, (p,)."""
        return replace(self, origin=None if origin is None else tuple(map(float, origin)))

    # -- theta = C psi ------------------------------------------------------------------------

    def coefficients(self, n_experts: int, n_linear: int, n_columns: int) -> Floats:
        """Return the part of C for the experts' coefficients, (K Q p, q)."""
        return _coefficients(self, n_experts, n_linear, n_columns)

    def dispersions(self, n_experts: int, n_constant: int) -> Floats:
        """Return the part of C for the logs of dispersions, (E K, E) or (E K, E K)."""
        each = np.ones((n_experts, 1)) if self.common_variance else np.eye(n_experts)
        return linalg.block_diag(np.zeros((0, 0)), *[each] * n_constant)

    def basis(self, experts: Experts) -> Floats:
        """Return C for the parameters of experts, in the order of their vector, (P, q)."""
        K, Q, p, E = experts.n_experts, experts.n_linear, experts.n_columns, experts.n_constant
        return linalg.block_diag(self.coefficients(K, Q, p), self.dispersions(K, E))

    def projected(self, experts: Experts) -> Experts:
        """Return the nearest experts of this structure; those that have it stay as they are."""
        K, Q, p, E = experts.n_experts, experts.n_linear, experts.n_columns, experts.n_constant
        vector = np.array(experts.to_vector())
        coef, logs = vector[: K * Q * p].reshape(K, Q, p), vector[K * Q * p :].reshape(E, K)
        if self.origin is not None and 0 in self.common:
            C = self.coefficients(K, Q, p)
            coef[:] = (C @ np.linalg.lstsq(C, coef.ravel())[0]).reshape(coef.shape)
        sees = np.array([np.isin(np.arange(p), self.seen(k, p)) for k in range(K)])
        coef *= sees[:, None, :]
        for j in self.common:
            here = sees[:, j]
            if np.any(here) and (j > 0 or self.origin is None):
                coef[here, :, j] = _one(coef[here, :, j])
        if self.common_variance and E:
            with np.errstate(over="ignore"):
                logs[:] = np.log(_one(np.exp(logs.T))).T
        return experts.with_vector(vector)

    # -- weighted fits ------------------------------------------------------------------------

    def step(
        self,
        experts: Experts,
        statistics: FitStatistics,
        *,
        floor: float = 0.0,
        ridge: float = 0.0,
    ) -> Experts:
        """Return the experts after one weighted fitting step within the structure (maths 21).

        The quadratic that a step of free experts maximises, each for itself, is maximised over psi
        for all of them together. Experts that lack the structure come to have it.

        Parameters
        ----------
        experts : Experts
        statistics : FitStatistics
            Sums over rows at these experts.
        floor, ridge : float
            As in :meth:`otmoe.model.experts.family.Family.step`.
        """
        K, Q, p = experts.n_experts, experts.n_linear, experts.n_columns
        C, size = self.coefficients(K, Q, p), K * Q * p
        theta = np.array(experts.to_vector()[:size])
        base = np.array(self.projected(experts).to_vector()[:size])
        penalty = experts.penalty_matrix(ridge)[:size, :size]
        blocks = statistics.information.swapaxes(2, 3).reshape(K, Q * p, Q * p)
        each = C.reshape(K, Q * p, -1)
        curvature = np.einsum("kiq,kij,kjr->qr", each, blocks, each, optimize=True)
        away = np.einsum("kij,kj->ki", blocks, (theta - base).reshape(K, -1))
        score = statistics.score.ravel() + away.ravel() - penalty @ base
        information = curvature + C.T @ penalty @ C
        diagonal = np.diagonal(information)
        unit = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # experts of any variance
        psi = unit * solve_psd(information * unit[:, None] * unit, unit * (C.T @ score))
        increment = (base + C @ psi - theta).reshape(K, Q, p)
        return experts.moved(
            statistics, increment, floor=floor, ridge=ridge, common=self.common_variance
        )

    def fit(
        self,
        experts: Experts,
        X: Array,
        response: Response,
        weight: Array,
        *,
        offset: Array | None = None,
        floor: float = 0.0,
        ridge: float = 0.0,
        n_steps: int = 8,
    ) -> Experts:
        """Return experts of this structure led towards their weighted maximum (maths 21).

        Parameters
        ----------
        experts : Experts
        X : array of shape (n, p)
        response : Response
        weight : array of shape (n, K)
        offset : array of shape (n,), optional
        floor, ridge : float
            As in :meth:`step`.
        n_steps : int
            At most.
        """
        xp = namespace(X)
        penalty = experts.penalty_matrix(ridge)

        def value(experts: Experts) -> float:
            theta = experts.to_vector()
            log_prob = experts.expected_log_prob(experts.predictor(X, offset), response)
            return float(xp.sum(weight * log_prob)) - 0.5 * float(theta @ penalty @ theta)

        experts = self.projected(experts)
        height = value(experts)
        for _ in range(n_steps):
            start = experts.to_vector()
            sums = experts.statistics(X, response, weight, offset)
            found = self.step(experts, sums, floor=floor, ridge=ridge)
            there = value(found)
            for _ in range(6):
                if there >= height:
                    break
                found = experts.with_vector(0.5 * (start + found.to_vector()))
                there = value(found)
            if not there - height > 1e-3:
                return found if there >= height else experts
            experts, height = found, there
        return experts


def _one(values: Floats) -> Floats:
    """Return the mean over the first axis, and what is the same already bit by bit."""
    same = np.all(values == values[0], axis=0)
    return np.asarray(np.where(same, values[0], values.mean(axis=0)))


@cache
def _coefficients(structure: Structure, K: int, Q: int, p: int) -> Floats:
    place = np.arange(K * Q * p).reshape(K, Q, p)
    origin = None
    if 0 in structure.common and structure.origin is not None:
        origin = structure.origin  # the intercept is what the slopes leave of the common one
    columns, done = [], set()
    for k in range(K):
        for q in range(Q):
            for j in structure.seen(k, p):
                alike = [k]
                if j in structure.common:
                    if (q, j) in done:
                        continue
                    done.add((q, j))
                    alike = [other for other in range(K) if j in structure.seen(other, p)]
                column = np.zeros(K * Q * p)
                column[place[alike, q, j]] = 1.0
                if origin is not None and j > 0:
                    column[place[alike, q, 0]] = -origin[j]
                columns.append(column)
    found = np.array(columns).T
    found.flags.writeable = False
    return found
