"""Whether every seed ends in the same maximum, on real tables.

A height is a penalised log-likelihood. The best one known is the best of the fits here and of those
in the tracked CSV, so that a higher one found later replaces it; one with an expert that has too
few rows for the search to accept it, or a variance at its floor, does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from time import process_time

import numpy as np
from sklearn import datasets as small
from threadpoolctl import threadpool_limits

from benchmarks.harness import RESULTS, Benchmark, Column, Requirement, Settings
from otmoe import FeatureSpec
from otmoe.datasets import load_beijing, load_flights, load_mmash
from otmoe.datasets.real import data_folder
from otmoe.likelihood.fit import em
from otmoe.text.errors import OtmoeError
from otmoe.text.sentences import Warn
from studies.rows import Row, read

SEEDS = 5
ROWS = 60_000
TUNED_ON = 123
SUBSETS = (TUNED_ON, 7, 8, 9)
"""Seeds of the random subsets; the search was tuned on the first, the others had no part in it."""

LONG = 6
"""Experts from which on a fit takes minutes, and one subset has to do."""

NO_FEATURES = ("late15", "carrier", "day")

NO_MAXIMUM = {Warn.EXPERT_BY_CHANCE.code, Warn.VARIANCE_AT_FLOOR.code}
"""Warnings about an expert whose likelihood says nothing."""

KNOWN = read(RESULTS / "search.csv")
"""Earlier results, read now: a run that is not resumed begins with an empty file."""

Table = tuple[np.ndarray, np.ndarray, str]


def _beijing() -> Table:
    found = load_beijing()
    return found.X[found.train], found.y[found.train], "gaussian"


def _mmash() -> Table:
    found = load_mmash()
    return found.X, found.y, "gaussian"


def _flights() -> Table:
    table = load_flights()
    spec = FeatureSpec.from_sample(table, [c for c in table.column_names if c not in NO_FEATURES])
    X = spec.encode(table, missing="keep")
    y = table["late15"].to_numpy(zero_copy_only=False).astype(float)
    whole = ~(np.isnan(X).any(axis=1) | np.isnan(y))
    return X[whole], y[whole], "logistic"


def _diabetes() -> Table:
    X, y = small.load_diabetes(return_X_y=True)
    return X, y.astype(float), "gaussian"


def _cancer() -> Table:
    X, y = small.load_breast_cancer(return_X_y=True)
    return X, y.astype(float), "logistic"


def _randhie() -> Table:
    from statsmodels.datasets import randhie

    found = randhie.load_pandas()
    return found.exog.to_numpy(float), found.endog.to_numpy(float), "poisson"


TABLES: dict[str, tuple[Callable[[], Table], tuple[int, ...]]] = {
    "beijing": (_beijing, (4, 6)),
    "mmash": (_mmash, (4, 6)),
    "flights": (_flights, (2, 3)),
    "diabetes": (_diabetes, (2, 3)),
    "cancer": (_cancer, (2,)),
    "randhie": (_randhie, (2, 3, 4)),
}
"""Tables, and the numbers of experts that are fitted to them."""


def cases(settings: Settings) -> list[Row]:
    known = ("diabetes", "cancer") if settings.quick else tuple(filter(_is_here, TABLES))
    return [
        {"table": name, "experts": K, "subset": subset}
        for subset in (SUBSETS[:1] if settings.quick else SUBSETS)
        for name in known
        for K in TABLES[name][1]
        if K < LONG or subset == TUNED_ON
    ]


def _is_here(name: str) -> bool:
    if name == "randhie":
        return find_spec("statsmodels") is not None
    if name in ("diabetes", "cancer"):
        return True
    try:
        return data_folder().is_dir()
    except OtmoeError:
        return False


@cache
def _table(name: str) -> Table:
    return TABLES[name][0]()


def subset_of(name: str, subset: int) -> Table:
    """Return at most 60,000 random rows; of a small table all, or four fifths for other subsets."""
    X, y, family = _table(name)
    size = min(len(y), ROWS)
    if size == len(y) and subset != TUNED_ON:
        size = 4 * len(y) // 5
    index = np.sort(np.random.default_rng(subset).choice(len(y), size, replace=False))
    return X[index], y[index], family


def measure(case: Row, settings: Settings) -> Row:
    X, y, family = subset_of(case["table"], case["subset"])
    best = known_best(KNOWN, case)
    found = ends(X, y, family, int(case["experts"]), best, settings)
    del found["unsaid"]
    return {"rows": len(y), **found}


def ends(X: np.ndarray, y: np.ndarray, family: str, K: int, best: float, settings: Settings) -> Row:
    """Return where fits from several seeds end, beside the best maximum known before."""
    heights, seconds, agreed, counted, warned = [], [], [], [], []
    with threadpool_limits(1):
        for seed in range(2 if settings.quick else SEEDS):
            begin = process_time()
            fit = em(X, y, K, family=family, random_state=seed)
            seconds.append(process_time() - begin)
            heights.append(float(fit.trace[-1]))
            codes = {warning.code for warning in fit.warnings}
            counted.append(not codes & NO_MAXIMUM)
            warned.append(bool(codes))
            agreed.append(fit.agreement.agreed / fit.agreement.searches)
    best = max([*np.array(heights)[counted], best])
    below = np.where(counted, best - np.array(heights), np.inf)
    return {
        "best_known": f"{best:.2f}",  # to the last digit that counts
        "at_best": float(np.mean(below <= 1.0)),
        "worst_below": float(below.max()),
        "unsaid": float(np.mean((below > 1.0) & ~np.array(warned))),
        "heights": " ".join(f"{height:.2f}" for height in heights),
        "agreed": float(np.mean(agreed)),
        "seconds": float(np.median(seconds)),
    }


def known_best(known: list[Row], case: Row) -> float:
    """Return the best maximum of a case in earlier results."""
    same = [
        float(row["best_known"])
        for row in known
        if all(row[key] == str(value) for key, value in case.items())
    ]
    return max(same, default=-np.inf)


BENCHMARK = Benchmark(
    "search",
    "Fits with default settings from five seeds: share within one nat of the best known maximum, "
    "nats that the worst lies below it, processor seconds",
    cases,
    measure,
    (
        Column("table", "table"),
        Column("experts", "K", "{:.0f}"),
        Column("subset", "subset", "{:.0f}"),
        Column("best_known", "best known", "{:,.2f}"),
        Column("at_best", "at the best", "{:.0%}"),
        Column("worst_below", "worst below", "{:.1f}"),
        Column("agreed", "searches agreed", "{:.0%}"),
        Column("seconds", "seconds", "{:.2f}"),
    ),
    (Requirement("worst_below", "nats below the best known maximum", at_most=10.0),),
)
