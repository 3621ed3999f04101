"""The experts of all sites at the support points, and what an aggregate of them receives.

Sums over the support are taken block by block, so that memory does not grow with the number of
support points times the number of experts; what fits a fixed budget is kept between passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from otmoe.experts import Experts, FitStatistics, Response
from otmoe.numerics import Array, Floats, design, like, namespace, to_numpy
from otmoe.plans import collected
from otmoe.pooled import Ensemble
from otmoe.rows import Scaling, take_rows

_BLOCK = 2**19  # numbers in one (rows, L) array of a block
_DEVICE_BLOCK = 2**25
_KEEP = 2**24  # numbers that may be kept from one pass to the next


@dataclass(frozen=True)
class Cell:
    """The sources at a block of support points.

    Attributes
    ----------
    Z : array of shape (n, p)
        Standardised design.
    weight : array of shape (n, L)
        Mass of each source, lambda_m(x) pi_ml(x).
    response : Response
        What the sources predict, (n, L).
    own : ndarray of shape (L,)
        Weighted sum over the points of each source's own expected log density.
    """

    Z: Array
    weight: Array
    response: Response
    own: Floats


@dataclass(frozen=True)
class Sources:
    """f^W seen at support points.

    Attributes
    ----------
    ensemble : Ensemble
        On the user's scale.
    X : array of shape (S, d)
        Support points at which at least one site has a say.
    scaling : Scaling
        Standardisation under which targets are fitted.
    pool : Executor, optional
        Threads over which blocks are spread.
    """

    ensemble: Ensemble
    X: Array
    scaling: Scaling
    pool: Executor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def experts(self) -> Experts:
        """The L experts on the standardised scale."""
        return self.ensemble.experts.rescaled(self.scaling.inverse)

    @cached_property
    def mass(self) -> Floats:
        """Mean mass of each source over the support, (L,)."""
        return np.asarray(sum(self.each(lambda cell: _sum(cell.weight))) / len(self))

    def few(self, size: int, rng: np.random.Generator) -> Sources:
        """Return the sources at `size` of the points, drawn without replacement, in NumPy."""
        index = np.arange(len(self))
        if len(index) > size:
            index = np.sort(rng.choice(index, size, replace=False))
        return replace(self, X=take_rows(self.X, index))

    def each(self, function: Callable[[Cell], Any]) -> Iterable[Any]:
        """Apply a function to every block; results come in the order of the blocks."""
        apply = map if self.pool is None else self.pool.map
        if self._kept is not None:
            return apply(function, self._kept)
        return apply(lambda rows: function(self._cell(rows)), self._slices)

    @cached_property
    def _kept(self) -> list[Cell] | None:
        arrays = 1 + getattr(self.experts, "n_classes", 1)
        numbers = len(self) * (self.experts.n_experts * arrays + self.X.shape[1] + 1)
        apply = map if self.pool is None else self.pool.map
        return list(apply(self._cell, self._slices)) if numbers <= _KEEP else None

    @cached_property
    def _slices(self) -> list[slice]:
        budget = _BLOCK if isinstance(self.X, np.ndarray) else _DEVICE_BLOCK
        size = max(budget // self.experts.n_experts, 64)
        starts = range(0, len(self), size)
        return [slice(start, min(start + size, len(self))) for start in starts]

    def _cell(self, rows: slice) -> Cell:
        xp = namespace(self.X)
        X = design(self.X[rows, :])
        experts = self.ensemble.experts
        eta = experts.predictor(X)
        response = experts.response(eta)
        weight = self.ensemble.gate.prob(X)
        own = xp.sum(weight * experts.expected_log_prob(eta, response), axis=0)
        Z = design(self.X[rows, :], self.scaling.x_center, self.scaling.x_scale)
        return Cell(Z, weight, response, to_numpy(own))


@dataclass(frozen=True)
class Look:
    """What target experts receive from the sources, summed over the support (maths 9).

    Attributes
    ----------
    statistics : FitStatistics
        For one step of the targets.
    cost : ndarray of shape (L,)
        Mass times divergence of each source to the nearest target.
    """

    statistics: FitStatistics
    cost: Floats

    def __add__(self, other: Look) -> Look:
        return Look(self.statistics + other.statistics, self.cost + other.cost)


def look(sources: Sources, experts: Experts, labels: Floats | None = None) -> Look:
    """Send every source to a target, in one pass over the support.

    Parameters
    ----------
    sources : Sources
    experts : Experts
        The targets, on the standardised scale.
    labels : ndarray of int of shape (L,), optional
        Source l goes to target ``labels[l]`` everywhere; by default, at each point to the nearest.
    """

    def block(cell: Cell) -> Look:
        index, value = _sent(experts, cell, labels)
        mass, response = _received(experts, cell, index)
        return Look(
            experts.statistics(cell.Z, response, mass), cell.own - _sum(cell.weight * value)
        )

    return reduce(add, sources.each(block))


def target_gate(
    sources: Sources, experts: Experts, labels: Floats, slack: Floats | None = None
) -> Array:
    """Return the mass a_sk that each target receives at each support point, (S, K) (maths 9).

    Parameters
    ----------
    sources : Sources
    experts : Experts
    labels : ndarray of int of shape (L,)
        The target of each source.
    slack : ndarray of shape (L,), optional
        Where the nearest target is nearer than that by more than this many nats, the source goes
        to the nearest instead.
    """

    def block(cell: Cell) -> Array:
        index, value = _sent(experts, cell, labels)
        if slack is not None:
            xp = namespace(value)
            nearest, best = _sent(experts, cell, None)
            leaves = best - value > like(slack, value)[None, :]
            index = xp.where(leaves, xp.astype(nearest, index.dtype), index)
        return _received(experts, cell, index)[0]

    parts = list(sources.each(block))
    return namespace(parts[0]).concat(parts)


def flows(sources: Sources, experts: Experts) -> tuple[Floats, Floats]:
    """Return where the mass of each source goes and what that costs.

    Returns
    -------
    mass : ndarray of shape (L, K)
        Summed over the support.
    cost : ndarray of shape (L,)
        Mass times divergence, summed over the support.
    """

    def block(cell: Cell) -> tuple[Floats, Floats]:
        xp = namespace(cell.Z)
        index, value = _sent(experts, cell, None)
        zero = xp.zeros_like(cell.weight)
        sent = [_sum(xp.where(index == k, cell.weight, zero)) for k in range(experts.n_experts)]
        return np.stack(sent, axis=1), cell.own - _sum(cell.weight * value)

    masses, costs = zip(*sources.each(block), strict=True)
    return sum(masses), np.maximum(sum(costs), 0.0)


def _received(experts: Experts, cell: Cell, index: Array) -> tuple[Array, Response]:
    """Return mass (n, K) and mean response of the targets, for sources sent to `index`."""
    var = cell.response.var if experts.n_constant else None
    mass, mean, spread = collected(index, cell.weight, cell.response.mean, var, experts.n_experts)
    return mass, Response(mean, spread)


def _sent(experts: Experts, cell: Cell, labels: Floats | None) -> tuple[Array, Array]:
    """Return the target of each source and its expected log density there, (n, L)."""
    eta = experts.predictor(cell.Z)
    if labels is None:
        return experts.nearest(eta, cell.response)
    value = namespace(eta).zeros_like(cell.weight)
    index = like(labels, eta)[None, :] + value
    for k in range(experts.n_experts):
        log_prob = experts.take([k]).expected_log_prob(eta[:, k : k + 1, ...], cell.response)
        value = namespace(eta).where(index == k, log_prob, value)
    return namespace(eta).astype(index, namespace(eta).int32), value


def _sum(a: Array) -> Floats:
    return to_numpy(namespace(a).sum(a, axis=0))
