"""Which local models stand out, by their log-likelihood or by what they predict (maths 12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from otmoe.arrays.numerics import Floats, design, softmax
from otmoe.documents.message import LocalModel
from otmoe.model.experts import Experts
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice

# Chosen on simulated sites and on stations (maths 12, `python -m benchmarks.stations`), tried by
# `python -m benchmarks screening`, and halved and doubled by `python -m benchmarks constants`.
THRESHOLD = 5.0
"""Deviations from the median at which a shard or a site stands out."""

LEAST_SITES = 3
"""Sites of which one can be said to stand out: of two that differ, either may be wrong."""

_LEAST_SPREAD = 1.0  # about the standard deviation of the log density of one row
_LEAST_SITE_SPREAD = 0.1  # nats per row by which sites with rows of their own may well differ
_LEAST_EXCESS_SPREAD = 0.3  # of log(1 + excess): a little less than between natural sites
_NEGLIGIBLE = 1e-3  # negligible nats per row

_REFERENCES = 32  # models that each one is compared with, where there are more
_COMPARABLE = 10  # points that two models must share
_SEED = 0  # of the draws, which are the same for every site
_TAIL = 2.0  # log ratio of densities from which a rare draw would decide a mean
_FAR = 1e300  # nats, where numbers end: stands for a log density of minus infinity

_beyond = np.errstate(over="ignore", invalid="ignore")  # what a site predicts may have no number


@dataclass(frozen=True)
class Verdict:
    """Whether one site stands out, and by how much (maths 12).

    Attributes
    ----------
    site : str
    disagreement : float
        Typical divergence of the site's predictions from those of the others, in nats per row. NaN
        if there is nothing to compare it with.
    deviation : float
        How far above the median of the sites that is, in deviations, after allowing for what few
        rows explain. NaN if nothing can be said.
    likelihood_deviation : float
        How far above the median of the sites its mean log-likelihood per row is, in deviations.
    reasons : tuple of Notice
        Why it stands out; empty if it does not.
    """

    site: str
    disagreement: float
    deviation: float
    likelihood_deviation: float
    reasons: tuple[Notice, ...] = ()


# -- log-likelihoods ---------------------------------------------------------------------------


def likelihood_deviations(messages: Sequence[LocalModel]) -> Floats:
    """Return how far each shard's mean log-likelihood per row is from the median, in deviations.

    For shards of one dataset the mean over n rows varies by chance by about 1 / sqrt(n). The unit
    is the median absolute deviation of sqrt(n) times the distance to the median, scaled to be the
    standard deviation of a normal. A shard in a wrong optimum is tens of units below.

    Parameters
    ----------
    messages : sequence of M LocalModel

    Returns
    -------
    ndarray of shape (M,)
    """
    n = np.array([message.n_samples for message in messages])
    mean = np.array([message.log_likelihood for message in messages]) / n
    distance = np.sqrt(n) * (mean - np.median(mean))
    return distance / max(_spread(distance), _LEAST_SPREAD)


def site_likelihood_deviations(mean: Floats, n_samples: Floats) -> Floats:
    """Return the same for sites, whose noise and covariates may differ (maths 12).

    Parameters
    ----------
    mean : ndarray of shape (U,)
        Mean log-likelihood per row.
    n_samples : ndarray of shape (U,)

    Returns
    -------
    ndarray of shape (U,)
    """
    spread = _cautious_spread(mean, _LEAST_SITE_SPREAD)
    return (mean - np.median(mean)) / np.sqrt(spread**2 + 1 / n_samples)


# -- predictions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disagreement:
    """How far models are from one another in what they predict (maths 12).

    Attributes
    ----------
    typical : ndarray of shape (U,)
        Divergence of each model from the others, in nats per row, the lower median over them. NaN
        if it can be compared with none.
    deviation : ndarray of shape (U,)
        How far above the median of the models it is, in deviations, after allowing for what few
        rows explain. NaN if nothing can be said.
    ratio : ndarray of shape (U,)
        The divergence as a multiple of what chance explains, the lower median over the others.
    """

    typical: Floats
    deviation: Floats
    ratio: Floats


def disagreement(
    models: Sequence[MoE],
    n_samples: Floats,
    X: Floats,
    share: Floats | None = None,
    pool: Executor | None = None,
) -> Disagreement:
    """Compare what models predict, each with the others or, of many, with some of them.

    Parameters
    ----------
    models : sequence of U MoE
        All different, in an order that depends on them alone.
    n_samples : ndarray of shape (U,)
        Rows that each was fitted to.
    X : ndarray of shape (n, d)
        Points at which they are compared.
    share : ndarray of shape (n, U), optional
        Weight of each model at each point: two are compared where both have some.
    pool : Executor, optional
        Threads.
    """
    cost, overlap = divergences(models, X, share, pool)
    error = np.array([model.n_parameters for model in models]) / n_samples
    return standing(cost, 0.5 * (error[:, None] + error[references(len(models))]) / overlap)


def standing(cost: Floats, error: Floats) -> Disagreement:
    """Return how far models stand from the rest, by what they cost one another (maths 12).

    Parameters
    ----------
    cost : ndarray of shape (U, R)
        Divergences in nats per row; NaN where two cannot be compared.
    error : ndarray of shape (U, R)
        What the divergences would be if the models differed by the error of estimation alone.
    """
    ratio = _lower_median(cost / (error + _NEGLIGIBLE))
    excess = np.log1p(ratio)
    known = np.sum(~np.isnan(cost), axis=1) >= LEAST_SITES - 1
    deviation = np.full(len(cost), np.nan)
    if known.sum() >= LEAST_SITES:
        # Liars are above the others: they neither move the lower third nor widen the lower half.
        distance = excess[known] - np.quantile(excess[known], 1 / 3)
        deviation[known] = distance / _cautious_spread(distance, _LEAST_EXCESS_SPREAD, below=True)
    return Disagreement(_lower_median(cost), deviation, ratio)


def references(n_models: int) -> Floats:
    """Return the models that each one is compared with: all, or a sample of many, (R,)."""
    if n_models <= _REFERENCES:
        return np.arange(n_models)
    return np.sort(np.random.default_rng(_SEED).choice(n_models, _REFERENCES, replace=False))


def divergences(
    models: Sequence[MoE],
    X: Floats,
    share: Floats | None = None,
    pool: Executor | None = None,
    *,
    group: int = 64,
) -> tuple[Floats, Floats]:
    """Return by how much each model's predictions differ from those of the references (maths 12).

    Parameters
    ----------
    models, X, share, pool
        Of :func:`disagreement`.
    group : int
        Models looked at together.

    Returns
    -------
    cost : ndarray of shape (U, R)
        Half the sum of KL(f_u || f_r) and KL(f_r || f_u), the mean over the points, from one draw
        of y at each. NaN for a model and itself, and where the two share too few points.
    overlap : ndarray of shape (U, R)
        From 0 to 1: how alike the places are at which the two contribute.
    """
    chosen = references(len(models))
    share = np.ones((len(X), len(models))) if share is None else share
    share = share / np.maximum(share.max(axis=0), 1e-300)
    Z = design(X)

    @_beyond
    def drawn(model: MoE) -> tuple[Floats, Floats]:
        y = model.sample(X, np.random.default_rng(_SEED))[0].astype(np.float64)
        return y, model.log_density(X, y)

    of_chosen = _log_densities([models[r] for r in chosen], Z)
    draws = [drawn(models[r]) for r in chosen]
    known = dict(zip(chosen.tolist(), draws, strict=True))

    @_beyond
    def compared(start: int) -> Floats:
        part = slice(start, start + group)
        mine, theirs = share[:, part], share[:, chosen]
        if len(models) == len(chosen) <= group:  # all with all: each pair is looked at once
            there = np.stack(
                [
                    _summed(of_chosen(y) - own[:, None], mine[:, u, None] * theirs)
                    for u, (y, own) in enumerate(draws)
                ]
            )
            return there + there.T
        of_mine = _log_densities(models[part], Z)
        cost = np.empty((mine.shape[1], len(chosen)))
        for u, model in enumerate(models[part]):
            y, own = known[start + u] if start + u in known else drawn(model)
            cost[u] = _summed(of_chosen(y) - own[:, None], mine[:, u, None] * theirs)
        for r, (y, own) in enumerate(draws):
            cost[:, r] += _summed(of_mine(y) - own[:, None], theirs[:, r, None] * mine)
        return cost

    apply = map if pool is None else pool.map
    cost = np.concatenate(list(apply(compared, range(0, len(models), group))))
    both = share.T @ share[:, chosen]  # points that two share, each as much as both contribute
    enough = both**2 >= _COMPARABLE * ((share**2).T @ share[:, chosen] ** 2)
    enough &= (both > 0) & (np.arange(len(models))[:, None] != chosen)
    size = np.sqrt(np.sum(share**2, axis=0))
    overlap = np.where(enough, both, 1.0) / np.where(enough, size[:, None] * size[chosen], 1.0)
    return np.where(enough, 0.5 * cost / np.where(enough, both, 1.0), np.nan), overlap


@_beyond
def _log_densities(models: Sequence[MoE], Z: Floats) -> Callable[[Floats], Floats]:
    """Return the function that gives log f_u(y | x) at the rows of a design, (n,) -> (n, U)."""
    sizes = np.array([model.n_experts for model in models])
    K = int(sizes.max())
    # The first expert of every model, then the second, ...: models with fewer repeat their last.
    place = np.cumsum(sizes) - sizes + np.minimum(np.arange(K)[:, None], sizes - 1)
    family: type[Experts] = type(models[0].experts)
    experts = family.concat([model.experts for model in models]).take(place.ravel())
    eta = experts.predictor(Z)
    gate = np.full((K, len(models), len(Z)), -np.inf)
    for u, model in enumerate(models):
        gate[: sizes[u], u] = model.gate.log_prob(Z).T
    log_gate = gate.reshape(-1, len(Z)).T

    def log_density(y: Floats) -> Floats:
        joint = experts.expected_log_prob(eta, experts.observe(y)) + log_gate
        total = softmax(joint.T.reshape(K, -1).T)[1].reshape(-1, len(y)).T
        base = experts.log_base(y)
        return np.asarray(total + (base if isinstance(base, float) else base[:, None]))

    return log_density


def _summed(log_ratio: Floats, weight: Floats) -> Floats:
    """Return the sums over rows of r - 1 - log r, whose mean for y from f and r = g / f is KL.

    Unlike minus log r it is never negative, and it varies little where f and g are alike.
    """
    t = np.minimum(np.nan_to_num(log_ratio, nan=-_FAR, neginf=-_FAR), _TAIL)
    return np.asarray(np.sum(weight * (np.expm1(t) - t), axis=0))


# -- medians -----------------------------------------------------------------------------------


def _spread(a: Floats) -> float:
    """Return the median absolute deviation, scaled to be the standard deviation of a normal."""
    return 1.4826 * float(np.median(np.abs(a - np.median(a))))


def _cautious_spread(a: Floats, least: float, *, below: bool = False) -> float:
    """Return the spread, no less than `least`, and more where it is known from few numbers.

    With `below`, it is that of the numbers up to the median.
    """
    middle = np.median(a)
    spread = 1.4826 * float(np.median(middle - a[a <= middle])) if below else _spread(a)
    return max(spread, least) * len(a) / (len(a) - 1)


def _lower_median(a: Floats) -> Floats:
    """Return the lower median of the numbers in each row, NaN where there are none.

    Half of the others, rounded down, are at least as close: one that agrees is enough of two.
    """
    last = np.maximum(np.sum(~np.isnan(a), axis=1) - 1, 0) // 2
    return np.sort(a, axis=1)[np.arange(len(a)), last]
