"""Sites that stand out from the others: found, named and, if asked, left out (maths 12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otmoe.aggregation.consistency import (
    compared_points,
    covariate_distances,
    far_covariates,
    many_experts,
    near_copies,
    unlike_grams,
    unlike_models,
)
from otmoe.aggregation.disagreement import (
    LEAST_SITES,
    THRESHOLD,
    Verdict,
    divergences,
    references,
    site_likelihood_deviations,
    standing,
)
from otmoe.aggregation.limits import limited
from otmoe.aggregation.places import NOTABLE, Places
from otmoe.aggregation.problem import Problem, prepare
from otmoe.arrays.numerics import Floats, design
from otmoe.documents.message import LocalModel
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import NAMED, Notice, listed
from otmoe.text.sentences import Error, Finding, Warn

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_WORK = 20_000  # models times points
_POINTS = (100, 400)  # at least, at most

# Tried by `python -m benchmarks attacks`, halved and doubled by `python -m benchmarks constants`.
_COSTLY = 0.1  # nats per row, of weight times disagreement, that few rows excuse
_HEAVIEST = 10.0  # times the median, up to which claims of rows are believed there


def screen(
    messages: Iterable[LocalModel], support: Any = None, site_weight: Any = None
) -> tuple[Verdict, ...]:
    """Return for every site whether it stands out from the others.

    :func:`otmoe.aggregate` does this first.

    Parameters
    ----------
    messages, support, site_weight
        Of :func:`otmoe.aggregate`.

    Returns
    -------
    tuple of Verdict
        In the order of the messages.

    Examples
    --------
    >>> from otmoe import MoERegressor, simulate
    >>> data = simulate(3000, 2, 2, random_state=0)
    >>> parts = [slice(1000 * m, 1000 * m + 1000) for m in range(3)]
    >>> y = data.y.copy()
    >>> y[parts[2]] *= 100  # one site has other units
    >>> sites = [
    ...     MoERegressor(2, random_state=0).fit(data.X[part], y[part]).to_message(site=name)
    ...     for name, part in zip(["lyon", "nantes", "dijon"], parts)
    ... ]
    >>> [verdict.site for verdict in screen(sites, data.X) if verdict.reasons]
    ['dijon']
    """
    return verdicts(prepare(messages, support, site_weight=site_weight))


def verdicts(problem: Problem) -> tuple[Verdict, ...]:
    """Return for every site whether it stands out; those without weight are skipped.

    Models that are equal, or nearly so, count as one: a site sent in two halves does not agree with
    itself, and neither do copies under several names.
    """
    return _looked_at(problem).verdicts


@dataclass(frozen=True)
class _Look:
    """What was found about all sites, in the order of the messages, and of the groups of models."""

    verdicts: tuple[Verdict, ...]
    group: Floats  # of each distinct model
    ratio: Floats  # of disagreement to chance, of each group


def _looked_at(problem: Problem) -> _Look:
    chosen = [problem.messages[int(np.flatnonzero(problem.which == u)[0])] for u in _all(problem)]
    group = near_copies(chosen)
    n_groups = int(group.max()) + 1
    first = [int(np.flatnonzero(group == g)[0]) for g in range(n_groups)]
    of_message = np.where(problem.which >= 0, group[problem.which], -1)
    sites = [np.flatnonzero(of_message == g) for g in range(n_groups)]
    n_samples = _sums([message.n_samples for message in problem.messages], sites)
    mean = _sums([message.log_likelihood for message in problem.messages], sites) / n_samples
    weight = _sums(problem.site_weight.tolist(), sites)
    models = [problem.models[u] for u in first]

    # 1) covariates, and points at which models can be compared
    distance, feature, spread = covariate_distances(problem)
    far = far_covariates(problem, distance, feature)
    n_points = int(np.clip(_WORK // n_groups, *_POINTS))
    X, own, apart = compared_points(problem, n_points, spread)
    share = np.broadcast_to(
        problem.ensemble.gate.site_prob(design(X)), (len(X), len(problem.models))
    )

    # 2) predictions; few rows excuse a site in so far as it counts little
    acting = weight / np.median(weight / n_samples)
    rows = np.maximum(n_samples, acting)
    cost, overlap = divergences(models, X, share[:, first], problem.sources.pool)
    error = np.array([model.n_parameters for model in models]) / rows
    chance = _by_chance(error, overlap)
    found = standing(cost, chance)
    strict = standing(cost, _by_chance(np.minimum(error, np.median(error)), overlap))
    acting = np.minimum(acting, _HEAVIEST * np.median(acting))
    pull = acting / acting.sum() * found.typical

    # 3) log-likelihoods
    likelihood = np.full(n_groups, np.nan)
    if n_groups >= LEAST_SITES:
        likelihood = site_likelihood_deviations(mean, n_samples)
    unlike = unlike_models(models, mean, n_samples, [own[u] for u in first])

    grams = unlike_grams(problem.messages, problem.which, own)
    many = many_experts(np.array([model.n_experts for model in models]))
    compared = ~np.isnan(found.deviation)
    usual = np.nanmedian(found.typical) if compared.any() else np.nan
    places = Places(problem, first, chance, apart)
    stands_out = (found.deviation > THRESHOLD) & (found.typical > NOTABLE * usual)
    costly = (strict.deviation > THRESHOLD) & (pull > _COSTLY)
    reasons = []
    for g, u in enumerate(first):
        why = []
        if stands_out[g] and places.is_among_most(g):
            why.append(places.reason(g, own[u], found.typical[g], usual))
        elif costly[g] and places.is_among_most(g):
            why.append(Finding.COSTLY(nats=found.typical[g], cost=pull[g]))
        elif not compared[g] and 2 * compared.sum() > n_groups:
            why.append(Finding.NOT_COMPARABLE())
        if likelihood[g] < -THRESHOLD:
            why.append(Finding.LESS_LIKELY_SITE(nats=np.median(mean) - mean[g]))
        gram = next((grams[m] for m in sites[g] if grams[m] is not None), None)
        reasons.append((*why, *filter(None, (unlike[g], gram, far[u], many[g]))))
    return _Look(
        tuple(
            Verdict(
                message.site,
                float(found.typical[g]),
                float(found.deviation[g]),
                float(likelihood[g]),
                reasons[g],
            )
            if g >= 0
            else Verdict(message.site, np.nan, np.nan, np.nan)
            for message, g in zip(problem.messages, of_message, strict=True)
        ),
        group,
        found.ratio,
    )


def _all(problem: Problem) -> range:
    return range(len(problem.models))


def _by_chance(error: Floats, overlap: Floats) -> Floats:
    """Return the divergences that errors of estimation (U,) explain, (U, R)."""
    both = error[:, None] + error[references(len(error))]
    return np.asarray(0.5 * both / overlap)


@dataclass(frozen=True)
class Screening:
    """What was found, and what follows from it.

    Attributes
    ----------
    verdicts : dict of Verdict
        By site; empty if sites were not screened.
    left_out : dict of Notice
        Sites to be left out, and why.
    counted : dict of float
        Rows that sites count as, if fewer than they claim.
    warnings : tuple of Notice
    """

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    left_out: Mapping[str, Notice] = field(default_factory=dict)
    counted: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()

    def suspects(self, problem: Problem) -> frozenset[int]:
        """Return the distinct models of sites that stand out and were not left out."""
        names = {name for name, verdict in self.verdicts.items() if verdict.reasons}
        pairs = zip(problem.messages, problem.which, strict=True)
        return frozenset(int(u) for message, u in pairs if u >= 0 and message.site in names)


def screened(
    problem: Problem,
    outliers: str | None,
    keep: Iterable[str] = (),
    max_weight: float | None = None,
) -> Screening:
    """Look for sites that stand out, and decide on them.

    Parameters
    ----------
    problem : Problem
    outliers : {"flag", "exclude", None}
        With None, sites are not screened.
    keep : iterable of str
        Sites that are kept even if they stand out.
    max_weight : float, optional
        Share of the weight that no site may exceed; by default a half for sites that differ from
        the others by more than chance explains, and only where sites are excluded.
    """
    if outliers is None:
        return Screening()
    look = _looked_at(problem)
    found = {verdict.site: verdict for verdict in look.verdicts}
    warnings = _copies(problem, look.group)
    n_groups = len(look.ratio)
    why = {
        name: Finding.STANDS_OUT(sites=(name,), reasons=" and ".join(map(str, v.reasons)))
        for name, v in found.items()
        if v.reasons
    }
    out: dict[str, Notice] = {}
    if outliers == "exclude" and n_groups < LEAST_SITES:
        warnings.append(Warn.NOBODY_EXCLUDED(models=LEAST_SITES - 1))
    elif outliers == "exclude":
        out = {name: reason for name, reason in why.items() if name not in set(keep)}
        warnings += _told(Warn.SITES_EXCLUDED, out, len(found))
        why = {name: reason for name, reason in why.items() if name not in out}
    if len(out) == len(found):
        raise InvalidInput(Error.NOBODY_LEFT, sites=listed(list(out)))
    warnings += _told(Warn.SITES_STAND_OUT, why, len(found))
    counted: dict[str, float] = {}
    if problem.by_rows and n_groups >= LEAST_SITES:
        counted, told = limited(problem, look.group, look.ratio, out, outliers, max_weight)
        warnings += told
    return Screening(found, out, counted, tuple(warnings))


def _told(warning: Warn, why: Mapping[str, Notice], total: int) -> list[Notice]:
    """Return a warning that names sites and what is said against them, if there are any."""
    if not why:
        return []
    names = [f"{name!r}: {reason}" for name, reason in why.items()]
    more = [f"and {len(why) - NAMED} more"] if len(why) > NAMED else []
    reasons = "; ".join(names[:NAMED] + more)
    return [warning(sites=tuple(why), count=len(why), total=total, reasons=reasons)]


def _copies(problem: Problem, group: Floats) -> list[Notice]:
    """Return a warning for each group of sites whose models are different, though hardly."""
    told = []
    for g in np.flatnonzero(np.bincount(group) > 1):
        names = [
            message.site
            for message, u in zip(problem.messages, problem.which, strict=True)
            if u >= 0 and group[u] == g
        ]
        told.append(Warn.NEAR_COPIES(sites=tuple(names), names=listed(names)))
    return told


def _sums(values: Sequence[float], sites: Sequence[Floats]) -> Floats:
    """Return the sums over the sites that sent each model, in an order of their own."""
    of_site = np.array(values, np.float64)
    return np.array([np.sort(of_site[m]).sum() for m in sites])
