"""What sites' replies say about how their models differ: evidence, spread, agreement (maths 18)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize, stats

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.answers import SiteInformation
from otmoe.likelihood.prior import BLOCKS

# `python -m benchmarks constants` halves and doubles it.
_AVERAGE = 10.0  # scores for each parameter at which a site's own curvature counts half
_START, _LEAST, _MOST = 0.1, 1e-4, 10.0  # of a deviation: where the search begins, and its bounds
_NONE = 1e-3  # a deviation that counts as none
_LEVEL = 0.90  # of the intervals of deviations


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
    noise : ndarray of shape (M, P, P)
        Its variance where sites agree.
    own : ndarray of shape (M,)
        How far a site's scatter is its own, the rest being the average site's.
    n_scores : ndarray of shape (M,)
    design_effect : float
    """

    V: Floats
    h: Floats
    step: Floats
    noise: Floats
    own: Floats
    n_scores: Floats
    design_effect: float


def evidence(replies: Sequence[SiteInformation], L: Floats) -> Evidence:
    """Return what the replies say.

    Curvature and noise of a site with few scores are drawn to those of an average site of its size.

    Parameters
    ----------
    replies : sequence of SiteInformation
    L : ndarray of shape (P, P)
        Takes the parameters of the replies to those on the common scale.
    """
    back = np.linalg.inv(L)
    g = np.array([back.T @ r.information.score for r in replies])
    information = np.array([back.T @ r.information.matrix @ back for r in replies])
    scatter = [r.scatter for r in replies if r.scatter is not None]
    B = np.array([back.T @ s.matrix @ back for s in scatter])
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
    B = down.T @ B @ down / share[:, None, None]
    effect = max(float(np.trace(np.average(B, axis=0, weights=share))) / max(P, 1), 1e-12)

    # 2) towards an average site; of the average, towards what independent rows would give
    B -= g[:, :, None] * g[:, None, :] / (share * G)[:, None, None]
    average = np.average(B, axis=0, weights=share)
    own = G.sum() / (G.sum() + _AVERAGE * P)
    average = own * average + (1 - own) * effect * np.eye(P)
    own = G / (G + _AVERAGE * P)
    B = own[:, None, None] * B + (1 - own)[:, None, None] * average
    information = own[:, None, None] * information + (1 - own)[:, None, None] * np.eye(P)

    # 3) a direction in which a site's likelihood is not curved says nothing
    values, vectors = np.linalg.eigh(symmetric(information))
    curved = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)
    V, h = [], []
    for score, slope, noise, part in zip(g, curved, B, share, strict=True):
        factor = linalg.cho_factor(noise)
        weight = slope @ linalg.cho_solve(factor, np.column_stack([slope * part, score]))
        V.append(up.T @ weight[:, :-1] @ up)
        h.append(up.T @ weight[:, -1])
    step = (g - np.outer(share, g.sum(axis=0))) / share[
        :, None
    ]  # all rows leave no score but a ridge's
    return Evidence(
        np.array(V),
        np.array(h),
        step @ down.T,
        down @ (B / share[:, None, None]) @ down.T,
        own,
        G,
        max(effect, 1.0),
    )


def symmetric(matrix: Floats) -> Floats:
    """Return matrices without what rounding made of their symmetry."""
    return 0.5 * (matrix + matrix.swapaxes(-1, -2))


