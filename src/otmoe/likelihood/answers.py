"""Refine rounds: what a site answers, its log-likelihood, score and information (maths 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, block_sum, to_numpy
from otmoe.likelihood.grouped import Growth, Scatter, group_scores, score_scatter
from otmoe.likelihood.information import Information, observed_information
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.likelihood.sharing import rows_for
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


def digest(model: MoE, scaling: Scaling) -> str:
    """Return a hash of a question, by which answers to another one are told.

    It is that of the parameters on the user's scale and of the standardisation, bit by bit.
    """
    experts = (getattr(model.experts, part.name) for part in fields(model.experts))
    arrays = (model.gate.coef, *experts, scaling.x_center, scaling.x_scale)
    text = b"".join(np.asarray(a, "<f8").tobytes() for a in arrays if a is not None)
    return sha256(text).hexdigest()[:16]


@dataclass(frozen=True)
class FeatureMoments:
    """Moments of a site's features.

    Attributes
    ----------
    mean, var : ndarray of shape (d,)
    """

    mean: Floats
    var: Floats


SCORE_STEP = 0.5
"""Step of a rounded score, in digits: so that of a hundred coefficients none is likely to move by
more than the digits (`python -m benchmarks questions`)."""


def noise_of(digits: float) -> float:
    """Return the variance of the rounding of a sum over rows, over that of the sum."""
    return (SCORE_STEP * digits) ** 2 / 12


@dataclass(frozen=True)
class Rounding:
    """How coarse an answer is.

    Attributes
    ----------
    digits : float
        Step of a coefficient, in its standard errors at the site.
    log_likelihood : float
        Step of the log-likelihood, in nats.
    """

    digits: float
    log_likelihood: float


@dataclass(frozen=True)
class SiteInformation:
    """What a site says about a model.

    Attributes
    ----------
    site : str
    information : Information
        On the scale of the question, base measure included in the log-likelihood.
    n_samples : float
        Sum of the weights.
    moments : FeatureMoments, optional
        Of the site's features; they do not change, so that one round is enough.
    scatter : Scatter, optional
        Of the scores, on the scale of the question: what the sandwich needs beside the information.
    rounding : Rounding, optional
        If it was rounded before it left the site.
    parts : dict of float, optional
        Where it is about several sites at once: the log-likelihood of each, by name.
    growth : Growth, optional
        How the scatter grows if successive groups count as one. It does not travel in documents.
    """

    site: str
    information: Information = field(repr=False)
    n_samples: float
    moments: FeatureMoments | None = field(default=None, repr=False)
    scatter: Scatter | None = field(default=None, repr=False)
    rounding: Rounding | None = field(default=None, repr=False)
    parts: Mapping[str, float] | None = field(default=None, repr=False)
    growth: Growth | None = field(default=None, repr=False)

    @property
    def log_likelihoods(self) -> Mapping[str, float]:
        """The log-likelihood of every site that it is about, by name."""
        return self.parts or {self.site: self.information.log_likelihood}


@dataclass(frozen=True)
class LastReply:
    """What the server keeps of a site's reply about the best model, to check the next one.

    Attributes
    ----------
    squares : ndarray of shape (d,), optional
        Mean squares of its features, on the scale of the questions.
    score : ndarray of shape (P,)
    turn : ndarray of shape (P,), optional
        Its information times the step to the model that is asked about next.
    """

    squares: Floats | None = field(repr=False)
    score: Floats = field(repr=False)
    turn: Floats | None = field(default=None, repr=False)


def site_information(
    site: str,
    model: MoE,
    scaling: Scaling,
    rows: Rows,
    *,
    moments: bool = True,
    scatter: bool = False,
    groups: Any = None,
) -> SiteInformation:
    """Return what a site says about a model, in one pass over its rows, two with a scatter.

    Parameters
    ----------
    site : str
    model : MoE
        On the user's scale.
    scaling : Scaling
        Of the parameters in which score and information are expressed.
    rows : Rows
        On the user's scale.
    moments : bool
        Whether to add the moments of the features.
    scatter : bool
        Whether to add the scatter of the scores.
    groups : array-like of shape (n,), optional
        For the scatter and its growth, as in :func:`otmoe.likelihood.grouped.group_scores`; and for
        the likelihood, where rows of a group share their expert.
    """
    rows = rows_for(model, rows, groups)
    groups = None if rows.groups is not None else groups
    there, here = replace(rows, scaling=scaling), scaling.from_user(model)
    found = observed_information(here, there)
    base = there.log_base(model.experts)
    scores = group_scores(here, there, groups) if scatter and groups is not None else None
    by_row = score_scatter(here, there) if scatter and scores is None else None
    return SiteInformation(
        site,
        replace(found, log_likelihood=found.log_likelihood + base),
        rows.total_weight,
        _moments(rows) if moments else None,
        by_row if scores is None else scores.scatter,
        growth=None if scores is None else scores.growth(groups),
    )


def site_log_likelihood(model: MoE, scaling: Scaling, rows: Rows) -> float:
    """Return the log-likelihood alone, base measure included, in a quarter of a pass.

    Parameters
    ----------
    model : MoE
        On the user's scale.
    scaling : Scaling
    rows : Rows
        On the user's scale.
    """
    there = replace(rows_for(model, rows), scaling=scaling)
    found = observed_information(scaling.from_user(model), there, matrix=False)
    return found.log_likelihood + there.log_base(model.experts)


def joint_information(
    parts: Mapping[str, Rows],
    model: MoE,
    scaling: Scaling,
    *,
    moments: bool = True,
    matrix: bool = True,
) -> SiteInformation:
    """Return what several sites of few rows say about a model, in one pass over all of them.

    The work on a block of rows has a fixed part, which many small sites would each do anew.

    Parameters
    ----------
    parts : dict of Rows
        The rows of each site, by name: NumPy arrays, on the user's scale.
    model, scaling, moments
        As in :func:`site_information`.
    matrix : bool
        Whether information is asked for; without it, log-likelihoods take a quarter of the time.
    """
    parts = {name: rows_for(model, rows) for name, rows in parts.items()}
    rows, names = Rows.joined(list(parts.values())), list(parts)
    densities = np.empty(len(rows))
    there = replace(rows, scaling=scaling)
    here = scaling.from_user(model)
    found = observed_information(here, there, matrix=matrix, densities=densities)
    ends = np.cumsum([len(part) for part in parts.values()])
    sums = np.add.reduceat(densities, np.append(0, ends[:-1]))
    base = [replace(part, scaling=scaling).log_base(model.experts) for part in parts.values()]
    values = {name: float(v + b) for name, v, b in zip(names, sums, base, strict=True)}
    return SiteInformation(
        names[0],
        replace(found, log_likelihood=sum(values.values())),
        rows.total_weight,
        _moments(rows) if moments else None,
        parts=values,
    )


def _moments(rows: Rows) -> FeatureMoments:
    """Return weighted mean and variance of the features."""
    slices = list(rows.slices())
    shift = to_numpy(rows.X[:1, :])[0].astype(np.float64)

    def sums(some: slice) -> Floats:
        X = to_numpy(rows.X[some, :]) - shift
        if rows.weight is None:
            return np.stack([X.sum(axis=0), np.einsum("nd,nd->d", X, X)])
        weight = to_numpy(rows.weight[some])
        return np.stack([weight @ X, np.einsum("n,nd,nd->d", weight, X, X)])

    first, second = block_sum(sums, iter(slices), rows.pool) / rows.total_weight
    return FeatureMoments(shift + first, np.maximum(second - first**2, 0.0))


def pooled_scaling(answers: Sequence[SiteInformation]) -> Scaling:
    """Return the standardisation of the rows of all sites that sent their moments."""
    known = [(a.n_samples, a.moments) for a in answers if a.moments is not None]
    if not known:
        raise InvalidInput(Error.NO_MOMENTS)
    n = np.array([rows for rows, _ in known])
    means = np.array([moments.mean for _, moments in known])
    mean = np.average(means, axis=0, weights=n)
    within = np.average([moments.var for _, moments in known], axis=0, weights=n)
    between = np.average((means - mean) ** 2, axis=0, weights=n)
    sd = np.sqrt(within + between)
    return Scaling(mean, np.where(sd > 1e-10 * np.abs(mean), sd, 1.0))
