"""How the models of sites differ: their mean and their spread, from one reply of each (maths 18).

A site's reply about a common model (score g, information I, scatter B of its scores) is an estimate
of its own parameters there: g = I b + noise of variance B. The spread of b over sites, one standard
deviation for each block of parameters, maximises the restricted likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from otmoe.arrays.numerics import Floats
from otmoe.inference.effects import Coefficient, SiteEffect, Spread, positions
from otmoe.inference.estimates import quantile
from otmoe.inference.new_site import deviations, mixture_quantile, new_strength, units
from otmoe.inference.parameters import Parameter, parameters
from otmoe.inference.readout import Readout, frame, readout, site_rows
from otmoe.inference.spread import (
    MOST,
    Agreement,
    At,
    Evidence,
    Reml,
    agreement,
    evidence,
    symmetric,
)
from otmoe.likelihood.answers import SiteInformation
from otmoe.likelihood.predictors import change_of_scale
from otmoe.likelihood.prior import BLOCKS, Prior, blocks_of, check_restriction, spread_factor
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LEAST_SITES", "Between", "SiteEffect", "Spread", "between_sites"]

LEAST_SITES = 5
"""Sites below which a spread cannot be estimated, and is taken for none."""

_TURNS = 2  # of deviations and mean, each given the other
_ENDS = "low", "high"  # of the interval of a deviation


@dataclass(frozen=True, repr=False)
class Between:
    """How sites differ.

    Numbers of :class:`SiteEffect`, `mean`, `mean_error` and `deviation` belong to `parameters`.
    Slopes are per unit of the features, intercepts are at the average of the features, and
    variances are on the log scale.

    Attributes
    ----------
    prior : Prior
        Mean and spread, as needed by a new site.
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
    strength : float
        Factor of the deviations with which personal models predict best, if sites have compared
        them; 0 if personal models do not help.
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
    strength: float = 1.0

    def __repr__(self) -> str:
        tau = ", ".join(f"{s.block} {s.tau:.3g}" for s in self.spreads)
        return f"Between({self.prior.n_sites} sites; tau: {tau}; strength {self.strength:g})"

    @property
    def personal_prior(self) -> Prior:
        """The prior of personal models: around the mean over sites, or the common model."""
        return self.prior.at_strength(self.strength, self.common)

    def prior_of_new(self, n_samples: float) -> Prior:
        """Return the prior of a site that has not taken part, with so many rows (maths 18)."""
        rows, P = n_samples / self.prior.design_effect, self.common.n_parameters
        return self.prior.at_strength(new_strength(self.strength, rows, P), self.common)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the numbers are about."""
        return parameters(self.common)

    def prediction_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the prediction interval of the parameters of a new site, (P,) each.

        The deviations are not known either: the interval is that of a mixture over the estimates
        and the ends of their intervals.
        """
        quantile(level)  # refuses an invalid level
        ends = [self._deviation_at([getattr(s, end) for s in self.spreads]) for end in _ENDS]
        scale = np.hypot([ends[0], self.deviation, ends[1]], self.mean_error)
        wide = mixture_quantile(0.5 + level / 2, scale, max(self.prior.n_sites - 1, 1))
        return self.mean - wide, self.mean + wide

    def _deviation_at(self, tau: Sequence[float]) -> Floats:
        """Return the deviations of the parameters for those of the blocks in `spreads`, (P,)."""
        found = {s.block: min(each, MOST) for s, each in zip(self.spreads, tau, strict=True)}
        here = self.prior.here
        by_block = np.array([found.get(name, 0.0) for name in BLOCKS])[blocks_of(here)]
        return deviations(spread_factor(here), by_block) / units(here, self.prior.scaling)

    def coefficients(self, level: float = 0.95) -> tuple[Coefficient, ...]:
        """Return every parameter with its mean over sites, its deviation and a prediction interval.

        Parameters
        ----------
        level : float in (0, 1)
            Of the prediction intervals.
        """
        numbers = self.mean, self.mean_error, self.deviation, *self.prediction_interval(level)
        return tuple(
            Coefficient(about.block, about.expert, about.against, about.label, about.term, *row)
            for about, row in zip(self.parameters, np.transpose(numbers).tolist(), strict=True)
        )

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """Return :meth:`coefficients` as a data frame, a row for each. Needs pandas.

        Parameters
        ----------
        level : float in (0, 1)
        """
        return frame([asdict(row) for row in self.coefficients(level)])

    def block_table(self) -> pd.DataFrame:
        """Return the blocks as a data frame, all parameters together last. Needs pandas."""
        return frame([asdict(row) | {"i2": row.i2} for row in (*self.spreads, self.overall)])

    def site_table(
        self,
        term: str | int | None = None,
        *,
        expert: int | None = None,
        block: str | None = None,
        label: object = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Return a row for each site and parameter, before and after shrinkage. Needs pandas.

        Parameters
        ----------
        term : str or int, optional
            A feature, "intercept" or "variance", or a position in `parameters`; by default all.
        expert : int, optional
        block : {"expert", "gate", "variance"}, optional
        label : object, optional
            A class.
        level : float in (0, 1)
            Of the intervals.
        """
        where = positions(self.parameters, term, expert=expert, block=block, label=label)
        return frame(site_rows(self.sites, self.parameters, where, level))

    def summary(self, level: float = 0.95, n_sites: int = 5) -> Readout:
        """Return a summary as text, which notebooks render as tables.

        Blocks with their standard deviations and tests, then every coefficient with its mean over
        sites, then the sites with the largest parts of Q.

        Parameters
        ----------
        level : float in (0, 1)
            Of the prediction intervals for a new site.
        n_sites : int
            Sites that are named.
        """
        parts = self.spreads, self.overall, self.coefficients(level), self.sites, self.warnings
        return readout(self.common, self.prior, *parts, level, n_sites)

    def _repr_html_(self) -> str:
        return self.summary().html

    def model_of(self, site: str) -> MoE:
        """Return the server's version of a site's personal model, on the user's scale."""
        names = [effect.site for effect in self.sites]
        if site not in names:
            raise InvalidInput(Error.SITE_UNKNOWN, site=site, sites=names)
        here = self.prior.scaling.from_user(self.common)
        vector = self.sites[names.index(site)].shrunk * units(here, self.prior.scaling)
        return self.prior.scaling.to_user(here.with_vector(vector))


def between_sites(
    model: MoE,
    scaling: Scaling,
    pooled: Scaling,
    replies: Sequence[SiteInformation],
    *,
    restrict: str = "auto",
) -> Between:
    """Return how sites differ, from their replies about one model.

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
    if model.structure is not None:
        raise InvalidInput(Error.PERSONAL_STRUCTURE)
    if model.expert_per == "group":
        raise InvalidInput(Error.PERSONAL_SHARED)
    without = [reply.site for reply in replies if reply.scatter is None]
    if without:
        raise InvalidInput(Error.NO_SPREAD, sites=", ".join(without))
    if len(replies) < 2:
        raise InvalidInput(Error.ONE_SITE_ALONE)
    replies = sorted(replies, key=lambda reply: reply.site)
    here = pooled.from_user(model)
    stack = evidence(here, replies, change_of_scale(here, scaling, pooled))
    owner = blocks_of(here)
    allowed = [BLOCKS.index(name) for name in check_restriction(restrict)]
    scores = np.array([r.scatter.n_scores for r in replies if r.scatter is not None])
    size = np.bincount(owner, minlength=len(BLOCKS))
    able = np.array([np.sum(scores > n) for n in size])
    free = [b for b in allowed if size[b] and able[b] >= LEAST_SITES]
    centre, tau = here, np.zeros(len(BLOCKS))
    with threadpool_limits(1):  # matrices are small
        # deviations are counted in those of the mean's experts, and the mean depends on them
        for _ in range(_TURNS):
            F = spread_factor(centre)
            reml = Reml(F.T @ stack.V @ F, stack.h @ F, owner, free)
            tau = reml.maximised(tau if np.any(tau > 0) else None)
            at = reml.at(tau, slopes=False)
            centre = here.with_vector(here.to_vector() + _kept(at, tau, len(owner)) * (F @ at.mean))
        intervals = reml.intervals(tau)
        tests = {b: agreement(stack, np.flatnonzero(owner == b)) for b in range(len(size))}
        overall = agreement(stack, np.arange(len(owner)))
    few = [BLOCKS[b] for b in allowed if size[b] and able[b] < LEAST_SITES]
    unit, about_mean = units(here, pooled), F @ at.mean_covariance @ F.T
    spreads = tuple(
        Spread(
            BLOCKS[b], float(tau[b]), *intervals[b], *_test(tests[b]), int(size[b]), int(able[b])
        )
        for b in range(len(size))
        if size[b]
    )
    prior = Prior(
        pooled.to_user(centre),
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
        _effects(replies, stack, overall, here, prior, unit, about_mean),
        centre.to_vector() / unit,
        np.sqrt(np.maximum(np.diag(about_mean), 0.0)) / unit,
        deviations(F, tau[owner]) / unit,
        (Warn.FEW_SITES(blocks=", ".join(few), least=LEAST_SITES),) if few else (),
    )


def _kept(at: At, tau: Floats, size: int) -> float:
    """Return the part of the mean's way from the common model that is not noise (maths 18).

    Where no site differs, the mean is the common model.
    """
    known = np.any(tau > 0) and at.distance > 0
    return max(0.0, 1 - size / at.distance) if known else 0.0


def _test(found: Agreement) -> tuple[float, float, float]:
    return found.q, found.df, found.p_value


def _effects(
    replies: Sequence[SiteInformation],
    stack: Evidence,
    overall: Agreement,
    here: MoE,
    prior: Prior,
    unit: Floats,
    about_mean: Floats,
) -> tuple[SiteEffect, ...]:
    """Return what each site says, before and after shrinkage.

    What is left after shrinkage is the error given the mean, and what the mean's own error,
    `about_mean` (P, P), adds (Henderson).
    """
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
        given = L @ np.linalg.solve(inner, L.T)
        keep = np.eye(len(V)) - given @ V
        after = np.sqrt(np.maximum(np.diag(given + keep @ about_mean @ keep.T), 0.0))
        found.append(
            SiteEffect(
                reply.site,
                reply.n_samples,
                (theta + alone) / unit,
                error / unit,
                (centre + moved) / unit,
                after / unit,
                float(overall.parts[m]),
                float(overall.chance[m]),
            )
        )
    return tuple(found)
