"""How sites' models differ, from their replies: evidence, spread, agreement (maths 18)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg, optimize, stats

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats
from otmoe.inference.memory import inflation
from otmoe.likelihood.answers import SiteInformation
from otmoe.likelihood.information import expected_curvature
from otmoe.likelihood.prior import BLOCKS
from otmoe.model.mixture import MoE

# `python -m benchmarks constants` halves and doubles it.
_AVERAGE = 10.0  # scores for each parameter at which a site's own curvature counts half
_START, _LEAST = 0.1, 1e-4  # of a deviation: where the search begins, and its lower bound
_FLAT = 0.05  # curvature, over the average one, that counts as none
_NONE = 1e-3  # a deviation that counts as none
_LEVEL = 0.90  # of the intervals of deviations

MOST = 10.0
"""A deviation above which none is sought, in units of the block."""


# -- what a reply says about the parameters ------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """Estimates of all sites, on features standardised over all of them.

    V^-1 h estimates b, and V^-1 is its variance. The step from the common model with the curvature
    of all rows serves the tests: it is there also for a site whose own likelihood is not concave.

    Attributes
    ----------
    V : ndarray of shape (M, P, P)
        I B^-1 I.
    h : ndarray of shape (M, P)
        I B^-1 g.
    step : ndarray of shape (M, P)
        I^-1 g, with the site's share of the information of all rows.
    noise : ndarray of shape (P, P)
        Its variance where sites agree, for a site with all the rows.
    share : ndarray of shape (M,)
        A site's part of all rows.
    design_effect : float
    """

    V: Floats
    h: Floats
    step: Floats
    noise: Floats
    share: Floats
    design_effect: float


def evidence(model: MoE, replies: Sequence[SiteInformation], L: Floats) -> Evidence:
    """Return what the replies say.

    The curvature of a site with few scores is drawn to that of an average site of its size, and the
    noise is an average site's.

    Parameters
    ----------
    model : MoE
        What the replies are about.
    replies : sequence of SiteInformation
    L : ndarray of shape (P, P)
        Takes the parameters of the replies to those on the common scale.
    """
    back = np.linalg.inv(L)
    g = np.array([back.T @ r.information.score for r in replies])
    information = np.array(
        [back.T @ expected_curvature(model, r.information) @ back for r in replies]
    )
    scatter = [r.scatter for r in replies if r.scatter is not None]
    B = back.T @ np.sum([s.matrix for s in scatter], axis=0) @ back
    G = np.array([s.n_scores for s in scatter], dtype=float)
    n = np.array([r.n_samples for r in replies])

    # 1) in units of the information of all rows, per site as if it had them all
    values, vectors = np.linalg.eigh(symmetric(information.sum(axis=0)))
    keep = values > RANK_TOLERANCE * max(values[-1], 0.0)
    down = vectors[:, keep] / np.sqrt(values[keep])
    up = (vectors[:, keep] * np.sqrt(values[keep])).T
    P, share = int(keep.sum()), n / n.sum()
    g = g @ down
    information = down.T @ information @ down / share[:, None, None]
    B = down.T @ B @ down
    more = inflation([r.growth for r in replies if r.growth is not None])
    effect = max(more * float(np.trace(B)) / max(P, 1), 1e-12)

    # 2) noise of an average site: that of a site far from the common model, taken there, would grow
    # with what is sought. Of few scores, towards what independent rows give
    known = known_share(G.sum(), P)
    noise = known * more * (B - (g / G[:, None]).T @ g) + (1 - known) * effect * np.eye(P)
    own = known_share(G, P)[:, None, None]
    information = own * information + (1 - own) * np.eye(P)

    # 3) noise as large as the information; where a site's likelihood is hardly curved, far from its
    # maximum or because its features do not vary, it says nothing
    values, vectors = np.linalg.eigh(symmetric(information))
    root = np.sqrt(np.where(values > _FLAT, values, 0.0))[:, None, :]
    inverse = np.where(root > 0, 1 / np.where(root > 0, root, 1.0), 0.0)
    S = (vectors * root) @ vectors.swapaxes(1, 2)
    weight = S @ np.linalg.inv(noise)
    V = up.T @ (weight @ S * share[:, None, None]) @ up
    along = (vectors * inverse) @ np.einsum("mij,mi->mj", vectors, g)[:, :, None]
    h = (weight @ along)[:, :, 0] @ up
    step = g / share[:, None] - g.sum(axis=0)  # what all rows leave is a ridge's
    return Evidence(V, h, step @ down.T, down @ noise @ down.T, share, max(effect, 1.0))


def known_share(n_scores: Any, n_parameters: int) -> Any:
    """Return how far a site's own curvature is trusted, from 0 with no scores to 1 (maths 18)."""
    return n_scores / (n_scores + _AVERAGE * n_parameters)


