"""Covariates of every site, at which its model speaks for it (maths 17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from otmoe.arrays.numerics import Array, Floats, design, to_numpy
from otmoe.data.sketch import Sketch
from otmoe.likelihood.rows import take_rows
from otmoe.model.ensemble import PooledGate

# Maths 17 says why; `python -m benchmarks constants` halves and doubles them.
PER_PARAMETER = 50
"""Covariates of a site for every parameter of the merged model, if there are as many.

Drawing n of them adds P / n of the variance to what the merging makes of P parameters: half of
that, one per cent, to the standard errors.
"""

MOST_COVARIATES = 2**17
"""Covariates of all sites, where each has enough: that bounds time and memory."""

_PER_ROW = 16  # pseudo-rows of all sites for every row of theirs, so that fitting takes longer;
# nearly all x of four Gaussian experts with soft gates, of which 8 had left out two fifths
_MOST_ROWS = (2**18, 2**21)  # but no fewer, and no more
_LEAST = 50  # covariates of a site
_FRESH, _LEAST_FRESH = 8_000, 25  # covariates of all sites that judge models; of one site at least
_MOST_SHARES = 2**22  # weights of all sites at common points
_HELD_OUT = 10  # one of so many judges, where a site has no more than are needed


@dataclass(frozen=True)
class Sampler:
    """What a site lets others know about its covariates.

    Attributes
    ----------
    rows : array of shape (n, d), optional
    sketch : Sketch, optional
        From which more are drawn where there are not enough rows.
    """

    rows: Array | None = field(default=None, repr=False)
    sketch: Sketch | None = field(default=None, repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return self.sketch is None and not self.n_rows

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return 0 if self.rows is None else int(self.rows.shape[0])

    def moments(self) -> list[tuple[Floats, Floats]]:
        """Return mean and variance (d,) of the features, by the rows and by the sketch.

        The mean of dummies is NaN: they are never far away.
        """
        found = []
        if self.rows is not None and self.n_rows:
            X = np.asarray(to_numpy(self.rows), np.float64)
            dummy = np.all((X == 0) | (X == 1), axis=0)
            found.append((np.where(dummy, np.nan, X.mean(axis=0)), X.var(axis=0)))
        if self.sketch is not None:
            mean, var = (values.copy() for values in self.sketch.moments)
            for j, (center, scale) in self.sketch.units.items():
                mean[j], var[j] = (mean[j] - center) / scale, var[j] / scale**2
            levels = [j for columns in self.sketch.categories for j in columns]
            levels += [j for j, value in self.sketch.constant.items() if value in (0, 1)]
            mean[levels] = np.nan
            found.append((mean, var))
        return found

    def drawn(self, size: int, fresh: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return covariates to fit to, and others to judge by; the same where there are too few.

        Parameters
        ----------
        size, fresh : int
            How many of each, if there are as many.
        rng : Generator
        """
        n = self.n_rows
        order = rng.permutation(n)[: size + fresh]
        X = np.zeros((0, 0)) if self.rows is None else take_rows(self.rows, order)
        if self.sketch is not None and n < size + fresh:
            more = self.sketch.draw(size + fresh - n, rng)
            X = np.concatenate([X, more]) if n else more
        return divided(X.astype(np.float64, copy=False), size, fresh)


