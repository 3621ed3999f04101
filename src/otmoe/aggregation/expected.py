"""The likelihood that sites' own models expect of another one (maths 17).

At covariates of a site, what its model predicts is written as pseudo-rows: nodes of y, and weights
that make sums over them expectations. Fitting another model to the pseudo-rows of all sites by
maximum likelihood merges their densities; its log-likelihood there says how well it serves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from otmoe.aggregation.covariates import SiteCovariates
from otmoe.arrays.numerics import Floats, design, row_blocks
from otmoe.likelihood.fused import log_densities
from otmoe.likelihood.rows import Block, Scaling
from otmoe.model.mixture import MoE

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_ARRAYS = 8  # numbers of a pseudo-row that a block holds at once, at least
_AT_ONCE = 1024  # covariates of which pseudo-rows are made at once
_SLIGHT = 1e-4  # of a gate below which an expert is left out
_FAR = 1e300  # nats, where numbers end
_RARE = 1e-5  # of the rows of an x, below which a pseudo-row is left out


@dataclass(frozen=True)
class PseudoRows:
    """Pseudo-rows of several sites; those of one x lie next to each other.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Covariates, on the user's scale.
    start : ndarray of int of shape (n + 1,)
        Where the pseudo-rows of each x begin.
    y : ndarray of shape (rows,), or (rows, R) where a y has R columns
    weight : ndarray of shape (rows,)
        On the user's scale. The weights of all rows add up to the weight of the sites.
    own : ndarray of shape (rows,)
        Log density of the site's own model, up to the base measure.
    site : ndarray of int of shape (n,)
        The site of each x.
    scaling : Scaling
        Under which blocks are read.
    pool : Executor, optional
        Threads.
    """

    X: Floats
    start: Floats
    y: Floats
    weight: Floats
    own: Floats
    site: Floats
    scaling: Scaling = Scaling()
    pool: Executor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(self.weight.sum())

    def slices(self) -> Iterator[slice]:
        """Cut the covariates into blocks, by how many pseudo-rows they have."""
        each = -(-len(self.y) // max(len(self.X), 1))
        columns = max(self.X.shape[1] + 1, _ARRAYS * each)
        return row_blocks(len(self.X), columns, on_device=False)

    def block(self, some: slice) -> Block:
        """Read the pseudo-rows of some covariates."""
        scaling, rows = self.scaling, self._rows(some)
        Z = design(self.X[some], scaling.x_center, scaling.x_scale)
        y = (self.y[rows] - scaling.y_center) / scaling.y_scale
        return Block(Z, y, self.weight[rows], copies=self._copies(some))

    def _rows(self, some: slice) -> slice:
        return slice(self.start[some.start], self.start[some.stop])

    def _copies(self, some: slice) -> Floats:
        return np.diff(self.start[some.start : some.stop + 1])

    def thinned(self, step: int) -> PseudoRows:
        """Return every so-many-th of the covariates, with as much weight as all."""
        some = self._taken(np.arange(0, len(self.X), step))
        return replace(some, weight=some.weight * (self.total_weight / some.total_weight))

    def of_sites(self, here: Floats) -> PseudoRows:
        """Return those of some sites (M,), standardised again."""
        some = self._taken(np.flatnonzero(here[self.site]))
        center, scale = (np.atleast_1d(a) for a in (self.scaling.y_center, self.scaling.y_scale))
        scaled = tuple((scale != 1.0) | (center != 0.0))
        centred = bool(np.any(center != 0.0))
        scaling = _standardisation(scaled, centred, some.X, some.y, some.weight, some.start)
        return replace(some, scaling=scaling)

    def _taken(self, some: Floats) -> PseudoRows:
        copies = np.diff(self.start)[some]
        start = np.concatenate([[0], np.cumsum(copies)])
        index = np.repeat(self.start[some] - start[:-1], copies) + np.arange(start[-1])
        return replace(
            self,
            X=self.X[some],
            start=start,
            y=self.y[index],
            weight=self.weight[index],
            own=self.own[index],
            site=self.site[some],
        )

    def losses(self, model: MoE, n_sites: int) -> Floats:
        """Return the nats per row that a model is expected to lose to each site's own, (M,).

        Parameters
        ----------
        model : MoE
            On the user's scale.
        n_sites : int
            M.
        """
        return self._means(model, n_sites, lambda own, there: own - there)

    def distances(self, model: MoE, n_sites: int) -> Floats:
        """Return four times the squared Hellinger distance of a model to each site's own, (M,).

        For models that are near it is what :meth:`losses` returns. It is four at most, whatever
        local experts of a few rows predict where there are none.

        Parameters
        ----------
        model : MoE
            On the user's scale.
        n_sites : int
            M.
        """

        def apart(own: Floats, there: Floats) -> Floats:
            return 4 * (1 - np.exp(np.minimum(there - own, 1000.0) / 2))  # else it overflows

        return self._means(model, n_sites, apart)

    def log_ratio(self, model: MoE) -> Floats:
        """Return by how much the log density of a model exceeds the site's own, (rows,)."""

        def block(some: slice) -> Floats:
            return self._log_density(model, some) - self.own[self._rows(some)]

        apply = map if self.pool is None else self.pool.map
        return np.concatenate(list(apply(block, self.slices())))

    def _log_density(self, model: MoE, some: slice) -> Floats:
        block = Block(design(self.X[some]), self.y[self._rows(some)], copies=self._copies(some))
        return log_densities(model, block)

    def _means(self, model: MoE, n_sites: int, value: Callable[[Floats, Floats], Floats]) -> Floats:
        """Return the mean over the pseudo-rows of each site of a value of two log densities."""

        def block(some: slice) -> Floats:
            rows = self._rows(some)
            site, weight = np.repeat(self.site[some], self._copies(some)), self.weight[rows]
            values = weight * value(self.own[rows], self._log_density(model, some))
            return np.stack([np.bincount(site, w, n_sites) for w in (values, weight)])

        apply = map if self.pool is None else self.pool.map
        total, weight = np.sum(list(apply(block, self.slices())), axis=0)
        return np.divide(total, weight, out=np.full(n_sites, np.nan), where=weight > 0)


