"""The experts of all sites at the support points, and what an aggregate of them receives.

Everything is a sum over cells, blocks of support points times groups of sites that fit the cache:
memory does not grow with points times experts, and time is linear in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from otmoe.arrays.nearest import collected
from otmoe.arrays.numerics import Array, Floats, design, like, namespace, row_blocks, to_numpy
from otmoe.likelihood.rows import Scaling, take_rows
from otmoe.model.ensemble import Ensemble
from otmoe.model.experts import Experts, FitStatistics, Response
from otmoe.model.experts.dispersed import sent_one_by_one


@dataclass(frozen=True)
class Budget:
    """How the work is cut up, and how much of it is kept; no number of a result depends on it.

    Attributes
    ----------
    group : int
        Experts in a cell, if no site has more.
    cell, device_cell : int
        Experts times points in a cell; the same on a device.
    keep : int
        Numbers that may be kept from one pass to the next.
    """

    group: int = 512
    cell: int = 2**18
    device_cell: int = 2**24
    keep: int = 2**24


@dataclass(frozen=True)
class Cell:
    """Some of the sources at some of the support points.

    Attributes
    ----------
    rows : slice
        The points.
    experts : slice
        The sources.
    Z : array of shape (n, p)
        Standardised design.
    weight : array of shape (n, l)
        Mass of each source, lambda_m(x) pi_ml(x).
    response : Response
        What the sources predict, (n, l).
    own : ndarray of shape (l,)
        Weighted sum over the points of each source's own expected log density.
    """

    rows: slice
    experts: slice
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
        Support points at which at least one site contributes.
    scaling : Scaling
        Standardisation under which targets are fitted.
    pool : Executor, optional
        Threads over which cells are spread.
    kept : bool
        Keep the cells from one pass to the next, if they are small enough.
    budget : Budget
    """

    ensemble: Ensemble
    X: Array
    scaling: Scaling
    pool: Executor | None = field(default=None, repr=False)
    kept: bool = False
    budget: Budget = field(default=Budget(), repr=False)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_sources(self) -> int:
        """Number of experts of all sites, L."""
        return self.ensemble.experts.n_experts

    @cached_property
    def experts(self) -> Experts:
        """The L experts on the standardised scale."""
        return self.ensemble.experts.rescaled(self.scaling.inverse)

    @property
    def Z(self) -> Array:
        """The standardised design, (S, p)."""
        return design(self.X, self.scaling.x_center, self.scaling.x_scale)

    @cached_property
    def mass(self) -> Floats:
        """Mean mass of each source over the support, (L,)."""
        total = sum(self.each(lambda cell: self._placed(cell, _sum(cell.weight))))
        return np.asarray(total / len(self))

    def few(self, size: int, rng: np.random.Generator) -> Sources:
        """Return the sources at `size` of the points, drawn without replacement, in NumPy."""
        index = np.arange(len(self))
        if len(index) > size:
            index = np.sort(rng.choice(index, size, replace=False))
        return replace(self, X=take_rows(self.X, index), kept=True)

    def each(self, function: Callable[[Cell], Any]) -> Iterable[Any]:
        """Apply a function to every cell; results come in the order of the cells."""
        apply = map if self.pool is None else self.pool.map
        if self._cells is not None:
            return apply(function, self._cells)
        known = self._site_weights  # here, since threads that wait for threads wait for ever
        return apply(lambda place: function(self._cell(place, known)), self._places)

    def _placed(self, cell: Cell, values: Floats) -> Floats:
        """Return values of the sources of a cell in their places among all, (L, ...)."""
        out = np.zeros((self.n_sources, *values.shape[1:]))
        out[cell.experts] = values
        return out

    @cached_property
    def _cells(self) -> list[Cell] | None:
        arrays = 1 + getattr(self.experts, "n_classes", 1)
        if not self.kept or len(self) * self.n_sources * arrays > self.budget.keep:
            return None
        apply = map if self.pool is None else self.pool.map
        known = self._site_weights
        return list(apply(lambda place: self._cell(place, known), self._places))

    @cached_property
    def _groups(self) -> list[tuple[slice, slice, Ensemble]]:
        """Sites next to each other, as ensembles of their own: (they, their experts, ensemble)."""
        gate, experts = self.ensemble.gate, self.ensemble.experts
        n_sites = len(gate.gates)
        per_group = max(self.budget.group // max(g.n_experts for g in gate.gates), 1)
        groups = []
        for m in range(0, n_sites, per_group):
            stop = min(m + per_group, n_sites)
            mine = gate.experts_of(m, stop)
            part = Ensemble(gate.group(m, stop), experts.take(mine))
            groups.append((slice(m, stop), mine, part))
        return groups

    @cached_property
    def _places(self) -> list[tuple[slice, int]]:
        here = isinstance(self.X, np.ndarray)
        largest = max(mine.stop - mine.start for _, mine, _ in self._groups)
        size = max((self.budget.cell if here else self.budget.device_cell) // largest, 64)
        starts = range(0, len(self), size)
        blocks = [slice(start, min(start + size, len(self))) for start in starts]
        return [(rows, g) for rows in blocks for g in range(len(self._groups))]

    @cached_property
    def _site_weights(self) -> Array | None:
        """What the weights of sites at the support points follow from; None if they are constant.

        lambda_m(x) where it takes time to work out, and not too much space to keep, (S, M);
        otherwise the log weight of all sites that contribute, (S,).
        """
        gate = self.ensemble.gate
        if not gate.varies:
            return None
        n_sites = len(gate.gates)
        kept = gate.density is not None and len(self) * n_sites <= self.budget.keep
        weights = gate.site_prob if kept else gate.log_total
        on_device = not isinstance(self.X, np.ndarray)
        blocks = row_blocks(len(self), max(self.X.shape[1], n_sites), on_device=on_device)
        apply = map if self.pool is None else self.pool.map
        parts = apply(lambda rows: weights(design(self.X[rows, :])), blocks)
        return namespace(self.X).concat(list(parts))

    def _cell(self, place: tuple[slice, int], known: Array | None) -> Cell:
        xp = namespace(self.X)
        rows, group = place
        sites, mine, part = self._groups[group]
        X = design(self.X[rows, :])
        if known is not None and known.ndim == 2:
            share = known[rows, sites]
        else:
            share = part.gate.site_share(X, None if known is None else known[rows])
        eta = part.experts.predictor(X)
        response = part.experts.response(eta)
        weight = part.gate.shared(X, share)
        own = xp.sum(weight * part.experts.expected_log_prob(eta, response), axis=0)
        Z = design(self.X[rows, :], self.scaling.x_center, self.scaling.x_scale)
        return Cell(rows, mine, Z, weight, response, to_numpy(own))


@dataclass(frozen=True)
class Assignment:
    """What target experts receive from the sources, summed over the support (maths 11).

    Attributes
    ----------
    statistics : FitStatistics
        For one step of the targets.
    cost : ndarray of shape (L,)
        Mass times divergence of each source to its target.
    """

    statistics: FitStatistics
    cost: Floats

    def __add__(self, other: Assignment) -> Assignment:
        return Assignment(self.statistics + other.statistics, self.cost + other.cost)


def assign(sources: Sources, experts: Experts, labels: Floats | None = None) -> Assignment:
    """Send every source to a target, in one pass over the support.

    Parameters
    ----------
    sources : Sources
    experts : Experts
        The targets, on the standardised scale.
    labels : ndarray of int of shape (L,), optional
        Source l goes to target ``labels[l]`` everywhere; by default, at each point to the nearest.
    """

    def block(cell: Cell) -> Assignment:
        index, value = _sent(experts, cell, labels)
        if experts.by_moments:
            mass, response = _received(experts, cell, index)
            statistics = experts.statistics(cell.Z, response, mass)
        else:
            statistics = sent_one_by_one(experts, cell.Z, cell.response, cell.weight, index)
        cost = cell.own - _sum(cell.weight * value)
        return Assignment(statistics, sources._placed(cell, cost))

    return reduce(add, sources.each(block))


def costs(sources: Sources, experts: Experts) -> Floats:
    """Return the mass of each source times its divergence to the nearest target, summed, (L,)."""

    def block(cell: Cell) -> Floats:
        value = _sent(experts, cell, None)[1]
        return sources._placed(cell, cell.own - _sum(cell.weight * value))

    return reduce(add, sources.each(block))


def target_gate(
    sources: Sources, experts: Experts, labels: Floats, slack: Floats | None = None
) -> Array:
    """Return the mass a_sk that each target receives at each support point, (S, K) (maths 11).

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

    def block(cell: Cell) -> tuple[slice, Array]:
        index, value = _sent(experts, cell, labels)
        if slack is not None:
            xp = namespace(value)
            nearest, best = _sent(experts, cell, None)
            leaves = best - value > like(slack[cell.experts], value)[None, :]
            index = xp.where(leaves, xp.astype(nearest, index.dtype), index)
        return cell.rows, _received(experts, cell, index)[0]

    target = like(np.zeros((len(sources), experts.n_experts)), sources.X)
    for rows, mass in sources.each(block):
        target[rows, :] += mass
    return target


def flows(sources: Sources, experts: Experts) -> tuple[Floats, Floats]:
    """Return where the mass of each source goes and what that costs.

    Returns
    -------
    mass : ndarray of shape (L, K)
        Summed over the support.
    cost : ndarray of shape (L,)
        Mass times divergence, summed over the support.
    """
    mass = np.zeros((sources.n_sources, experts.n_experts))
    cost = np.zeros(sources.n_sources)

    def block(cell: Cell) -> tuple[slice, Floats, Floats]:
        xp = namespace(cell.Z)
        index, value = _sent(experts, cell, None)
        zero = xp.zeros_like(cell.weight)
        sent = [_sum(xp.where(index == k, cell.weight, zero)) for k in range(experts.n_experts)]
        return cell.experts, np.stack(sent, axis=1), cell.own - _sum(cell.weight * value)

    for mine, sent, spent in sources.each(block):
        mass[mine] += sent
        cost[mine] += spent
    return mass, np.maximum(cost, 0.0)


def _sent(experts: Experts, cell: Cell, labels: Floats | None) -> tuple[Array, Array]:
    """Return the target of each source and its expected log density there, (n, l)."""
    eta = experts.predictor(cell.Z)
    if labels is None:
        return experts.nearest(eta, cell.response)
    xp = namespace(eta)
    value = xp.zeros_like(cell.weight)
    index = like(labels[cell.experts], eta)[None, :] + value
    for k in range(experts.n_experts):
        log_prob = experts.take([k]).expected_log_prob(eta[:, k : k + 1, ...], cell.response)
        value = xp.where(index == k, log_prob, value)
    return xp.astype(index, xp.int32), value


def _received(experts: Experts, cell: Cell, index: Array) -> tuple[Array, Response]:
    """Return mass (n, K) and mean response of the targets, for sources sent to `index`."""
    given, K, xp = cell.response, experts.n_experts, namespace(cell.Z)
    var = given.var if experts.n_constant and experts.by_moments else None
    mass, mean, spread = collected(index, cell.weight, given.mean, var, K)
    if isinstance(given.trials, float) or not experts.by_moments:
        return mass, Response(mean, spread)
    trials, mean, _ = collected(index, cell.weight * given.trials, given.mean, None, K)
    return mass, Response(mean, spread, trials / xp.where(mass > 0, mass, xp.ones_like(mass)))


def _sum(a: Array) -> Floats:
    return to_numpy(namespace(a).sum(a, axis=0))
