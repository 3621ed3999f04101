"""A refine round over shards, against one pass over all rows in one place.

The pass gives log-likelihood, score and information of a model, as a step of a centralised
Newton method does. The round asks every shard for the same, adds up and takes the step.
"""

from __future__ import annotations

from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings, ratio, side_by_side
from otmoe.data.shards import RowsShard
from otmoe.distributed.rounds import Question, ask
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rounds import Refinement, advance
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from studies.rows import Row
from studies.truths import draw


def cases(settings: Settings) -> list[Row]:
    sizes = [100_000] if settings.quick else [100_000, 1_000_000]
    return [
        {"kind": kind, "shards": M, "n": n}
        for n in sizes
        for kind in ("hard", "soft")
        for M in (1, 16, 128)
    ]


def measure(case: Row, settings: Settings) -> Row:
    n = case["n"]
    data = draw(case["kind"], n, SEED)
    scaling = Scaling.of(data.X)
    rows, here = Rows(data.X, data.y, scaling=scaling), scaling.from_user(data.truth)
    shards = [
        RowsShard(f"shard {i}", data.X[part], data.y[part])
        for i, part in enumerate(
            slice(part[0], part[-1] + 1) for part in np.array_split(np.arange(n), case["shards"])
        )
    ]
    ridge, target = Ridge.of(data.truth.experts), Target.of(data.truth)

    def one_round() -> None:
        state = Refinement(data.truth, scaling, ridge)
        asked = [Question(shard, data.truth, scaling, target, moments=True) for shard in shards]
        advance(state, ask(asked))

    with threadpool_limits(1):
        seconds = side_by_side(
            {
                "pass": lambda: observed_information(here, rows),
                "glance": lambda: observed_information(here, rows, matrix=False),
                "round": one_round,
            },
            3 if settings.quick else 5,
        )
    return {
        "pass_seconds": median(seconds["pass"]),
        "round_seconds": median(seconds["round"]),
        "round_in_passes": ratio(seconds["round"], seconds["pass"]),
        "glance_in_passes": ratio(seconds["glance"], seconds["pass"]),
    }


BENCHMARK = Benchmark(
    "refine",
    "A refine round, in passes over all rows",
    cases,
    measure,
    (
        Column("kind", "data"),
        Column("shards", "shards", "{:.0f}"),
        Column("n", "rows", "{:,.0f}"),
        Column("pass_seconds", "pass, s", "{:.2f}"),
        Column("round_seconds", "round, s", "{:.2f}"),
        Column("round_in_passes", "round / pass", "{:.2f}"),
        Column("glance_in_passes", "last look / pass", "{:.2f}"),
    ),
    (Requirement("round_in_passes", "a round, in passes over the rows", at_most=1.25),),
)