def pseudo_rows(
    models: Sequence[MoE],
    covariates: Sequence[SiteCovariates],
    pool: Executor | None = None,
    seed: int | None = None,
) -> PseudoRows:
    """Return what sites' models predict at their covariates, as pseudo-rows.

    Parameters
    ----------
    models : sequence of M MoE
        On the user's scale.
    covariates : sequence of M SiteCovariates
    pool : Executor, optional
        Threads.
    seed : int, optional
        Where given, a few nodes drawn at random stand for the grid, if the family has such a rule.
    """
    apply = map if pool is None else pool.map
    seeds = [None if seed is None else (seed, m) for m in range(len(models))]
    parts = list(apply(_of_site, models, covariates, seeds))
    copies = np.concatenate([part[0] for part in parts])
    some = [part for part in parts if len(part[1])] or parts  # a site may have no covariates
    y, weight, own = (np.concatenate([part[i] for part in some]) for i in (1, 2, 3))
    X = np.concatenate([at.X for at in covariates])
    site = np.repeat(np.arange(len(models)), [len(at.X) for at in covariates])
    start = np.concatenate([[0], np.cumsum(copies)])
    structure, scaled = models[0].structure, models[0].experts.scaled_columns()
    centred = structure is None or not structure.through_origin
    scaling = _standardisation(scaled, centred, X, y, weight, start)
    return PseudoRows(X, start, y, weight, own, site, scaling, pool)


def _standardisation(
    scaled: tuple[bool, ...],
    centred: bool,
    X: Floats,
    y: Floats,
    weight: Floats,
    start: Floats,
) -> Scaling:
    """Return the scale on which pseudo-rows have mean 0 and variance 1; constants keep theirs.

    The y of `scaled` columns have variance 1, and mean 0 if they are `centred`.
    """
    share = np.bincount(np.repeat(np.arange(len(X)), np.diff(start)), weight, len(X))
    share = share / share.sum()
    center = share @ X
    sd = np.sqrt(share @ (X - center) ** 2)
    scaling = Scaling(center, np.where(sd > 1e-10 * np.abs(center), sd, 1.0))
    if not any(scaled):
        return scaling
    mean = np.average(y, weights=weight, axis=0)
    spread = np.sqrt(np.average((y - mean) ** 2, weights=weight, axis=0))
    at = mean if centred else np.zeros_like(mean)
    if y.ndim == 1:
        return replace(scaling, y_center=float(at), y_scale=float(spread))
    return replace(
        scaling, y_center=np.where(scaled, at, 0.0), y_scale=np.where(scaled, spread, 1.0)
    )


def _of_site(
    model: MoE, at: SiteCovariates, seed: tuple[int, int] | None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the number of pseudo-rows of each x, their y, weights and own log densities."""
    rng = None if seed is None else np.random.default_rng(seed)
    parts = [_of_block(model, at.X[some], at.weight[some], rng) for some in _pieces(len(at.X))]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]


def _pieces(n: int) -> list[slice]:
    return [slice(i, min(i + _AT_ONCE, n)) for i in range(0, n, _AT_ONCE)] or [slice(0, 0)]


def _of_block(
    model: MoE, X: Floats, share: Floats, rng: np.random.Generator | None
) -> tuple[Floats, Floats, Floats, Floats]:
    experts, Z = model.experts, design(X)
    gate, eta = np.asarray(model.gate.prob(Z)), np.asarray(experts.predictor(Z))
    if not len(Z):
        return np.zeros(0, int), np.zeros(0), np.zeros(0), np.zeros(0)
    if rng is not None:
        heard = np.where(gate < _SLIGHT, 0.0, gate)
        nodes = experts.nodes(eta, heard * (share / heard.sum(axis=1))[:, None], rng)
        if nodes is not None:
            copies, y, weight = nodes
            return copies, y, weight, log_densities(model, Block(Z, y, copies=copies))
    # where an expert is left out, another takes its place, so that the grid need not reach there
    main = np.take_along_axis(eta, gate.argmax(axis=1).reshape(-1, *[1] * (eta.ndim - 1)), axis=1)
    silent = (gate < _SLIGHT).reshape(*gate.shape, *[1] * (eta.ndim - 2))
    y, width = experts.grid(np.where(silent, main, eta))
    copies = np.full(len(Z), y.shape[1])
    flat = np.ascontiguousarray(y).reshape(-1, *y.shape[2:])
    own = log_densities(model, Block(Z, flat, copies=copies))
    with np.errstate(over="ignore", invalid="ignore"):  # what a site predicts may have no number
        log_density = np.nan_to_num(own + experts.log_base(flat), nan=-_FAR, neginf=-_FAR)
    log_density = log_density.reshape(width.shape)
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True)) * width
    lost = ~(density.sum(axis=1) > 0)  # an expert far off is a single point, of no width
    density[lost] = np.exp(log_density[lost] - log_density[lost].max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    kept = density > _RARE
    density = np.where(kept, density, 0.0)
    density *= (share / density.sum(axis=1))[:, None]
    chosen = kept.ravel()
    return kept.sum(axis=1), flat[chosen], density.ravel()[chosen], own[chosen]
