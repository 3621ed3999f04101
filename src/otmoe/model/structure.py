"""Which coefficients of experts are free: columns left out, coefficients in common (maths 21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, Self

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Array, Floats, namespace
from otmoe.model.experts import Experts, FitStatistics, Response

LOG_OF_NOTHING = -300.0
"""Log mean of an expert that is always 0: no other count has a probability that can be seen."""


def takes_zeros(kind: type[Experts]) -> bool:
    """Say whether experts of a family may be zeros: those of counts without an upper end."""
    counts = kind.discrete and not kind.classifies
    return counts and kind.lowest == 0 and kind.highest == np.inf


@dataclass(frozen=True)
class Structure:
    """What the experts of a model see, and what they share (maths 21).

    The parameters are theta = C psi: a column that an expert does not see has the coefficient zero,
    and coefficients in common are equal. Models hold the whole of theta; only solvers ask for C.

    Attributes
    ----------
    columns : tuple of tuples of int, or of tuples of those, optional
        Columns of the design that experts see: one tuple for all of them, or one for each. Where
        responses have columns of their own, such a tuple has those of each response. 0 is the
        intercept, fixed at zero where it is left out. None means all columns. One of several
        experts that sees nothing at all, (), is a zero expert: its count is 0, and it has no
        parameters.
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

    columns: tuple[Any, ...] | None = None
    common: tuple[int, ...] = ()
    common_variance: bool = False
    names: tuple[str, ...] | None = None
    origin: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            found: tuple[Any, ...] = _by_response(self.columns)
            if all(len(set(own)) == 1 for own in found):
                found = tuple(own[0] for own in found)
            object.__setattr__(self, "columns", found)
        object.__setattr__(self, "common", tuple(sorted(set(self.common))))

    # -- what it says -------------------------------------------------------------------------

    @property
    def labelled(self) -> bool:
        """Whether experts have columns of their own, so that their order means something."""
        return self.columns is not None and len(self.columns) > 1

    @property
    def sets(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The columns by expert and response; one entry stands for all. Empty for all columns."""
        return _by_response(self.columns or ())

    def restricts(self, n_columns: int) -> bool:
        """Say whether anything is not free, in models of so many columns."""
        everything = all(len(seen) == n_columns for own in self.sets for seen in own)
        return not everything or self.labelled or bool(self.common) or self.common_variance

    def seen(self, expert: int, n_columns: int, predictor: int | None = None) -> tuple[int, ...]:
        """Return the columns that an expert sees for one of its predictors, or for any of them."""
        if self.columns is None:
            return tuple(range(n_columns))
        own = self.sets[expert if self.labelled else 0]
        if predictor is not None:
            return tuple(own[predictor if len(own) > 1 else 0])
        return tuple(sorted(set().union(*own)))

    def sees(self, n_experts: int, n_linear: int, n_columns: int) -> Floats:
        """Say which columns are seen, (K, Q, p)."""
        found = np.zeros((n_experts, n_linear, n_columns), dtype=bool)
        for k in range(n_experts):
            for q in range(n_linear):
                found[k, q, list(self.seen(k, n_columns, q))] = True
        return found

    @property
    def zeros(self) -> list[int]:
        """The experts whose count is always 0."""
        return [k for k, own in enumerate(self.sets) if not any(own)]

    @property
    def through_origin(self) -> bool:
        """Whether the intercept of some expert, for some response, is fixed at zero."""
        return any(seen and 0 not in seen for own in self.sets for seen in own)

    def relaxed(self) -> Self:
        """Return the structure in which every expert sees what any of them does, but for zeros."""
        if self.columns is None or not self.labelled:
            return self
        seeing = [own for own in self.sets if any(own)]
        every = tuple(tuple(set().union(*sets)) for sets in zip(*seeing, strict=True))
        columns = tuple(every if any(own) else () for own in self.sets)
        return replace(self, columns=columns if self.zeros else (every,), names=None)

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
        each = np.delete(np.eye(n_experts), self.zeros, axis=1)
        each = each.sum(axis=1, keepdims=True) if self.common_variance else each
        return linalg.block_diag(np.zeros((0, 0)), *[each] * n_constant)

    def basis(self, experts: Experts) -> Floats:
        """Return C for the parameters of experts, in the order of their vector, (P, q)."""
        K, Q, p, E = experts.n_experts, experts.n_linear, experts.n_columns, experts.n_constant
        return linalg.block_diag(self.coefficients(K, Q, p), self.dispersions(K, E))

    def held(self, experts: Experts) -> Floats:
        """Say which entries of the vector of experts are not theirs to choose: those of zeros."""
        K, Q, p, E = experts.n_experts, experts.n_linear, experts.n_columns, experts.n_constant
        zero = np.isin(np.arange(K), self.zeros)
        return np.append(np.repeat(zero, Q * p), np.tile(zero, E))

    def zeroed(self, experts: Experts) -> Experts:
        """Return the experts with those set to zeros that are such."""
        if not self.zeros:
            return experts
        K, Q, p = experts.n_experts, experts.n_linear, experts.n_columns
        vector = np.where(self.held(experts), 0.0, experts.to_vector())
        vector[: K * Q * p].reshape(K, Q, p)[self.zeros, :, 0] = LOG_OF_NOTHING
        return experts.with_vector(vector)

    def projected(self, experts: Experts) -> Experts:
        """Return the nearest experts of this structure; those that have it stay as they are."""
        K, Q, p, E = experts.n_experts, experts.n_linear, experts.n_columns, experts.n_constant
        vector = np.array(experts.to_vector())
        coef, logs = vector[: K * Q * p].reshape(K, Q, p), vector[K * Q * p :].reshape(E, K)
        sees = self.sees(K, Q, p)
        if self.origin is not None and (0 in self.common or self.through_origin):
            C = self.coefficients(K, Q, p)
            coef[:] = (C @ np.linalg.lstsq(C, coef.ravel())[0]).reshape(coef.shape)
            sees[..., 0] = True  # what the slopes leave of an intercept on the user's scale
        coef *= sees
        for q, j in product(range(Q), self.common):
            here = sees[:, q, j]
            if np.any(here) and (j > 0 or self.origin is None):
                coef[here, q, j] = _one(coef[here, q, j])
        if self.common_variance and E:
            with np.errstate(over="ignore"):
                logs[:] = np.log(_one(np.exp(np.delete(logs, self.zeros, axis=1).T)))[:, None]
        return self.zeroed(experts.with_vector(vector))

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
        each = C.reshape(K, Q * p, C.shape[1])
        curvature = np.einsum("kiq,kij,kjr->qr", each, blocks, each, optimize=True)
        away = np.einsum("kij,kj->ki", blocks, (theta - base).reshape(K, -1))
        score = statistics.score.ravel() + away.ravel() - penalty @ base
        information = curvature + C.T @ penalty @ C
        diagonal = np.diagonal(information)
        unit = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))  # experts of any variance
        psi = unit * solve_psd(information * unit[:, None] * unit, unit * (C.T @ score))
        increment = (base + C @ psi - theta).reshape(K, Q, p)
        bounds: dict[str, Any] = {"floor": floor, "ridge": ridge, "common": self.common_variance}
        if self.zeros:  # whose rows tell nothing of dispersions
            weight = np.where(np.isin(np.arange(K), self.zeros), 0.0, statistics.weight)
            statistics = replace(statistics, weight=weight)
        return self.zeroed(experts.moved(statistics, increment, **bounds))

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
def _by_response(columns: tuple[Any, ...]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return columns by expert and response; one set for all responses where they see the same."""
    found = []
    for own in columns:
        sets = (own,) if all(isinstance(column, int | np.integer) for column in own) else own
        found.append(tuple(tuple(sorted(set(seen))) for seen in sets))
    n_sets = max(map(len, found), default=1)
    return tuple(own * n_sets if len(own) == 1 else own for own in found)


@cache
def _coefficients(structure: Structure, K: int, Q: int, p: int) -> Floats:
    place, sees = np.arange(K * Q * p).reshape(K, Q, p), structure.sees(K, Q, p)
    # an intercept that is common, or zero, at the user's origin is what the slopes leave of it here
    origin, bound = structure.origin, (0 in structure.common) | ~sees[:, :, 0]
    columns, done = [], set()
    for k in range(K):
        for q in range(Q):
            for j in np.flatnonzero(sees[k, q]):
                alike = np.array([k])
                if j in structure.common:
                    if (q, j) in done:
                        continue
                    done.add((q, j))
                    alike = np.flatnonzero(sees[:, q, j])
                column = np.zeros(K * Q * p)
                column[place[alike, q, j]] = 1.0
                if origin is not None and j > 0:
                    column[place[alike[bound[alike, q]], q, 0]] = -origin[j]
                columns.append(column)
    found = np.reshape(columns, (len(columns), K * Q * p)).T
    found.flags.writeable = False
    return found
