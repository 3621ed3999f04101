"""The measurements behind the defaults of a fit: searches, their first rows, ridge, tolerance.

Every case fits the same truths. A fit that is at least as likely as the truth less 20 nats is
taken to have found the right optimum: the maximum lies some 75 nats (half the number of parameters)
above the truth, other optima of hard and soft gates a hundred or more below.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import SEED, Benchmark, Column, Settings
from otmoe.datasets.simulation import Simulation
from otmoe.likelihood.fit import Fit, em
from studies.rows import Row
from studies.truths import KINDS, draw

SMALL, MIDDLE, LARGE = 1562, 8000, 100_000  # rows; 1,562 is 100,000 over 64 sites
SLACK = 20.0  # nats
TEST_ROWS = 20_000


def cases(
    truths: dict[int, int], name: str, values: tuple[float, ...], settings: Settings
) -> list[Row]:
    """Return every kind, number of rows and value; `truths` says how many for a number of rows."""
    return [
        {"kind": kind, "n": n, name: value, "truths": min(count, 5) if settings.quick else count}
        for kind in KINDS
        for n, count in truths.items()
        for value in values
    ]


def over_truths(case: Row, one: Callable[[Simulation, int], Row]) -> list[Row]:
    """Return `one(data, seed)` for every truth of a case, with a count of the warnings raised.

    Everything runs on one thread.
    """
    found = []
    for seed in range(SEED, SEED + case["truths"]):
        data = draw(case["kind"], case["n"], seed)
        with threadpool_limits(1), warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            found.append(one(data, seed))
        found[-1]["warnings"] = len(raised)
    return found


def timed(data: Simulation, seed: int, **options: object) -> tuple[Fit, float]:
    begin = perf_counter()
    fit = em(data.X, data.y, data.truth.n_experts, random_state=seed, **options)
    return fit, perf_counter() - begin


def column(runs: list[Row], key: str) -> list[float]:
    return [float(run[key]) for run in runs]


# -- searches ----------------------------------------------------------------------------------


def measure_starts(case: Row, settings: Settings) -> Row:
    """Measure how often the right optimum is found by `n_init` searches."""

    def one(data: Simulation, seed: int) -> Row:
        fit, seconds = timed(data, seed, n_init=case["n_init"])
        short = float(data.truth.log_density(data.X, data.y).sum()) - fit.log_likelihood
        troubled = not fit.converged or bool(fit.warnings)
        return {"short": short, "seconds": seconds, "troubled": troubled}

    runs = over_truths(case, one)
    return {
        "share_right": np.mean([short <= SLACK for short in column(runs, "short")]),
        "worst_nats_per_row": max(column(runs, "short")) / case["n"],
        "seconds": median(column(runs, "seconds")),
        "troubled_fits": int(sum(column(runs, "troubled"))),
        "python_warnings": int(sum(column(runs, "warnings"))),
    }


# -- the ridge ---------------------------------------------------------------------------------


def measure_alpha(case: Row, settings: Settings) -> Row:
    """Measure what a ridge costs on rows not fitted, starting at the truth."""

    def one(data: Simulation, seed: int) -> Row:
        test = data.draw(TEST_ROWS, seed + 10_000)
        fit, seconds = timed(data, seed, init=data.truth, alpha=case["alpha"])
        gap = data.truth.log_density(test.X, test.y) - fit.model.log_density(test.X, test.y)
        return {
            "gap": float(gap.mean()),
            "gate": largest(fit.model.gate.coef),
            "true_gate": largest(data.truth.gate.coef),
            "passes": fit.n_iter,
            "converged": fit.converged,
            "seconds": seconds,
        }

    runs = over_truths(case, one)
    return {
        "median_nats": median(column(runs, "gap")),
        "worst_nats": max(column(runs, "gap")),
        "largest_gate": median(column(runs, "gate")),
        "largest_true_gate": median(column(runs, "true_gate")),
        "passes": median(column(runs, "passes")),
        "not_converged": case["truths"] - int(sum(column(runs, "converged"))),
        "seconds": median(column(runs, "seconds")),
        "python_warnings": int(sum(column(runs, "warnings"))),
    }


def largest(gate: np.ndarray) -> float:
    """Return the largest coefficient of a gate about the mean of its experts."""
    return float(np.abs(gate - gate.mean(axis=0)).max())


# -- the tolerance -----------------------------------------------------------------------------


def measure_tol(case: Row, settings: Settings) -> Row:
    """Measure how far from the maximum a fit stops, starting as it does by itself."""

    def one(data: Simulation, seed: int) -> Row:
        fit, seconds = timed(data, seed, n_init=1, tol=case["tol"])
        best, _ = timed(data, seed, init=fit.model, tol=1e-14)
        return {
            "short": best.trace[-1] - fit.trace[-1],
            "passes": fit.n_iter,
            "converged": fit.converged,
            "seconds": seconds,
        }

    runs = over_truths(case, one)
    return {
        "passes": median(column(runs, "passes")),
        "most_passes": max(column(runs, "passes")),
        "median_nats": median(column(runs, "short")),
        "worst_nats": max(column(runs, "short")),
        "not_converged": case["truths"] - int(sum(column(runs, "converged"))),
        "seconds": median(column(runs, "seconds")),
        "python_warnings": int(sum(column(runs, "warnings"))),
    }


# -- the tables --------------------------------------------------------------------------------

COLUMNS = (Column("kind", "truth"), Column("n", "rows", "{:,.0f}"), Column("truths", "truths"))

BENCHMARKS = (
    Benchmark(
        "defaults_n_init",
        "Number of searches: share of truths whose optimum is found, and median seconds",
        partial(cases, {SMALL: 10, MIDDLE: 10}, "n_init", (1, 2, 3, 6)),
        measure_starts,
        COLUMNS,
        across="n_init",
        cell="{share_right:.0%}, {seconds:.2f} s",
    ),
    Benchmark(
        "defaults_alpha",
        "Ridge on the gate: nats per test row below the truth, median and worst",
        partial(cases, {SMALL: 24, MIDDLE: 24, LARGE: 4}, "alpha", (0.0, 0.003, 0.03, 0.1, 1.0)),
        measure_alpha,
        COLUMNS,
        across="alpha",
        cell="{median_nats:.4f}, {worst_nats:.4f}",
    ),
    Benchmark(
        "defaults_tol",
        "Tolerance: median iterations on all rows, and nats below the maximum at worst",
        partial(cases, {SMALL: 8, MIDDLE: 8}, "tol", (1e-4, 1e-6, 1e-8, 1e-10)),
        measure_tol,
        COLUMNS,
        across="tol",
        cell="{passes:.0f}, {worst_nats:.0e}",
    ),
)
