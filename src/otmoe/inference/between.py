"""How the models of sites differ: their mean and their spread, from one reply of each (maths 18).

A site's reply about a common model (score g, information I, scatter B of its scores) is an estimate
of its own parameters there: g = I b + noise of variance B. The spread of b over sites, one standard
deviation for each block of parameters, maximises the restricted likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import linalg, optimize, stats
from threadpoolctl import threadpool_limits

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats
from otmoe.inference.parameters import Parameter, parameters
from otmoe.likelihood.answers import SiteInformation
from otmoe.likelihood.prior import BLOCKS, Prior, blocks_of, check_restriction, spread_factor
from otmoe.likelihood.rounds import change_of_scale
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn

LEAST_SITES = 5
"""Sites below which a spread cannot be estimated, and is taken for none."""

# `python -m benchmarks personal` halves and doubles it.
_AVERAGE = 10.0  # scores for each parameter at which a site's own curvature counts half
_START, _LEAST, _MOST = 0.1, 1e-4, 10.0  # of a deviation: where the search begins, and its bounds
_NONE = 1e-3  # a deviation that counts as none
_LEVEL = 0.90  # of the intervals of deviations


@dataclass(frozen=True)
class Spread:
    """How much a block of parameters differs between sites.

    Attributes
    ----------
    block : str
        One of :data:`otmoe.likelihood.prior.BLOCKS`.
    tau : float
        Standard deviation between sites, on standardised features; of an expert's coefficients, in
        its standard deviations. 0 where sites agree or are too few.
    low, high : float
        Its interval, by the profile of the restricted likelihood.
    q, df, p_value : float
        Cochran's test that sites agree in this block: its statistic, the degrees of freedom and
        the probability of a larger one. NaN where there is no such test.
    n_parameters : int
    n_sites : int
        Sites with more scores than the block has parameters.
    """

    block: str
    tau: float
    low: float
    high: float
    q: float
    df: float
    p_value: float
    n_parameters: int
    n_sites: int

    @property
    def i2(self) -> float:
        """Share of the variation over sites that is not noise, I squared."""
        return max(0.0, 1 - self.df / self.q) if self.q > 0 else 0.0


@dataclass(frozen=True)
class SiteEffect:
    """A site among the others.

    Attributes
    ----------
    site : str
    n_samples : float
    estimate, error : ndarray of shape (P,)
        What its reply alone says, and its standard errors; infinite where it says nothing.
    shrunk, shrunk_error : ndarray of shape (P,)
        The same after shrinkage to the mean: the server's version of its personal model.
    q, p_value : float
        Its part of Cochran's Q over all parameters, and how often chance makes it larger.
    """

    site: str
    n_samples: float
    estimate: Floats = field(repr=False)
    error: Floats = field(repr=False)
    shrunk: Floats = field(repr=False)
    shrunk_error: Floats = field(repr=False)
    q: float
    p_value: float


@dataclass(frozen=True)
class Between:
    """How sites differ.

    Numbers of :class:`SiteEffect`, `mean`, `mean_error` and `deviation` belong to `parameters`.
    Slopes are those of the features as they are, intercepts those at the average of the features,
    and of a variance it is the logarithm.

    Attributes
    ----------
    prior : Prior
        Mean and spread, as the next site needs them.
    common : MoE
        The model the sites have replied about, on the user's scale.
    spreads : tuple of Spread
        One for every block that the model has.
    overall : Spread
        The test over all parameters; it has no deviation.
    sites : tuple of SiteEffect
    mean, mean_error : ndarray of shape (P,)
    deviation : ndarray of shape (P,)
        Standard deviation between sites.
    warnings : tuple of Notice
    """

    prior: Prior
    common: MoE = field(repr=False)
    spreads: tuple[Spread, ...]
    overall: Spread
    sites: tuple[SiteEffect, ...] = field(repr=False)
    mean: Floats = field(repr=False)
    mean_error: Floats = field(repr=False)
    deviation: Floats = field(repr=False)
    warnings: tuple[Notice, ...] = ()

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the numbers are about."""
        return parameters(self.common)

    def prediction_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return where the parameters of one more site lie, (P,) each."""
        df = max(len(self.sites) - 1, 1)
        wide = stats.t.ppf(0.5 + level / 2, df) * np.hypot(self.deviation, self.mean_error)
        return self.mean - wide, self.mean + wide

    def model_of(self, site: str) -> MoE:
        """Return the server's version of a site's personal model, on the user's scale."""
        names = [effect.site for effect in self.sites]
        if site not in names:
            raise InvalidInput(Error.SITE_UNKNOWN, site=site, sites=names)
        here = self.prior.scaling.from_user(self.common)
        vector = self.sites[names.index(site)].shrunk * _units(here, self.prior.scaling)
        return self.prior.scaling.to_user(here.with_vector(vector))


