"""Whether what a site says about itself fits together, and fits the other sites (maths 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otmoe.aggregation.problem import Problem
from otmoe.arrays.numerics import Floats, design
from otmoe.documents.message import LocalModel
from otmoe.likelihood.grams import Grams
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice
from otmoe.text.sentences import Finding

# Tried by `python -m benchmarks attacks`, on sites to which nothing happened (maths 12), and halved
# and doubled by `python -m benchmarks constants`.
FAR = 20.0
"""Distance of covariates from the centre, in those of the median site, that is too far."""

_GRAMS = 400.0  # times the median site's ratio of Grams to what its own model expects
_LEAST_SITES = 3
_DEVIATIONS = 5.0  # of the log-likelihood from what the site's own model expects
_LEAST_GAP_SPREAD = 0.15  # nats per row by which honest sites may well differ in that
_DRAWS = 400  # of y that say what a model expects
_MANY = 5  # times the usual number of experts that is too many
_MANY_AT_LEAST = 10  # experts that are never flagged
_SAME = 1e-6  # relative distance of parameters at which models count as copies


# -- near-copies -------------------------------------------------------------------------------


def near_copies(messages: Sequence[LocalModel]) -> Floats:
    """Return the group of each message, (U,): the same number where models agree to six digits.

    Rows of their own would lead two sites to the same six digits only if there were 10^12 of them.

    Parameters
    ----------
    messages : sequence of U LocalModel
    """
    group = np.arange(len(messages))
    vectors = [_canonical(message) for message in messages]
    length = np.array([np.linalg.norm(vector) for vector in vectors])
    order = np.argsort(length, kind="stable")
    for i, u in enumerate(order):
        for v in order[i + 1 :]:
            if length[v] > length[u] * (1 + _SAME) + 1e-300:
                break
            a, b = vectors[u], vectors[v]
            if len(a) == len(b) and np.linalg.norm(a - b) <= _SAME * length[u]:
                group[group == group[v]] = group[u]
    return np.unique(group, return_inverse=True)[1]


def _canonical(message: LocalModel) -> Floats:
    """Return the parameters of a model, whatever the order of its experts."""
    model = message.model
    K = model.n_experts
    coef = model.experts.coef.reshape(K, -1)
    parts = [model.gate.centred, coef, model.experts.log_dispersions]
    order = np.argsort(coef[:, 0], kind="stable")
    return np.hstack(parts)[order].ravel()


# -- covariates --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Where the covariates of most sites lie.

    Attributes
    ----------
    center, unit : ndarray of shape (d,)
        Medians over the sites of the means, and of the root mean squares about these; infinite
        where nothing varies.
    """

    center: Floats
    unit: Floats

    def is_near(self, X: Floats) -> Floats:
        """Say of each row (n, d) whether it is less than :data:`FAR` units away, (n,).

        Curves and products, which stand behind the columns, follow these.
        """
        gap = np.abs(X[:, : len(self.center)] - self.center)
        return np.asarray(np.all(gap <= FAR * self.unit, axis=1))


