"""What the constants that steer the algorithms are worth: each halved and doubled, on small jobs.

The table below names every constant of the package that decides what an algorithm does, and the
jobs (`benchmarks/jobs.py`) on which it could matter. Layout, limits of files and guards against
rounding are not here. A row of the CSV is one metric of one job with the constant at its value and
at another one; its verdict is

* ``same``: the two agree to nine digits;
* ``flat``: they differ by less than the tolerance of the metric, in `TOLERANCES`;
* ``matters``: they differ by more.

Seconds, of the processor, are ratios within a run. A constant is worth having if a row of it
matters: either it should stay where it is, or (a threshold of what is said) its value is what a
user sees. One that is flat within a factor of two is not a number to be tuned.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from statistics import median
from time import process_time
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks import jobs as plain
from benchmarks import lies
from benchmarks.harness import Benchmark, Column, Settings
from benchmarks.jobs import Found, Job
from studies.rows import Row

MERGING = ("merge hard", "merge soft", "merge overlap", "merge poisson", "merge logistic")
MANY = ("merge 30 sites", "merge 60 sites", "merge 60 soft sites")
SCREENING = (
    "screen hard",
    "screen soft",
    "screen logistic",
    "screen multinomial",
    "screen poisson",
    "screen large sites",
    "screen diabetes",
    "screen cancer",
)
FITS = ("fit hard", "fit soft", "fit overlap", "fit poisson", "fit diabetes", "fit cancer")
SEARCHES = ("fit overlap", "fit poisson", "fit diabetes", "fit cancer", "fit multinomial")
REFINING = ("refine hard", "refine soft", "refine overlap", "refine from afar")

LIES = ("attacks", "lies in messages")
REPLIES = ("lies in replies, gaussian", "lies in replies, poisson")

DENSITIES = ("densities hard", "densities soft", "densities poisson")

CONSTANTS: dict[str, tuple[str, ...]] = {
    "aggregation.starts.FEW": (*MERGING, "merge 30 sites"),
    "aggregation.starts._CLUSTERINGS": (*MERGING, "merge 60 sites"),
    "aggregation.starts._SEEDINGS": (*MERGING, "merge 60 sites"),
    "aggregation.starts._LOCAL_TRIED": MANY,
    "aggregation.starts._LOCAL_KEPT": (*MERGING, "merge 60 sites"),
    "aggregation.starts._GREEDY_LIMIT": MANY,
    "aggregation.starts._SHORT": (*MERGING, "merge 60 sites"),
    "aggregation.mm._LEAP": ("merge poisson", "merge logistic"),
    "aggregation.gate._PATIENCE": MERGING,
    "aggregation.gram.SHARP": ("gram hard", "gram half", "gram soft"),
    "aggregation.covariates.PER_PARAMETER": DENSITIES,
    "aggregation.covariates.MOST_COVARIATES": DENSITIES,
    "aggregation.covariates._PER_ROW": DENSITIES,
    "aggregation.covariates._HELD_OUT": DENSITIES,
    "aggregation.covariates._FRESH": ("choose hard", "choose soft"),
    "aggregation.choice._WORTHWHILE": ("choose hard", "choose soft"),
    "aggregation.choice._ROBUST": ("choose hard", "choose soft"),
    "aggregation.curvature._AGREE": ("choose hard", "choose soft"),
    "aggregation.curvature._SHORT": ("choose hard", "choose soft"),
    "aggregation.curvature._LONGEST": ("choose hard", "choose soft"),
    "aggregation.densities._TOL": DENSITIES,
    "aggregation.densities._MAX_ITER": DENSITIES,
    "aggregation.densities._LEAD": DENSITIES,
    "aggregation.densities._NEAR": DENSITIES,
    "aggregation.densities._SHRINKS": DENSITIES,
    "aggregation.densities._NARROW": DENSITIES,
    "aggregation.expected._SLIGHT": DENSITIES,
    "aggregation.expected._RARE": DENSITIES,
    "aggregation.disagreement.THRESHOLD": (*SCREENING, "screen 120 sites", "shards of one"),
    "aggregation.disagreement._LEAST_SPREAD": ("shards of one",),
    "aggregation.disagreement._LEAST_SITE_SPREAD": ("screen a noisy site",),
    "aggregation.disagreement._LEAST_EXCESS_SPREAD": (*SCREENING, "screen 120 sites"),
    "aggregation.disagreement._NEGLIGIBLE": SCREENING,
    "aggregation.disagreement._REFERENCES": ("screen 120 sites",),
    "aggregation.disagreement._COMPARABLE": ("screen sites apart", "screen regions"),
    "aggregation.disagreement._TAIL": SCREENING,
    "aggregation.methods._EXPLAINED": MERGING,
    "aggregation.methods._CHANCE": MERGING,
    "aggregation.methods._FINALISTS": ("middle of 30", "middle of 100"),
    "aggregation.methods._CANDIDATES": ("middle of 300",),
    "aggregation.methods.PROBLEMS": ("middle of 30", "middle of 100"),
    "aggregation.screening._WORK": ("screen 120 sites",),
    "aggregation.screening._POINTS": (*SCREENING, "screen 120 sites"),
    "aggregation.places.NOTABLE": (*LIES, "screen diabetes", "screen cancer"),
    "aggregation.places._BLOCK": LIES,
    "aggregation.screening._COSTLY": LIES,
    "aggregation.screening._HEAVIEST": LIES,
    "aggregation.consistency.FAR": LIES,
    "aggregation.consistency._GRAMS": LIES,
    "aggregation.consistency._DEVIATIONS": LIES,
    "aggregation.consistency._LEAST_GAP_SPREAD": LIES,
    "aggregation.consistency._DRAWS": LIES,
    "aggregation.consistency._MANY": LIES,
    "aggregation.consistency._MANY_AT_LEAST": LIES,
    "aggregation.consistency._SAME": LIES,
    "aggregation.limits._APART": LIES,
    "aggregation.limits.HALF": LIES,
    "aggregation.problem.POINTS_PER_COLUMN": ("merge at few points",),
    "aggregation.support.N_SUPPORT": ("merge by sketches",),
    "data.clusters.LEAST_ROWS": ("sketch 60 rows", "sketch diabetes", "sketch cancer"),
    "data.clusters._MOST_ROWS": ("sketch 90000 rows",),
    "data.clusters._NARROWEST": ("sketch diabetes", "sketch cancer", "merge by sketches"),
    "data.sketch.N_COMPONENTS": ("sketch diabetes", "sketch cancer", "merge by sketches"),
    "data.sketch._NOISE": ("merge by sketches", "screen regions"),
    "data.shards.splitting.ROWS_PER_PARAMETER": ("split hard", "split soft"),
    "arrays.newton._NEAR": ("fit 30000 rows", "fit hard", "fit overlap"),
    "likelihood.iterations._NEWTON_LIMIT": ("fit 905 parameters",),
    "likelihood.moves._SPLIT_ROWS": SEARCHES,
    "likelihood.moves._DIRECTIONS": SEARCHES,
    "likelihood.moves._MOVES": SEARCHES,
    "likelihood.moves._ALWAYS": SEARCHES,
    "likelihood.moves._PROMISING": SEARCHES,
    "likelihood.moves._REFITTED": SEARCHES,
    "likelihood.moves._BEHIND": SEARCHES,
    "likelihood.maxima._ESSENTIAL": SEARCHES,
    "likelihood.moves._SLACK": SEARCHES,
    "likelihood.maxima._KEPT": SEARCHES,
    "likelihood.maxima._CLEAR": SEARCHES,
    "likelihood.search._BEGUN": ("fit overlap", "fit poisson"),
    "likelihood.search._LABELS": SEARCHES,
    "likelihood.search._PATIENCE": ("fit diabetes",),
    "likelihood.search._AT_BEST": ("fit diabetes",),
    "likelihood.search._ALONE": ("fit diabetes",),
    "likelihood.shaking._PER_PARAMETER": ("fit diabetes",),
    "likelihood.shaking._CLEAR": ("fit diabetes",),
    "likelihood.stage._PER_COEFFICIENT": SEARCHES,
    "likelihood.stage._PER_FACTOR": SEARCHES,
    "likelihood.rounds.TOL": REFINING,
    "likelihood.rounds.MOST_ROUNDS": REFINING,
    "likelihood.rounds._WIDE": REFINING,
    "likelihood.rounds._MISSED": REFINING,
    "likelihood.rounds._MOST": REFINING,
    "likelihood.statistics.VARIANCE_FLOOR": ("fit ties", "fit diabetes"),
    "model.ridge._HOLD": ("fit cancer", "fit logistic", "infer cancer"),
    "inference.covariance.RIDGE_SHARE": ("infer hard", "infer half", "infer soft", "infer cancer"),
    "inference.covariance.NEAR": ("infer after rounds",),
    "inference.observed._PULL": ("infer hard", "infer half", "infer soft"),
    "federation.checks.TIMES": REPLIES,
    "federation.checks.FAR": REPLIES,
    "federation.checks.NATS": REPLIES,
    "federation.checks.PROMISE": REPLIES,
    "federation.checks._OFF": REPLIES,
    "federation.checks._SHORT": REPLIES,
    "federation.checks._SHORTER": REPLIES,
    "reporting.checks._MOST": ("report",),
    "reporting.checks._ALONE": ("report",),
    "reporting.checks._SMALL": ("report",),
    "selection.result.CLEAR": ("elbow",),
    "selection.select.ROWS_PER_PARAMETER": ("elbow",),
}
"""Constants by room, module and name, and the jobs on which they are tried."""

JOBS: dict[str, Job] = plain.JOBS | lies.JOBS


@dataclass(frozen=True)
class Tolerance:
    """By how much a metric may change before it matters."""

    absolute: float = 0.0
    relative: float = 0.0

    def verdict(self, before: float, after: float) -> str:
        away = abs(after - before)
        if away <= 1e-9 * max(abs(before), abs(after)):
            return "same"
        return "flat" if away <= self.absolute + self.relative * abs(before) else "matters"


TOLERANCES = {
    "nats": Tolerance(absolute=1e-3),  # per row: what nobody would notice
    "R_c": Tolerance(relative=0.01),  # what counts as one and the same optimum
    "gate error": Tolerance(relative=0.05),
    "iterations": Tolerance(relative=0.1),
    "highest z of a good site": Tolerance(absolute=0.5),  # deviations
    "lowest z of a bad site": Tolerance(absolute=0.5),
    "weight of liars": Tolerance(absolute=0.05),  # summed over many sets of sites
    "seconds": Tolerance(relative=0.5),
}
"""Of the metrics; what is not here is a count, of which every change matters."""


def verdict(metric: str, before: float, after: float) -> str:
    """Say whether a change of a metric matters, by the rule of this module."""
    return TOLERANCES.get(metric, Tolerance()).verdict(before, after)


# -- other values ------------------------------------------------------------------------------


def place(constant: str) -> tuple[Any, str]:
    """Return the module and the name of a constant."""
    module, _, name = constant.rpartition(".")
    return import_module(f"otmoe.{module}"), name


def value_of(constant: str) -> Any:
    return getattr(*place(constant))


def times(value: Any, factor: float) -> Any:
    """Return a value halved or doubled: whole numbers stay whole, and one at least."""
    if isinstance(value, tuple):
        return tuple(times(v, factor) for v in value)
    return max(round(value * factor), 1) if isinstance(value, int) else value * factor


@contextmanager
def patched(constant: str, value: Any) -> Iterator[None]:
    """Give a constant another value, wherever in the package it has been imported."""
    _, name = place(constant)
    own = value_of(constant)
    modules = [
        module
        for key, module in list(sys.modules.items())
        if key.startswith("otmoe.") and vars(module).get(name) is own
    ]
    for module in modules:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, name, own)


# -- measuring ---------------------------------------------------------------------------------


def cases(settings: Settings) -> list[Row]:
    """Return what is tried; quickly, one constant of every room on one job."""
    found, rooms = [], set()
    for constant, jobs in CONSTANTS.items():
        value, room = value_of(constant), constant.split(".")[0]
        if settings.quick and room in rooms:
            continue
        rooms.add(room)
        for job in jobs[:1] if settings.quick else jobs:
            for factor in (2.0,) if settings.quick else (0.5, 2.0):
                tried = times(value, factor)
                found += [
                    {
                        "constant": constant,
                        "value": text(value),
                        "tried": text(tried),
                        "job": job,
                        "metric": metric,
                    }
                    for metric in JOBS[job].metrics
                    if tried != value
                ]
    return found


def text(value: Any) -> str:
    return " to ".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}"


def measure(case: Row, settings: Settings) -> Row:
    """Compare a metric of a job at the value of a constant and at another one."""
    constant, metric = case["constant"], case["metric"]
    value = value_of(constant)
    tried = next(t for f in (0.5, 2.0) if text(t := times(value, f)) == case["tried"])
    before, after = compared(constant, tried, case["job"], settings.quick)
    return {
        "at_value": before[metric],
        "at_tried": after[metric],
        "verdict": verdict(metric, before[metric], after[metric]),
    }


@cache
def compared(constant: str, tried: Any, job: str, quick: bool) -> tuple[Found, Found]:
    """Return the metrics of a job at both values; seconds are a ratio, 1 at the value."""
    before = usual(job, quick)
    ratios = []
    repeats = 3 if "seconds" in JOBS[job].metrics and not quick else 1
    for _ in range(repeats):
        after, seconds = done(job, quick, constant, tried)
        if "seconds" not in JOBS[job].metrics:
            return before, after
        ratios.append(seconds / done(job, quick)[1])
        if seconds > 2:  # what takes so long needs no second look
            break
    return before | {"seconds": 1.0}, after | {"seconds": median(ratios)}


@cache
def usual(job: str, quick: bool) -> Found:
    """Return the metrics of a job with every constant at its value; makes what it starts from."""
    return done(job, quick)[0]


def done(job: str, quick: bool, constant: str = "", tried: Any = None) -> tuple[Found, float]:
    """Do a job, with another value of a constant if one is named, and return its seconds too."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # warnings of a job are counted where they are a metric
        with patched(constant, tried) if constant else warnings.catch_warnings():
            start = process_time()  # on one thread: whatever else the machine does is not counted
            found = JOBS[job].run(quick)
            return found, process_time() - start


