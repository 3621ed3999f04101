"""How the models of sites differ: their mean and their spread, from one reply of each (maths 18).

A site's reply about a common model (score g, information I, scatter B of its scores) is an estimate
of its own parameters there: g = I b + noise of variance B. The spread of b over sites, one standard
deviation for each block of parameters, maximises the restricted likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from otmoe.arrays.numerics import Floats
from otmoe.inference.parameters import Parameter, parameters
from otmoe.inference.spread import Agreement, Evidence, Reml, agreement, evidence, symmetric
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
        df = max(self.prior.n_sites - 1, 1)
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
    if without:
        raise InvalidInput(Error.NO_SPREAD, sites=", ".join(without))
    if len(replies) < 2:
        raise InvalidInput(Error.ONE_SITE_ALONE)
    replies = sorted(replies, key=lambda reply: reply.site)
    here = pooled.from_user(model)
    stack = evidence(replies, change_of_scale(here, scaling, pooled))
    F, owner = spread_factor(here), blocks_of(here)
    allowed = [BLOCKS.index(name) for name in check_restriction(restrict)]
    scores = np.array([r.scatter.n_scores for r in replies if r.scatter is not None])
    size = np.bincount(owner, minlength=len(BLOCKS))
    able = np.array([np.sum(scores > n) for n in size])
    free = [b for b in allowed if size[b] and able[b] >= LEAST_SITES]
    with threadpool_limits(1):  # matrices are small
        reml = Reml(F.T @ stack.V @ F, stack.h @ F, owner, free)
        tau = reml.maximised()
        intervals = reml.intervals(tau)
        at = reml.at(tau)
        tests = {b: agreement(stack, np.flatnonzero(owner == b)) for b in range(len(size))}
        overall = agreement(stack, np.arange(len(owner)))
    few = [BLOCKS[b] for b in allowed if size[b] and able[b] < LEAST_SITES]
    shrink = max(0.0, 1 - len(owner) / at.distance) if at.distance > 0 else 0.0
    units = _units(here, pooled)
    centre = here.to_vector() + shrink * (F @ at.mean)
    spreads = tuple(
        Spread(BLOCKS[b], tau[b], *intervals[b], *_test(tests[b]), int(size[b]), int(able[b]))
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
        Spread("all", np.nan, np.nan, np.nan, *_test(overall), len(owner), len(replies)),
        _effects(replies, stack, overall, here, prior, units),
        centre / units,
        np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", F, at.mean_covariance, F), 0.0)) / units,
        np.sqrt(np.einsum("ij,ij->i", F, F * tau[owner] ** 2)) / units,
        (Warn.FEW_SITES(blocks=", ".join(few), least=LEAST_SITES),) if few else (),
    )


def _test(found: Agreement) -> tuple[float, float, float]:
    return found.q, found.df, found.p_value


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


def _effects(
    replies: Sequence[SiteInformation],
    stack: Evidence,
    overall: Agreement,
    here: MoE,
    prior: Prior,
    units: Floats,
) -> tuple[SiteEffect, ...]:
    """Return what each site says, before and after shrinkage."""
    theta, centre, L = here.to_vector(), prior.here.to_vector(), prior.factor
    found = []
    for m, reply in enumerate(replies):
        V, h = stack.V[m], stack.h[m]
        values, vectors = np.linalg.eigh(symmetric(V))
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
                float(overall.chance[m]),
            )
        )
    return tuple(found)