def between_sites(
    model: MoE,
    scaling: Scaling,
    pooled: Scaling,
    replies: Sequence[SiteInformation],
    *,
    restrict: str = "auto",
) -> Between:
    """Return how sites differ, from what each replies about one model.

    Parameters
    ----------
    model : MoE
        On the user's scale; close to the maximum of all rows.
    scaling : Scaling
        Of the parameters in which sites reply.
    pooled : Scaling
        Standardisation of the features over all sites.
    replies : sequence of SiteInformation
        With the scatter of the scores.
    restrict : {"auto", "gate", "intercepts"}
        What may differ.
    """
    without = [reply.site for reply in replies if reply.scatter is None]
    if without or len(replies) < 2:
        raise InvalidInput(Error.NO_SPREAD, sites=", ".join(without) or "one site alone")
    replies = sorted(replies, key=lambda reply: reply.site)
    here = pooled.from_user(model)
    stack = _evidence(replies, change_of_scale(here, scaling, pooled))
    F, owner = spread_factor(here), blocks_of(here)
    allowed = [BLOCKS.index(name) for name in check_restriction(restrict)]
    scores = np.array([r.scatter.n_scores for r in replies if r.scatter is not None])
    size = np.bincount(owner, minlength=len(BLOCKS))
    able = np.array([np.sum(scores > n) for n in size])
    free = [b for b in allowed if size[b] and able[b] >= LEAST_SITES]
    with threadpool_limits(1):  # matrices are small
        reml = _Reml(F.T @ stack.V @ F, stack.h @ F, owner, free)
        tau = reml.maximised()
        intervals = reml.intervals(tau)
        at = reml.at(tau)
        tests = {b: _agreement(stack, np.flatnonzero(owner == b)) for b in range(len(size))}
        overall = _agreement(stack, np.arange(len(owner)))
    few = [BLOCKS[b] for b in allowed if size[b] and able[b] < LEAST_SITES]
    shrink = max(0.0, 1 - len(owner) / at.distance) if at.distance > 0 else 0.0
    units = _units(here, pooled)
    centre = here.to_vector() + shrink * (F @ at.mean)
    spreads = tuple(
        Spread(BLOCKS[b], tau[b], *intervals[b], *tests[b].test, int(size[b]), int(able[b]))
        for b in range(len(size))
        if size[b]
    )
    prior = Prior(
        pooled.to_user(here.with_vector(centre)),
        pooled,
        {BLOCKS[b]: float(tau[b]) for b in range(len(size))},
        stack.design_effect,
        float(sum(reply.n_samples for reply in replies)),
        len(replies),
    )
    return Between(
        prior,
        model,
        spreads,
        Spread("all", np.nan, np.nan, np.nan, *overall.test, len(owner), len(replies)),
        _effects(replies, stack, overall, here, prior, units),
        centre / units,
        np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", F, at.mean_covariance, F), 0.0)) / units,
        np.sqrt(np.einsum("ij,ij->i", F, F * tau[owner] ** 2)) / units,
        (Warn.FEW_SITES(blocks=", ".join(few), least=LEAST_SITES),) if few else (),
    )


# -- what a reply says about the parameters ------------------------------------------------------


@dataclass(frozen=True)
class _Evidence:
    """Estimates of all sites, on features standardised over all of them.

    V^-1 h estimates b, and V^-1 is its variance.

    Attributes
    ----------
    V : ndarray of shape (M, P, P)
        I B^-1 I.
    h : ndarray of shape (M, P)
        I B^-1 g.
    q : ndarray of shape (M,)
        g' B^-1 g.
    inflation : ndarray of shape (M,)
        Expectation of q over its degrees of freedom, as far as the noise of B makes it.
    design_effect : float
    """

    V: Floats
    h: Floats
    q: Floats
    inflation: Floats
    design_effect: float


def _evidence(replies: Sequence[SiteInformation], L: Floats) -> _Evidence:
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
    values, vectors = np.linalg.eigh(_symmetric(information.sum(axis=0)))
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
    values, vectors = np.linalg.eigh(_symmetric(information))
    curved = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)
    V, h, q = [], [], []
    for score, slope, noise, part in zip(g, curved, B, share, strict=True):
        factor = linalg.cho_factor(noise)
        weight = slope @ linalg.cho_solve(factor, np.column_stack([slope * part, score]))
        V.append(up.T @ weight[:, :-1] @ up)
        h.append(up.T @ weight[:, -1])
        q.append(score @ linalg.cho_solve(factor, score) / part)
    return _Evidence(
        np.array(V), np.array(h), np.array(q), 1 + own**2 * P / G, max(effect, 1.0)
    )


def _symmetric(matrix: Floats) -> Floats:
    return 0.5 * (matrix + matrix.swapaxes(-1, -2))


