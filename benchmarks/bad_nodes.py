"""Whether one Flower node that misbehaves costs the others anything, in real runs.

A SuperLink and four SuperNodes on this machine, of which one misbehaves (`studies.bad_nodes`),
with on-error = "skip". A run is right if its model is that of the honest sites. Needs Flower.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from studies.bad_nodes import KINDS, Nodes, running
from studies.rows import Row

RUNS = 10


@cache
def nodes() -> Nodes:
    """Return one federation for all runs; it ends with this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running(Path(stack.enter_context(TemporaryDirectory()), "nodes")))


def measure(case: Row, settings: Settings) -> Row:
    kind = case["kind"]
    place = list(KINDS).index(kind)
    numbers = range(1 if settings.quick else RUNS)
    runs = [nodes().run([kind], f"out-{place}-{number}") for number in numbers]
    return {
        "runs": len(runs),
        "right": sum(run.is_right for run in runs),
        "away": max(run.away for run in runs),
        "seconds": median(run.seconds for run in runs),
    }


BENCHMARK = Benchmark(
    "bad_nodes",
    "Flower runs with one node that misbehaves",
    lambda settings: [{"kind": kind} for kind in KINDS],
    measure,
    (
        Column("kind", "the bad node sends"),
        Column("runs", "runs", "{:.0f}"),
        Column("right", "with the other sites' model", "{:.0f}"),
        Column("seconds", "seconds", "{:.0f}"),
    ),
    (Requirement("away", "standard errors from the other sites' model", at_most=0.01),),
)