def covariate_distances(problem: Problem) -> tuple[Floats, Floats, Spread | None]:
    """Return how far the covariates of each distinct model are from those of the others.

    Of each feature the root mean square about the median of the sites' means is divided by the
    lower median of the same over the other sites at which the feature varies.

    Returns
    -------
    distance : ndarray of shape (U,)
        The largest ratio of all features; NaN where nothing is known.
    feature : ndarray of int of shape (U,)
        The feature.
    spread : Spread or None
        None where the covariates of fewer than three models are known.
    """
    n_models = len(problem.models)
    distance, feature = np.full(n_models, np.nan), np.zeros(n_models, int)
    known = [
        [part for sampler, _ in of_site for part in sampler.moments()]
        for of_site in problem.samplers
    ]
    told = [u for u, parts in enumerate(known) if parts]
    if len(told) < _LEAST_SITES:
        return distance, feature, None
    first = np.array([known[u][0][0] for u in told])
    center = np.array(
        [np.median(c[~np.isnan(c)]) if np.any(~np.isnan(c)) else 0.0 for c in first.T]
    )
    with np.errstate(over="ignore"):
        parts = [[np.sqrt(var + (mean - center) ** 2) for mean, var in known[u]] for u in told]
    rms = np.array([np.max(np.nan_to_num(part), axis=0) for part in parts])
    size = np.where(rms > 0, rms, np.nan)
    for i, u in enumerate(told):
        unit = _lower_median(np.delete(size, i, axis=0))
        with np.errstate(invalid="ignore"):
            ratio = np.where(np.isnan(unit), 0.0, rms[i] / unit)
        feature[u] = int(np.argmax(ratio))
        distance[u] = float(ratio[feature[u]])
    varies = np.sum(~np.isnan(size), axis=0)
    unit = np.where(varies >= _LEAST_SITES, _lower_median(size), np.inf)
    return distance, feature, Spread(center, np.where(np.isnan(unit), np.inf, unit))


def _lower_median(a: Floats) -> Floats:
    """Return the lower median of the numbers in each column, NaN where there are none."""
    last = np.maximum(np.sum(~np.isnan(a), axis=0) - 1, 0) // 2
    return np.asarray(np.sort(a, axis=0)[last, np.arange(a.shape[1])])


def far_covariates(problem: Problem, distance: Floats, feature: Floats) -> list[Notice | None]:
    """Return the reproach to each distinct model whose covariates are too far away."""
    terms = problem.models[0].terms
    return [
        Finding.COVARIATES_FAR(distance=distance[u], feature=terms[feature[u] + 1])
        if distance[u] > FAR
        else None
        for u in range(len(distance))
    ]


