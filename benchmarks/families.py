"""How often a fit with default settings finds a maximum as high as that next to the truth."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from benchmarks.harness import Benchmark, Column, Settings
from otmoe import simulate
from otmoe.likelihood.fit import em
from otmoe.model.experts import FAMILIES
from studies.rows import Row


def cases(settings: Settings) -> list[Row]:
    return [
        {"family": family, "d": d, "softness": softness}
        for family in FAMILIES
        for d in ((5,) if settings.quick else (5, 10))
        for softness in ((1.0,) if settings.quick else (0.0, 0.5, 1.0))
    ]


def measure(case: Row, settings: Settings) -> Row:
    truths = 2 if settings.quick else 10 if case["softness"] == 0 else 5
    found, seconds = [], []
    for seed in range(truths):
        data = simulate(
            20_000,
            3,
            case["d"],
            family=case["family"],
            softness=case["softness"],
            random_state=seed,
        )
        start = perf_counter()
        fit = em(data.X, data.y, 3, family=case["family"], n_classes=3, random_state=seed)
        seconds.append(perf_counter() - start)
        known = em(data.X, data.y, init=data.truth, family=case["family"], n_classes=3)
        found.append(fit.trace[-1] >= known.trace[-1] - 1)
    return {"truths": truths, "found": np.mean(found), "seconds": np.median(seconds)}


BENCHMARK = Benchmark(
    "families",
    "Fits that end as high as one that sets out from the truth, less a nat (N=20,000, K=3), by "
    "softness of the gate",
    cases,
    measure,
    (Column("family", "family"), Column("d", "features", "{:.0f}")),
    across="softness",
    cell="{found:.0%} in {seconds:.1f} s",
)
