"""Sites that stand out from the others: found, named and, if asked, left out (maths 12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otmoe.aggregation.disagreement import (
    LEAST_SITES,
    THRESHOLD,
    Disagreement,
    Verdict,
    disagreement,
    site_likelihood_deviations,
)
from otmoe.aggregation.problem import Problem, prepare
from otmoe.arrays.numerics import Floats, design
from otmoe.documents.message import LocalModel
from otmoe.text.notices import NAMED, Notice
from otmoe.text.sentences import Finding, Warn

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_WORK = 20_000  # models times points
_POINTS = (100, 400)  # at least, at most


def screen(
    messages: Iterable[LocalModel], support: Any = None, site_weight: Any = None
) -> tuple[Verdict, ...]:
    """Say of every site whether it stands out from the others.

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
    """Say of every site whether it stands out; those without weight are not looked at.

    Models that are equal bit for bit count as one: a site sent in two halves does not agree with
    itself.
    """
    n_models = len(problem.models)
    sites = [np.flatnonzero(problem.which == u) for u in range(n_models)]
    n_samples = _sums([message.n_samples for message in problem.messages], sites)
    mean = _sums([message.log_likelihood for message in problem.messages], sites) / n_samples
    n_points = int(np.clip(_WORK // n_models, *_POINTS))
    X = np.asarray(problem.sources.few(n_points, np.random.default_rng(0)).X, np.float64)
    share = np.broadcast_to(problem.ensemble.gate.site_prob(design(X)), (len(X), n_models))
    found = disagreement(problem.models, n_samples, X, share, problem.sources.pool)
    likelihood = np.full(n_models, np.nan)
    if n_models >= LEAST_SITES:
        likelihood = site_likelihood_deviations(mean, n_samples)
    reasons = _reasons(found, mean, likelihood)
    return tuple(
        Verdict(
            message.site,
            float(found.typical[u]),
            float(found.deviation[u]),
            float(likelihood[u]),
            reasons[u],
        )
        if u >= 0
        else Verdict(message.site, np.nan, np.nan, np.nan)
        for message, u in zip(problem.messages, problem.which, strict=True)
    )


@dataclass(frozen=True)
class Screening:
    """What was found, and what follows from it.

    Attributes
    ----------
    verdicts : dict of Verdict
        By site; empty if nobody looked.
    left_out : dict of Notice
        Sites to be left out, and why.
    warnings : tuple of Notice
    """

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    left_out: Mapping[str, Notice] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()


def screened(problem: Problem, outliers: str | None) -> Screening:
    """Look for sites that stand out, and decide on them.

    Parameters
    ----------
    problem : Problem
    outliers : {"flag", "exclude", None}
        With None, nobody looks.
    """
    if outliers is None:
        return Screening()
    found = {verdict.site: verdict for verdict in verdicts(problem)}
    why = {
        name: Finding.STANDS_OUT(sites=(name,), reasons=" and ".join(map(str, v.reasons)))
        for name, v in found.items()
        if v.reasons
    }
    if outliers == "exclude" and len(problem.models) < LEAST_SITES:
        return Screening(found, warnings=(Warn.NOBODY_EXCLUDED(models=LEAST_SITES - 1),))
    if not why:
        return Screening(found)
    names = [f"{name!r}: {reason}" for name, reason in why.items()]
    more = [f"and {len(why) - NAMED} more"] if len(why) > NAMED else []
    facts = {"count": len(why), "total": len(found), "reasons": "; ".join(names[:NAMED] + more)}
    if outliers == "exclude":  # each rule finds less than half of the models, so somebody stays
        return Screening(found, why, (Warn.SITES_EXCLUDED(sites=tuple(why), **facts),))
    return Screening(found, warnings=(Warn.SITES_STAND_OUT(sites=tuple(why), **facts),))


def remaining(
    messages: Sequence[LocalModel], site_weight: Any, left_out: Mapping[str, Notice]
) -> tuple[list[LocalModel], Any]:
    """Return the messages that are not left out, and their weights in the form they came in."""
    stay = [m for m, message in enumerate(messages) if message.site not in left_out]
    if isinstance(site_weight, Mapping):
        site_weight = {name: w for name, w in site_weight.items() if name not in left_out}
    elif site_weight is not None and not isinstance(site_weight, str):
        site_weight = np.asarray(site_weight)[stay]
    return [messages[m] for m in stay], site_weight


def _sums(values: Sequence[float], sites: Sequence[Floats]) -> Floats:
    """Return the sums over the sites that sent each model, in an order of their own."""
    of_site = np.array(values, np.float64)
    return np.array([np.sort(of_site[m]).sum() for m in sites])


def _reasons(found: Disagreement, mean: Floats, likelihood: Floats) -> list[tuple[Notice, ...]]:
    """Return, for each distinct model, why it stands out."""
    reasons = []
    usual = np.nanmedian(found.typical) if np.any(found.deviation > THRESHOLD) else np.nan
    for u in range(len(mean)):
        why = []
        if found.deviation[u] > THRESHOLD:
            why.append(Finding.PREDICTS_OTHERWISE(nats=found.typical[u], usual=usual))
        if likelihood[u] < -THRESHOLD:
            why.append(Finding.LESS_LIKELY_SITE(nats=np.median(mean) - mean[u]))
        reasons.append(tuple(why))
    return reasons
