"""Whether one Flower node that misbehaves costs the others anything, in real runs.

A SuperLink and four SuperNodes on this machine, of which one misbehaves (`studies.bad_nodes`),
with on-error = "skip". A run is right if its model is that of the honest sites. Needs Flower. A row
of the CSV is one run, so that ``--resume`` goes on where a run was stopped; the table has a line
for each kind.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from studies.bad_nodes import KINDS, NEAR, Nodes, running
from studies.rows import Row

RUNS = 10


@cache
def nodes() -> Nodes:
    """Return one federation for all runs; it ends with this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running(Path(stack.enter_context(TemporaryDirectory()), "nodes")))


def cases(settings: Settings) -> Iterable[Row]:
    """Return the runs: every kind once, then every kind again."""
    numbers = range(1, 1 + (1 if settings.quick else RUNS))
    return [{"kind": kind, "run": number} for number in numbers for kind in KINDS]


def measure(case: Row, settings: Settings) -> Row:
    kind = case["kind"]
    run = nodes().run([kind], f"out-{list(KINDS).index(kind)}-{case['run']}")
    if not run.is_right:
        print(run.log)  # it says what went wrong
    return {"right": int(run.is_right), "away": run.away, "run_seconds": run.seconds}


@dataclass(frozen=True)
class OfRuns(Benchmark):
    """A table with one line for each kind, of many rows of the CSV."""

    def table(self, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the cells of the table."""
        body = []
        for kind in dict.fromkeys(row["kind"] for row in rows):
            mine = [row for row in rows if row["kind"] == kind]
            line = {
                "kind": kind,
                "runs": len(mine),
                "right": sum(int(row["right"]) for row in mine),
                "away": max(float(row["away"]) for row in mine),
                "run_seconds": median(float(row["run_seconds"]) for row in mine),
            }
            body.append([column.text(line) for column in self.columns])
        return [column.head for column in self.columns], body


BENCHMARK = OfRuns(
    "bad_nodes",
    "Flower runs with one node that misbehaves",
    cases,
    measure,
    (
        Column("kind", "the bad node sends"),
        Column("runs", "runs", "{:.0f}"),
        Column("right", "with the other sites' model", "{:.0f}"),
        Column("away", "standard errors from it, at most", "{:.2g}"),
        Column("run_seconds", "seconds", "{:.0f}"),
    ),
    (Requirement("away", "standard errors from the other sites' model", at_most=NEAR),),
)