def symmetric(matrix: Floats) -> Floats:
    """Return matrices made exactly symmetric."""
    return 0.5 * (matrix + matrix.swapaxes(-1, -2))


# -- the spread ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class At:
    """The restricted likelihood at some deviations.

    Attributes
    ----------
    value : float
    mean : ndarray of shape (P,)
        The sites' mean, less the common model.
    mean_covariance : ndarray of shape (P, P)
    distance : float
        Squared length of the mean, in its standard errors.
    slope : ndarray of shape (blocks,)
        Derivatives in the squared deviations; empty where they were not asked for.
    curvature : ndarray of shape (blocks, blocks)
        The average information in them.
    """

    value: float
    mean: Floats
    mean_covariance: Floats
    distance: float
    slope: Floats = field(default_factory=lambda: np.zeros(0))
    curvature: Floats = field(default_factory=lambda: np.zeros(0))


class Reml:
    """The restricted likelihood of the deviations between sites (maths 18).

    Parameters
    ----------
    V : ndarray of shape (M, P, P)
    h : ndarray of shape (M, P)
        In coordinates in which the spread is diagonal.
    owner : ndarray of int of shape (P,)
        Block of each coordinate.
    free : sequence of int
        Blocks whose deviation is sought; that of the others is 0.
    """

    def __init__(self, V: Floats, h: Floats, owner: Floats, free: Sequence[int]) -> None:
        self._V, self._h, self._owner, self._free = V, h, owner, list(free)

    def at(self, tau: Floats, *, slopes: bool = True) -> At:
        """Return the restricted likelihood at deviations (blocks,), up to a constant."""
        V, h, owner = self._V, self._h, self._owner
        root = tau[owner]
        some = root > 0
        # 1) (Lambda + V^-1)^-1 = V - V R (1 + R V R)^-1 R V, and the same times b
        C = np.eye(int(some.sum())) + root[some, None] * V[:, some][:, :, some] * root[some]
        factor = np.linalg.cholesky(C)
        sides = np.concatenate([V, h[:, :, None]], axis=2)[:, some] * root[some, None]
        Z = np.stack(
            [
                linalg.solve_triangular(low, side, lower=True, check_finite=False)
                for low, side in zip(factor, sides, strict=True)
            ]
        )
        Z, z = Z[:, :, :-1], Z[:, :, -1]
        M = V - Z.swapaxes(1, 2) @ Z
        u = h - np.einsum("mij,mi->mj", Z, z)
        # 2) the mean over sites
        A = M.sum(axis=0)
        A += RANK_TOLERANCE * np.trace(A) / len(A) * np.eye(len(A))
        low = linalg.cho_factor(A, lower=True)
        total = u.sum(axis=0)
        mean = linalg.cho_solve(low, total)
        covariance = linalg.cho_solve(low, np.eye(len(A)))
        logs = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum() + np.log(np.diag(low[0])).sum()
        value = float(-logs + 0.5 * (np.sum(z * z) + total @ mean))
        distance = float(mean @ A @ mean)
        if not slopes:
            return At(value, mean, covariance, distance)
        # 3) derivatives in the squared deviations, by block
        rest = u - M @ mean
        n = len(tau)
        trace = np.einsum("mii->i", M) - np.einsum("mij,mij->i", M @ covariance, M)
        slope = 0.5 * np.bincount(owner, np.sum(rest * rest, axis=0) - trace, minlength=n)
        parts = np.zeros((n, *rest.shape))
        parts[owner, :, np.arange(len(owner))] = rest.T
        moved = np.einsum("mij,bmj->bmi", M, parts)
        common = moved.sum(axis=1) @ covariance
        moved -= np.einsum("mij,bj->bmi", M, common)
        curvature = 0.5 * np.einsum("ami,bmi->ab", parts, moved)
        return At(value, mean, covariance, distance, slope, curvature)

    def maximised(self, start: Floats | None = None) -> Floats:
        """Return the deviations of the highest value, 0 where it lies at the boundary.

        Parameters
        ----------
        start : ndarray of shape (blocks,), optional
            Where to begin.
        """
        tau = np.zeros(len(BLOCKS))
        if not self._free:
            return tau
        begin = np.full(len(tau), _START) if start is None else np.maximum(start, 10 * _LEAST)
        ends = optimize.minimize(
            lambda x: self._logarithmic(x, self._free, tau),
            np.log(begin[self._free]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(np.log(_LEAST), np.log(MOST))] * len(self._free),
        )
        tau[self._free] = np.exp(ends.x)
        return np.where(tau < _NONE, 0.0, tau)

    def _logarithmic(self, x: Floats, blocks: list[int], rest: Floats) -> tuple[float, Floats]:
        """Return minus the value and its derivatives in the logs of some deviations."""
        tau = rest.copy()
        tau[blocks] = np.exp(x)
        at = self.at(tau)
        return -at.value, -2 * at.slope[blocks] * tau[blocks] ** 2

    def intervals(self, best: Floats) -> list[tuple[float, float]]:
        """Return the interval of each deviation, by the profile of the restricted likelihood.

        Along the profile, the other deviations follow the average information.
        """
        found = [(0.0, 0.0)] * len(best)
        if not self._free:
            return found
        top = self.at(best)
        drop = stats.chi2.ppf(_LEVEL, 1)
        limit = top.value - 0.5 * drop
        for b in self._free:
            others = [j for j in self._free if j != b and best[j] > 0]
            information, follow = top.curvature[b, b], np.zeros(0)
            if others:
                H = top.curvature[np.ix_(others, others)]
                follow = -np.linalg.lstsq(H, top.curvature[others, b], rcond=1e-8)[0]
                information = information + follow @ top.curvature[others, b]

            def above(
                tau: float, b: int = b, others: list[int] = others, f: Floats = follow
            ) -> float:
                moved = best.copy()
                moved[b] = tau
                change = f * (tau**2 - best[b] ** 2)
                moved[others] = np.sqrt(np.maximum(best[others] ** 2 + change, _NONE**2))
                return self.at(moved, slopes=False).value - limit

            wide = np.sqrt(drop / max(information, 1e-12))  # of the squared deviation, by Wald
            found[b] = (_lower(above, best[b], wide), _upper(above, best[b], wide))
        return found