# -- the spread ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _At:
    """The restricted likelihood at some deviations.

    Attributes
    ----------
    value : float
    slope : ndarray of shape (blocks,)
        Derivatives in the squared deviations.
    curvature : ndarray of shape (blocks, blocks)
        The average information there.
    mean : ndarray of shape (P,)
        The sites' mean, less the common model.
    mean_covariance : ndarray of shape (P, P)
    distance : float
        Squared length of the mean, in its standard errors.
    """

    value: float
    slope: Floats
    curvature: Floats
    mean: Floats
    mean_covariance: Floats
    distance: float


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

    def at(self, tau: Floats) -> _At:
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
        value = -logs + 0.5 * (np.sum(z * z) + total @ mean)
        # 3) derivatives in the squared deviations, by block
        rest = u - M @ mean
        n = len(tau)
        trace = np.einsum("mii->i", M) - np.einsum("mij,jk,mki->i", M, covariance, M, optimize=True)
        slope = 0.5 * np.bincount(owner, np.sum(rest * rest, axis=0) - trace, minlength=n)
        parts = np.zeros((n, *rest.shape))
        parts[owner, :, np.arange(len(owner))] = rest.T
        moved = np.einsum("mij,bmj->bmi", M, parts)
        common = moved.sum(axis=1) @ covariance
        moved -= np.einsum("mij,bj->bmi", M, common)
        curvature = 0.5 * np.einsum("ami,bmi->ab", parts, moved)
        return _At(value, slope, curvature, mean, covariance, float(mean @ A @ mean))

    def maximised(self) -> Floats:
        """Return the deviations of the highest value, 0 where it lies at the boundary."""
        tau = np.zeros(len(BLOCKS))
        if not self._free:
            return tau
        ends = optimize.minimize(
            lambda x: self._logarithmic(x, self._free, tau),
            np.full(len(self._free), np.log(_START)),
            jac=True,
            method="L-BFGS-B",
            bounds=[(np.log(_LEAST), np.log(_MOST))] * len(self._free),
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
        limit = top.value - 0.5 * stats.chi2.ppf(_LEVEL, 1)
        for b in self._free:
            others = [j for j in self._free if j != b and best[j] > 0]
            follow = np.zeros(0)
            if others:
                H = top.curvature[np.ix_(others, others)]
                follow = -np.linalg.lstsq(H, top.curvature[others, b], rcond=1e-8)[0]

            def below(
                tau: float, b: int = b, others: list[int] = others, f: Floats = follow
            ) -> float:
                moved = best.copy()
                moved[b] = tau
                change = f * (tau**2 - best[b] ** 2)
                moved[others] = np.sqrt(np.maximum(best[others] ** 2 + change, _NONE**2))
                return self.at(moved).value - limit

            found[b] = (_crossing(below, best[b], -1), _crossing(below, best[b], 1))
        return found


def _crossing(below: Callable[[float], float], start: float, side: int) -> float:
    """Return where a function that is positive at `start` crosses 0 below or above it."""
    if side < 0:
        if start <= _NONE or below(0.0) >= 0:
            return 0.0
        return float(optimize.brentq(below, 0.0, start, xtol=1e-3 * start))
    near, far = start, max(2 * start, 10 * _NONE)
    while below(far) > 0:
        if far > _MOST:
            return np.inf
        near, far = far, 2 * far
    return float(optimize.brentq(below, near, far, xtol=1e-3 * far))


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
    parameters leaves alone. What the noise of a site's scatter adds to its part is taken off.
    """
    M, size = len(found.step), len(block)
    noise = symmetric(found.noise[:, block][:, :, block])
    values, vectors = np.linalg.eigh(noise)
    keep = values > RANK_TOLERANCE * np.max(values, axis=1, initial=0.0, keepdims=True)
    along = np.einsum("mij,mi->mj", vectors, found.step[:, block])
    parts = np.sum(np.where(keep, along**2 / np.where(keep, values, 1.0), 0.0), axis=1)
    ranks = keep.sum(axis=1)
    parts = parts / (1 + found.own**2 * (ranks + 1) / found.n_scores)
    q, df = float(parts.sum()), float(np.mean(ranks) * (M - 1)) if size else 0.0
    return Agreement(
        q,
        df,
        float(stats.chi2.sf(q, df)) if df > 0 else np.nan,
        parts,
        stats.chi2.sf(parts * M / (M - 1), np.maximum(ranks, 1)),
    )
