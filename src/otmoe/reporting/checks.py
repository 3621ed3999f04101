"""Findings that a coordinator should read before trusting a merged model, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.aggregation import AggregationRecord
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Finding, Warn

LEVELS = {
    Finding.MERGING_STOPPED.code: "bad",
    Finding.SITES_STAND_OUT.code: "bad",
    Finding.MERGING_ENDED.code: "good",
    Finding.NO_SITE_STANDS_OUT.code: "good",
    Finding.NO_OWN_MODEL_BETTER.code: "good",
    Finding.FITS_CONVERGED.code: "good",
    Finding.INTERVALS.code: "good",
    Finding.SITES_ALIKE.code: "good",
}
"""Levels of findings by code; all others are "look"."""

# Thresholds of findings; `python -m benchmarks constants` counts them at half and twice these.
_MOST = 0.5  # share of the weight that no single site should have
_ALONE = 0.8  # share of an expert's mass that no single site should contribute
_SMALL = 0.02  # share of the mass below which an expert counts as small


def checks_of(
    record: AggregationRecord, mass: Floats | None, others: Iterable[Notice] = ()
) -> list[dict[str, Any]]:
    """Return the findings about a result, worst first, with the sites that they concern.

    Parameters
    ----------
    record : AggregationRecord
    mass : ndarray of shape (M, K), or None
        Share of the mixture that each site contributes to each expert.
    others : iterable of Notice
        Further findings.
    """
    found = [*_merging(record), *_sites(record), *others]
    if mass is not None:  # else there are no merged experts
        found += [*_experts(record, mass), *_intervals(record)]
    order = {"bad": 0, "look": 1, "good": 2}
    checks = [
        {
            "level": LEVELS.get(n.code, "look"),
            "code": n.code,
            "text": n.text,
            "sites": list(n.sites),
        }
        for n in found
    ]
    return sorted(checks, key=lambda check: order[check["level"]])


def _merging(record: AggregationRecord) -> Iterator[Notice]:
    stopped = Finding.MERGING_STOPPED if record.refinement is None else Finding.ROUNDS_STOPPED
    ended = Finding.MERGING_ENDED if record.converged else stopped
    yield ended(status=str(record.status))
    rounds = record.refinement
    if rounds is not None and rounds.missing:
        yield _about(Finding.ROUNDS_MISSED, dict.fromkeys(missed.site for missed in rounds.missing))


def _sites(record: AggregationRecord) -> Iterator[Notice]:
    sites = record.sites
    flagged = [site.site for site in sites if site.flagged]
    if flagged:
        yield _about(Finding.SITES_STAND_OUT, flagged, count=_count(flagged, sites))
    elif any(site.disagreement is not None for site in sites):
        yield Finding.NO_SITE_STANDS_OUT()
    else:
        yield Finding.NOT_COMPARED()
    yield from _served(record)
    if record.left_out:
        yield _about(Finding.LEFT_OUT, record.left_out)
    stopped = [site.site for site in sites if not site.converged]
    yield _about(Finding.FITS_STOPPED, stopped) if stopped else Finding.FITS_CONVERGED()
    if partly := [site.site for site in sites if site.coverage < 1]:
        yield _about(Finding.PARTLY_COVERED, partly)
    first = max(sites, key=lambda site: site.weight)
    if len(sites) > 2 and first.weight > _MOST:
        yield _about(Finding.ONE_SITE_DOMINATES, [first.site], name=first.site, share=first.weight)


def _served(record: AggregationRecord) -> Iterator[Notice]:
    """Yield whether sites are served better by their own models; nothing if that is unknown."""
    lost = mean_lost(record)
    if lost is None or len(record.sites) < 2:
        return
    differ = [w for w in record.warnings if w.code == Warn.SITES_DIFFER.code]
    if differ:
        yield _about(Finding.OWN_MODELS_BETTER, differ[0].sites)
    else:
        yield Finding.NO_OWN_MODEL_BETTER(lost=lost)


def mean_lost(record: AggregationRecord) -> float | None:
    """Return the expected nats lost per row, the weighted mean over the sites, if it is known."""
    known = [(site.lost, site.weight) for site in record.sites if site.lost is not None]
    total = sum(weight for _, weight in known)
    return sum(lost * weight for lost, weight in known) / total if total > 0 else None


def _experts(record: AggregationRecord, mass: Floats) -> Iterator[Notice]:
    if len(mass) < 3:
        return
    total = mass.sum(axis=0)
    least = min(_SMALL, 0.2 / len(total))
    small = np.flatnonzero(total < least).tolist()
    if small:
        yield Finding.SMALL_EXPERTS(share=least, experts=_experts_named(small))
    share = np.divide(mass, total, out=np.zeros_like(mass), where=total > 0)
    for m, site in enumerate(record.sites):
        alone = np.flatnonzero(share[m] > _ALONE).tolist() if site.weight < _ALONE else []
        if alone:
            facts = {"name": site.site, "share": _ALONE, "experts": _experts_named(alone)}
            yield _about(Finding.EXPERT_OF_ONE_SITE, [site.site], **facts)


def _intervals(record: AggregationRecord) -> Iterator[Notice]:
    if record.inference is None:
        yield Finding.NO_INTERVALS()
        return
    yield Finding.INTERVALS()
    for warning in record.inference.warnings:
        yield Finding.INTERVALS_DOUBTFUL(warning=str(warning))


def _about(finding: Finding, sites: Iterable[str], **facts: Any) -> Notice:
    """Return a finding that names some sites."""
    named = list(sites)
    return finding(sites=tuple(named), names=listed(named), **facts)


def _experts_named(numbers: list[int]) -> str:
    return f"expert{'' if len(numbers) == 1 else 's'} {listed([str(k) for k in numbers])}"


def _count(some: list[str], sites: Iterable[Any]) -> str:
    return f"{len(some):,} of {len(list(sites)):,} sites stand{'s' if len(some) == 1 else ''} out"