def divided(X: Floats, size: int, fresh: int) -> tuple[Floats, Floats]:
    """Return the covariates to fit to and those to judge by, of rows in any order."""
    held = min(fresh, max(len(X) - size, len(X) // _HELD_OUT))
    if held < _LEAST_FRESH:
        return X, X[:fresh]
    return X[: len(X) - held], X[len(X) - held :]


@dataclass(frozen=True)
class SiteCovariates:
    """Covariates that stand for the rows of a site.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    weight : ndarray of shape (n,)
        They add up to the weight of the site.
    """

    X: Floats
    weight: Floats

    def thinned(self, step: int) -> SiteCovariates:
        """Return every so-many-th of them, but not too few, with as much weight as all."""
        return self.every(min(step, len(self.X) // _LEAST_FRESH))

    def every(self, step: int) -> SiteCovariates:
        """Return every so-many-th of them, with as much weight as all."""
        if step < 2 or not len(self.X):
            return self
        weight = self.weight[::step]
        return SiteCovariates(self.X[::step], weight * (self.weight.sum() / weight.sum()))


@dataclass(frozen=True)
class Places:
    """Where the models of all sites are looked at.

    Attributes
    ----------
    fit, fresh : tuple of M SiteCovariates
        To fit to, and to judge by.
    """

    fit: tuple[SiteCovariates, ...]
    fresh: tuple[SiteCovariates, ...]

    def bounded(self, n_experts: Sequence[int], most: int) -> Places:
        """Return fewer places of models with more experts than `most`.

        Their work grows by the square, and no site is to decide on the work of all.
        """
        steps = [max(K // most, 1) ** 2 for K in n_experts]
        parts = (
            (at.thinned(s) for at, s in zip(of, steps, strict=True)) for of in vars(self).values()
        )
        return Places(*map(tuple, parts))


def sizes(n_parameters: int, n_sites: int, n_nodes: float, n_rows: float) -> tuple[int, int]:
    """Return how many covariates of a site are wanted, to fit to and to judge by.

    Parameters
    ----------
    n_parameters : int
        Of the merged model.
    n_sites : int
    n_nodes : float
        Pseudo-rows that one x becomes.
    n_rows : float
        Rows that the sites were fitted to.
    """
    most_rows = np.clip(_PER_ROW * n_rows, *_MOST_ROWS)
    most = int(min(most_rows / n_nodes, MOST_COVARIATES)) // n_sites
    fit = min(max(PER_PARAMETER * n_parameters, _LEAST), max(most, _LEAST))
    return fit, max(_FRESH // n_sites, _LEAST_FRESH)


def places(
    samplers: Sequence[Sequence[tuple[Sampler, float]]],
    gate: PooledGate,
    common: Array,
    size: int,
    fresh: int,
    rng: np.random.Generator,
) -> Places:
    """Return covariates of every site: its own, or the common ones where these are not known.

    Parameters
    ----------
    samplers : sequence of M sequences of (Sampler, float)
        What is known of each site, and its weight; of several that sent the same model, of each.
    gate : PooledGate
        Of all sites; it has their weights at the common points.
    common : array of shape (S, d)
    size, fresh : int
        Covariates wanted of each site.
    rng : Generator
    """
    silent = [all(sampler.is_empty for sampler, _ in of_site) for of_site in samplers]
    total = sum(weight for of_site in samplers for _, weight in of_site)
    shared = _shared(gate, total, common, size, fresh, rng) if any(silent) else ()
    pairs = [
        tuple(_of(known, u) for known in shared) if silent[u] else _own(of_site, size, fresh, rng)
        for u, of_site in enumerate(samplers)
    ]
    return Places(*zip(*pairs, strict=True))


def _own(
    of_site: Sequence[tuple[Sampler, float]], size: int, fresh: int, rng: np.random.Generator
) -> tuple[SiteCovariates, ...]:
    """Return covariates of a site to fit to and to judge by, from each that sent its model."""
    heard = [(sampler, weight) for sampler, weight in of_site if not sampler.is_empty]
    total, known = (sum(weight for _, weight in some) for some in (of_site, heard))
    shares = [weight / known for _, weight in heard]
    drawn = [
        sampler.drawn(max(round(size * share), 1), max(round(fresh * share), 1), rng)
        for (sampler, _), share in zip(heard, shares, strict=True)
    ]
    return tuple(
        SiteCovariates(
            np.concatenate(parts),
            np.concatenate(
                [np.full(len(X), total * s / len(X)) for X, s in zip(parts, shares, strict=True)]
            ),
        )
        for parts in zip(*drawn, strict=True)
    )


def _shared(
    gate: PooledGate,
    total: float,
    common: Array,
    size: int,
    fresh: int,
    rng: np.random.Generator,
) -> tuple[tuple[Floats, Floats, int], tuple[Floats, Floats, int]]:
    """Return common points to fit to and to judge by, weights of all sites, (n, M), and a size.

    A site has that many of them. Where there are more, each has others, so that all count.
    """
    n_sites = len(gate.gates)
    times = max(min(n_sites, _MOST_SHARES // (n_sites * (size + fresh))), 1)
    order = rng.permutation(int(common.shape[0]))[: times * (size + fresh)]
    points = np.asarray(take_rows(common, order), np.float64)
    weighted = []
    for X, most in zip(divided(points, times * size, times * fresh), (size, fresh), strict=True):
        share = np.broadcast_to(to_numpy(gate.site_prob(design(X))), (len(X), n_sites))
        weighted.append((X, share * (total / max(min(len(X), most), 1)), most))
    return weighted[0], weighted[1]


def _of(known: tuple[Floats, Floats, int], u: int) -> SiteCovariates:
    X, share, size = known
    mine = np.arange(len(X)) if len(X) <= size else (u * size + np.arange(size)) % len(X)
    mine = mine[share[mine, u] > 0]
    return SiteCovariates(X[mine], share[mine, u])
