"""One pass over the rows against the time BLAS needs for the same multiplications.

The floor is the cost of the weighted Gram products alone, were they large square products: one per
expert and one per pair of gate columns in an EM iteration, 2 p^2 operations a row and product, at
the dgemm rate measured between the passes with as many threads.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
from threadpoolctl import ThreadpoolController

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings, ratio, side_by_side
from otmoe.arrays.threads import threads
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import e_step, m_step
from otmoe.model.ridge import Ridge
from studies.rows import Row
from studies.truths import draw

SIDE = 2048  # of the square product that measures the dgemm rate


def cases(settings: Settings) -> list[Row]:
    return [{"kind": kind, "threads": n} for kind in ("hard", "soft") for n in settings.threads]


def measure(case: Row, settings: Settings) -> Row:
    n = 200_000 if settings.quick else 1_000_000
    repeats = 3 if settings.quick else 9
    data = draw(case["kind"], n, SEED)
    square = np.random.default_rng(SEED).standard_normal((SIDE, SIDE))
    blas = ThreadpoolController()

    def dgemm() -> None:
        with blas.limit(limits=case["threads"], user_api="blas"):
            square @ square

    with threads(case["threads"]) as pool:
        rows, _ = Rows(data.X, data.y, pool=pool).standardised(data.truth.experts)
        tenth = replace(rows, X=data.X[: n // 10], y=data.y[: n // 10])
        model = rows.scaling.from_user(data.truth)
        ridge = Ridge.of(model.experts)

        def em(rows: Rows) -> None:
            m_step(model, e_step(model, rows), ridge)

        seconds = side_by_side(
            {
                "pass": lambda: em(rows),
                "dgemm": dgemm,
                "information": lambda: observed_information(model, rows),
                "tenth": lambda: em(tenth),
            },
            repeats,
        )

    K, p = model.n_experts, model.n_features + 1
    predictors = 2 * K - 1  # of the gate and of the experts; a Gram for every pair of them
    em_grams, information_grams = K + K * (K - 1) // 2, predictors * (predictors + 1) // 2
    flops = 2 * n * p**2
    rate = [2 * SIDE**3 / s for s in seconds["dgemm"]]
    floor = [flops * em_grams / r for r in rate]
    return {
        "n": n,
        "repeats": repeats,
        "dgemm_gflops": median(rate) / 1e9,
        "floor_seconds": median(floor),
        "pass_seconds": median(seconds["pass"]),
        "pass_over_floor": ratio(seconds["pass"], floor),
        "tenth_over_floor": ratio(seconds["tenth"], [f / 10 for f in floor]),
        "growth": ratio(seconds["pass"], seconds["tenth"]),
        "information_seconds": median(seconds["information"]),
        "information_over_floor": ratio(
            seconds["information"], [f * information_grams / em_grams for f in floor]
        ),
    }


BENCHMARK = Benchmark(
    "em_pass",
    "A pass over the rows (d=20, K=4) against the dgemm time of its Gram products",
    cases,
    measure,
    (
        Column("kind", "truth"),
        Column("threads", "threads"),
        Column("n", "rows", "{:,.0f}"),
        Column("dgemm_gflops", "dgemm Gflop/s", "{:.0f}"),
        Column("pass_over_floor", "EM pass / floor", "{:.2f}"),
        Column("tenth_over_floor", "same, a tenth of the rows", "{:.2f}"),
        Column("growth", "pass / pass on a tenth", "{:.1f}"),
        Column("information_over_floor", "information pass / floor", "{:.2f}"),
    ),
    (
        Requirement("pass_over_floor", "EM pass / floor", at_most=4),
        Requirement("growth", "pass / pass on a tenth of the rows", at_most=11),
    ),
)