def _units(here: MoE, scaling: Scaling) -> Floats:
    """Return what a number on the user's scale is multiplied with on standardised features, (P,).

    Intercepts stay those at the average of the features.
    """
    if scaling.x_scale is None:
        return np.ones(here.n_parameters)
    scale = np.append(1.0, scaling.x_scale)
    columns = slice(None) if here.gate.columns is None else list(here.gate.columns)
    return np.concatenate(
        [
            np.tile(scale[columns], here.n_experts - 1),
            np.tile(scale, here.n_experts * here.experts.n_linear),
            np.ones(here.n_experts * here.experts.n_constant),
        ]
    )


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


class _Reml:
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

            def below(tau: float, b: int = b, others: list[int] = others, f: Floats = follow) -> float:
                moved = best.copy()
                moved[b] = tau
                change = f * (tau**2 - best[b] ** 2)
                moved[others] = np.sqrt(np.maximum(best[others] ** 2 + change, _NONE**2))
                return self.at(moved).value - limit

            found[b] = (_crossing(below, best[b], -1), _crossing(below, best[b], 1))
        return found


def _crossing(below: object, start: float, side: int) -> float:
    """Return where a function that is positive at `start` crosses 0 below or above it."""
    assert callable(below)
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
class _Agreement:
    """Cochran's test: statistic, degrees of freedom, p; and the sites' parts of the statistic."""

    test: tuple[float, float, float]
    parts: Floats
    ranks: Floats


def _agreement(stack: _Evidence, block: Floats) -> _Agreement:
    """Test that sites agree in some of the parameters, whatever the others are."""
    if not len(block):
        return _Agreement((np.nan, 0.0, np.nan), np.zeros(0), np.zeros(0))
    rest = np.setdiff1d(np.arange(stack.V.shape[1]), block)
    V = stack.V[:, block][:, :, block]
    h = stack.h[:, block]
    if len(rest):  # the Schur complement
        inverse = np.linalg.pinv(stack.V[:, rest][:, :, rest], rcond=1e-10, hermitian=True)
        cross = stack.V[:, block][:, :, rest] @ inverse
        V = V - cross @ stack.V[:, rest][:, :, block]
        h = h - np.einsum("mij,mj->mi", cross, stack.h[:, rest])
    values, vectors = np.linalg.eigh(_symmetric(V))
    top = values[:, -1:]
    keep = values > 1e-10 * np.maximum(top, 0.0)
    mean = np.linalg.pinv(V.sum(axis=0), rcond=1e-10, hermitian=True) @ h.sum(axis=0)
    residual = h - V @ mean
    along = np.einsum("mij,mi->mj", vectors, residual)
    parts = np.sum(np.where(keep, along**2 / np.where(keep, values, 1.0), 0.0), axis=1)
    parts = parts / stack.inflation
    ranks = keep.sum(axis=1).astype(float)
    q, df = float(parts.sum()), float(ranks.sum() - np.linalg.matrix_rank(V.sum(axis=0), hermitian=True))
    p = float(stats.chi2.sf(q, df)) if df > 0 else np.nan
    return _Agreement((q, df, p), parts, ranks)


def _effects(
    replies: Sequence[SiteInformation],
    stack: _Evidence,
    overall: _Agreement,
    here: MoE,
    prior: Prior,
    units: Floats,
) -> tuple[SiteEffect, ...]:
    """Return what each site says, before and after shrinkage."""
    theta, centre, L = here.to_vector(), prior.here.to_vector(), prior.factor
    chance = stats.chi2.sf(overall.parts, np.maximum(overall.ranks, 1.0))
    found = []
    for m, reply in enumerate(replies):
        V, h = stack.V[m], stack.h[m]
        values, vectors = np.linalg.eigh(_symmetric(V))
        known = values > 1e-10 * max(values[-1], 0.0)
        spread = vectors[:, known] / np.sqrt(values[known])
        # a coordinate with a part in what the site says nothing about has no estimate
        blind = np.sum(vectors[:, ~known] ** 2, axis=1) > 1e-8
        alone = spread @ (spread.T @ h)
        error = np.where(blind, np.inf, np.sqrt(np.sum(spread**2, axis=1)))
        inner = np.eye(L.shape[1]) + L.T @ V @ L
        moved = L @ np.linalg.solve(inner, L.T @ (h - V @ (centre - theta)))
        after = np.sqrt(np.einsum("ij,ij->i", L, np.linalg.solve(inner, L.T).T))
        found.append(
            SiteEffect(
                reply.site,
                reply.n_samples,
                (theta + alone) / units,
                error / units,
                (centre + moved) / units,
                after / units,
                float(overall.parts[m]),
                float(chance[m]),
            )
        )
    return tuple(found)