# -- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfConstants(Benchmark):
    """A table with one line for each constant, of many rows of the CSV."""

    def table(self, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the cells of the table."""
        body = []
        for constant in dict.fromkeys(row["constant"] for row in rows):
            mine = [row for row in rows if row["constant"] == constant]
            tried = list(dict.fromkeys(row["tried"] for row in mine))
            body.append(
                [
                    f"`{constant}`",
                    mine[0]["value"],
                    str(len({row["job"] for row in mine})),
                    *(said([r for r in mine if r["tried"] == t], t) for t in tried),
                    *("–" for _ in range(2 - len(tried))),
                ]
            )
        return [column.head for column in self.columns], body


def said(rows: list[Row], tried: str) -> str:
    """Return what a value of a constant changes, one example for each metric."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if row["verdict"] == "matters":
            kinds.setdefault(row["metric"], []).append(row)
    if not kinds:
        return f"{tried}: {'flat' if any(r['verdict'] == 'flat' for r in rows) else 'same'}"
    parts = []
    for metric, some in kinds.items():
        worst = max(some, key=lambda r: abs(float(r["at_tried"]) - float(r["at_value"])))
        before, after = (float(worst[key]) for key in ("at_value", "at_tried"))
        if metric == "seconds":
            parts.append(f"{after:.2g} times the seconds ({worst['job']})")
        else:
            parts.append(f"{metric} {before:.4g} → {after:.4g} ({worst['job']})")
    return f"{tried}: " + "; ".join(parts)


BENCHMARK = OfConstants(
    "constants",
    "Constants halved and doubled: what changes by more than it may",
    cases,
    measure,
    (
        Column("constant", "constant"),
        Column("value", "value"),
        Column("jobs", "jobs", "{:.0f}"),
        Column("halved", "halved"),
        Column("doubled", "doubled"),
    ),
)
