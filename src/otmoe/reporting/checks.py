"""What a coordinator should look at before trusting a merged model, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.aggregation import AggregationRecord

Level = Literal["good", "look", "bad"]
Check = tuple[Level, str, list[str]]

_NAMED = 5  # sites in a sentence
_MOST = 0.5  # share of the weight that no site should have alone
_ALONE = 0.8  # share of an expert's mass that no site should bring alone
_SMALL = 0.02  # share of the mass below which an expert is a small one


def checks_of(record: AggregationRecord, mass: Floats | None) -> list[dict[str, Any]]:
    """Return what speaks for the result and what to look at, with the sites that it is about.

    Parameters
    ----------
    record : AggregationRecord
    mass : ndarray of shape (M, K), or None
        Share of the mixture that each site brings to each expert.
    """
    found = [*_merging(record), *_sites(record)]
    if mass is not None:  # else there are no merged experts
        found += [*_experts(record, mass), *_intervals(record)]
    order = {"bad": 0, "look": 1, "good": 2}
    found.sort(key=lambda check: order[check[0]])
    return [{"level": level, "text": text, "sites": sites} for level, text, sites in found]


def _merging(record: AggregationRecord) -> Iterator[Check]:
    if record.converged:
        yield "good", f"The merging ended well: {record.status}.", []
    else:
        yield "bad", f"The merging did not converge: {record.status}.", []
    rounds = record.refinement
    if rounds is not None and rounds.missing:
        sites = list(dict.fromkeys(missed.site for missed in rounds.missing))
        text = f"{_few(sites)} did not answer every refine round, which went on without their rows."
        yield "look", text, sites


def _sites(record: AggregationRecord) -> Iterator[Check]:
    sites = record.sites
    flagged = [site.site for site in sites if site.flagged]
    if flagged:
        text = f"{_count(flagged, sites)} from the others, and took part all the same:"
        yield "bad", f"{text} {_few(flagged)}.", flagged
    elif any(site.disagreement is not None for site in sites):
        yield "good", "No site stands out by what it predicts or by its log-likelihood.", []
    else:
        text = "The predictions of the sites were not compared with each other: with fewer than"
        yield "look", f"{text} three of them, or for shards of one data set, that is not done.", []
    if record.left_out:
        out = list(record.left_out)
        yield "look", f"Left out: {_few(out)}. The table of sites says why.", out
    stopped = [site.site for site in sites if not site.converged]
    if stopped:
        yield "look", f"Local fits that did not converge: {_few(stopped)}.", stopped
    else:
        yield "good", "Every local fit converged.", []
    unheard = [site.site for site in sites if site.heard < 1]
    if unheard:
        text = "A feature never varied at some sites, which have no say where it differs:"
        yield "look", f"{text} {_few(unheard)}.", unheard
    first = max(sites, key=lambda site: site.weight)
    if len(sites) > 2 and first.weight > _MOST:
        text = f"{first.site} has {first.weight:.0%} of the weight: the result is mostly its own."
        yield "look", text, [first.site]


def _experts(record: AggregationRecord, mass: Floats) -> Iterator[Check]:
    if len(mass) < 3:
        return
    total = mass.sum(axis=0)
    least = min(_SMALL, 0.2 / len(total))
    small = np.flatnonzero(total < least).tolist()
    if small:
        yield "look", f"With less than {least:.2g} of the mass: {_experts_named(small)}.", []
    share = np.divide(mass, total, out=np.zeros_like(mass), where=total > 0)
    for m, site in enumerate(record.sites):
        alone = np.flatnonzero(share[m] > _ALONE).tolist() if site.weight < _ALONE else []
        if alone:
            text = f"{site.site} brings more than {_ALONE:.0%} of the mass of"
            yield "look", f"{text} {_experts_named(alone)}.", [site.site]


def _intervals(record: AggregationRecord) -> Iterator[Check]:
    if record.inference is None:
        yield "look", "The coefficients have no intervals; below it is said why.", []
        return
    yield "good", "The coefficients have intervals: the model is at the maximum of all rows.", []
    for warning in record.inference.warnings:
        yield "look", f"Intervals: {warning}", []


def _experts_named(numbers: list[int]) -> str:
    return f"expert{'' if len(numbers) == 1 else 's'} {_few([str(k) for k in numbers])}"


def _count(some: list[str], sites: Iterable[Any]) -> str:
    return f"{len(some):,} of {len(list(sites)):,} sites stand{'s' if len(some) == 1 else ''} out"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