def _lower(above: Callable[[float], float], best: float, wide: float) -> float:
    """Return where a function that is positive at `best` falls to 0 below it, or 0."""
    if best <= _NONE:
        return 0.0
    guess = np.sqrt(max(best**2 - wide, 0.0))
    if above(guess) > 0:
        if guess == 0.0 or above(0.0) >= 0:
            return 0.0
        return _root(above, 0.0, guess)
    return _root(above, guess, best)


def _upper(above: Callable[[float], float], best: float, wide: float) -> float:
    """Return where a function that is positive at `best` falls to 0 above it."""
    near, far = best, float(np.clip(np.sqrt(best**2 + 1.5 * wide), 10 * _NONE, MOST))
    while above(far) > 0:
        if far > MOST:
            return np.inf
        near, far = far, 1.5 * far
    return _root(above, near, far)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(optimize.brentq(function, low, high, xtol=3e-3 * high, rtol=1e-6))


# -- do sites agree? -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """Cochran's test that sites agree.

    Attributes
    ----------
    q, df, p_value : float
    parts : ndarray of shape (M,)
        Each site's part of q.
    chance : ndarray of shape (M,)
        How often a site that agrees with the others has a larger part.
    """

    q: float
    df: float
    p_value: float
    parts: Floats
    chance: Floats


def agreement(found: Evidence, block: Floats) -> Agreement:
    """Test that sites agree in some of the parameters, whatever the others are.

    Neyman's C(alpha) test: steps by the information of all rows, which a difference in other
    parameters leaves alone.
    """
    M, size = len(found.step), len(block)
    values, vectors = np.linalg.eigh(symmetric(found.noise[np.ix_(block, block)]))
    keep = values > RANK_TOLERANCE * np.max(values, initial=0.0)
    along = found.step[:, block] @ (vectors[:, keep] / np.sqrt(values[keep]))
    parts = found.share * np.sum(along**2, axis=1)
    rank = int(keep.sum())
    q, df = float(parts.sum()), float(rank * (M - 1)) if size else 0.0
    return Agreement(
        q,
        df,
        float(stats.chi2.sf(q, df)) if df > 0 else np.nan,
        parts,
        stats.chi2.sf(parts / np.maximum(1 - found.share, 1e-12), max(rank, 1)),
    )