def compared_points(
    problem: Problem, n_points: int, spread: Spread | None
) -> tuple[Floats, list[Floats], list[Floats]]:
    """Return points at which models are compared, and those of each distinct model.

    Where the covariates of every site are known, each brings as many, whatever it claims to weigh,
    and those far from where most sites have theirs are left out: one site alone does not decide on
    where the others are compared. The third is what is left of each site's; empty if not all are
    known.
    """
    rng = np.random.default_rng(0)
    common = np.asarray(problem.sources.few(n_points, rng).X, np.float64)
    silent = [all(sampler.is_empty for sampler, _ in of_site) for of_site in problem.samplers]
    if spread is None or any(silent):
        gate = problem.ensemble.gate
        here = np.broadcast_to(gate.site_prob(design(common)) > 0, (len(common), len(silent)))
        return common, [common[here[:, u]] for u in range(len(silent))], []
    each = max(n_points // len(silent), 1)
    own = []
    for of_site in problem.samplers:
        heard = [sampler for sampler, _ in of_site if not sampler.is_empty]
        size = max(each // len(heard), 1)
        own.append(np.concatenate([sampler.drawn(size, 0, rng)[0] for sampler in heard]))
    near = [X[spread.is_near(X)] for X in own]
    return np.concatenate(near if any(map(len, near)) else own), own, near


# -- log-likelihoods ---------------------------------------------------------------------------


def unlike_models(
    models: Sequence[MoE], mean: Floats, n_samples: Floats, points: Sequence[Floats]
) -> list[Notice | None]:
    """Return the reproach to each distinct model whose site claims an unlikely log-likelihood.

    The mean log-likelihood of a site's rows is compared with what the site's own model expects at
    covariates of the site, and the difference with that of the other sites: where all models are a
    little wrong, it is not zero.

    Parameters
    ----------
    models : sequence of U MoE
    mean, n_samples : ndarray of shape (U,)
        Claimed log-likelihood per row, and rows.
    points : sequence of U ndarray of shape (n, d)
        Covariates of each.
    """
    n_models = len(models)
    none: list[Notice | None] = [None] * n_models
    if n_models < _LEAST_SITES:
        return none
    expected, error = np.full(n_models, np.nan), np.full(n_models, np.nan)
    for u, (model, X) in enumerate(zip(models, points, strict=True)):
        if len(X):
            X = np.resize(X, (max(_DRAWS // len(X), 1) * len(X), X.shape[1]))
            with np.errstate(over="ignore", invalid="ignore"):
                y = model.sample(X, np.random.default_rng(0))[0].astype(np.float64)
                value = model.log_density(X, y)
                expected[u], error[u] = np.mean(value), np.std(value) / np.sqrt(len(value))
    gap = mean - expected
    known = np.isfinite(gap)
    if known.sum() < _LEAST_SITES:
        return none
    away = gap - np.median(gap[known])
    spread = max(1.4826 * float(np.median(np.abs(away[known]))), _LEAST_GAP_SPREAD)
    spread *= known.sum() / (known.sum() - 1)
    parameters = np.array([model.n_parameters for model in models])
    allowed = np.sqrt(spread**2 + error**2 + (1 + parameters) / n_samples)
    return [
        Finding.UNLIKE_ITS_MODEL(claimed=mean[u], expected=expected[u])
        if np.abs(away[u]) > _DEVIATIONS * allowed[u]
        else None
        for u in range(n_models)
    ]


# -- Grams -------------------------------------------------------------------------------------


def unlike_grams(
    messages: Sequence[LocalModel], which: Floats, points: Sequence[Floats]
) -> list[Notice | None]:
    """Return the reproach to each message whose Grams are not those of its model and its rows.

    The diagonals, summed over the experts, are divided by what the site's own model expects of as
    many rows at covariates of the site, for whatever family, and the ratios compared with those of
    the other sites: where covariates are known roughly, they are not one.

    Parameters
    ----------
    messages : sequence of M LocalModel
    which : ndarray of int of shape (M,)
        The distinct model of each, or -1.
    points : sequence of U ndarray of shape (n, d)
        Covariates of each distinct model.
    """
    found: list[Notice | None] = [None] * len(messages)
    ratio = []
    for message, u in zip(messages, which, strict=True):
        size = message.model.experts.n_linear * message.model.experts.n_columns
        ratio.append(np.full(size, np.nan))
        if u >= 0 and message.grams is not None and len(points[u]):
            X = design(points[u])
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                weight = np.exp(message.model.gate.log_prob(X)) * message.n_samples / len(X)
                expected = Grams.expected(message.model.experts, X, weight)
                claimed = _diagonals(message.grams)
                ratio[-1] = np.log(claimed) - np.log(_diagonals(expected))
    known = np.array(ratio)
    known[~np.isfinite(known)] = np.nan  # no site there, or no claim
    enough = np.sum(~np.isnan(known), axis=0) >= _LEAST_SITES
    if not enough.any():
        return found
    known = known[:, enough]
    away = np.nan_to_num(known - np.nanmedian(known, axis=0))
    worst = np.argmax(np.abs(away), axis=1)
    for m, j in enumerate(worst):
        if abs(away[m, j]) > np.log(_GRAMS):
            found[m] = Finding.UNLIKE_GRAMS(times=float(np.exp(away[m, j])))
    return found


def _diagonals(grams: Grams) -> Floats:
    """Return the diagonals of all experts' matrices together, (Q p,)."""
    return np.asarray(np.einsum("kii->i", grams.matrices))


# -- numbers of experts ------------------------------------------------------------------------


def many_experts(n_experts: Floats) -> list[Notice | None]:
    """Return the reproach to each model (U,) with far more experts than the others."""
    usual = int(np.sort(n_experts)[len(n_experts) // 2])
    most = max(_MANY * usual, _MANY_AT_LEAST)
    enough = len(n_experts) >= _LEAST_SITES
    return [
        Finding.MANY_EXPERTS(experts=int(size), usual=usual) if enough and size > most else None
        for size in n_experts
    ]
