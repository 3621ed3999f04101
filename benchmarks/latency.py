"""How long one waits: for help, for a usage error, for an import, for a run on few rows.

Every figure is the median of several new processes, on the clock; the seconds of a processor stand
beside it for machines with other work. A run is `otmoe run --refine auto` on four Parquet files,
with the default number of processes and with one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from studies.rows import Row

REPEATS = 5
FILES = 4
SHORT = {
    "otmoe --help": ["-m", "otmoe", "--help"],
    "otmoe run --help": ["-m", "otmoe", "run", "--help"],
    "otmoe run, without --target": ["-m", "otmoe", "run", "data"],
    "otmoe --version": ["-m", "otmoe", "--version"],
    "import otmoe": ["-c", "import otmoe"],
    "from otmoe import MoERegressor": ["-c", "from otmoe import MoERegressor"],
}


def cases(settings: Settings) -> Iterator[Row]:
    for what in SHORT:
        yield {"what": what, "rows": "", "features": "", "experts": ""}
    sizes = [(12_000, 5, 3)] if settings.quick else [(12_000, 5, 3), (400_000, 20, 3)]
    for rows, features, experts in sizes:
        what = "otmoe run --refine auto"
        yield {"what": what, "rows": rows, "features": features, "experts": experts}


def measure(case: Row, settings: Settings) -> Row:
    repeats = 1 if settings.quick or case["rows"] == 400_000 else REPEATS
    if case["what"] in SHORT:
        found = [timed(SHORT[case["what"]]) for _ in range(repeats)]
        seconds, cpu = (median(part) for part in zip(*found, strict=True))
        return {"seconds": seconds, "cpu_s": cpu, "one_s": "", "ratio": ""}
    with TemporaryDirectory() as folder:
        shell = ["-m", "otmoe"]
        size = ["--rows", case["rows"], "--features", case["features"]]
        size += ["--experts", case["experts"], "--files", FILES, "--seed", SEED]
        timed([*shell, "simulate", "-o", Path(folder, "data"), *size])
        what = [*shell, "run", Path(folder, "data"), "--target", "y", "--experts", case["experts"]]
        what += ["--refine", "auto", "--force", "-q", "-o", Path(folder, "model.json")]
        found: dict[str, list[float]] = {"seconds": [], "one_s": []}
        for _ in range(repeats):  # in turns, so that other work on the machine meets both
            found["seconds"].append(timed(what)[0])
            found["one_s"].append(timed([*what, "--n-jobs", 1])[0])
    seconds, one = median(found["seconds"]), median(found["one_s"])
    return {"seconds": seconds, "cpu_s": "", "one_s": one, "ratio": seconds / one}


def timed(args: list[object]) -> tuple[float, float]:
    """Return the seconds that a new interpreter takes, on the clock and of a processor."""
    begin, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    seconds, after = perf_counter() - begin, getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if done.returncode not in (0, 2):  # 2: the command line is wrong, on purpose
        raise RuntimeError(done.stderr)
    return seconds, cpu


def is_shell(row: Row) -> bool:
    """Say whether a row is about help or a usage error."""
    return not row["rows"] and str(row["what"]).startswith("otmoe ")


def is_import(row: Row) -> bool:
    """Say whether a row is about importing the package."""
    return row["what"] == "import otmoe"


def is_small_run(row: Row) -> bool:
    """Say whether a row is about a run on few rows."""
    return str(row["rows"]) == "12000"


BENCHMARK = Benchmark(
    name="latency",
    title="How long one waits",
    cases=cases,
    measure=measure,
    columns=(
        Column("what", "what"),
        Column("rows", "rows", "{:,.0f}"),
        Column("features", "features"),
        Column("experts", "experts"),
        Column("seconds", "seconds", "{:.2f}"),
        Column("cpu_s", "of a processor", "{:.2f}"),
        Column("one_s", "with --n-jobs 1", "{:.2f}"),
        Column("ratio", "ratio", "{:.2f}"),
    ),
    requirements=(
        Requirement("seconds", "seconds of help and usage errors", at_most=0.3, of=is_shell),
        Requirement("seconds", "seconds of import otmoe", at_most=0.5, of=is_import),
        Requirement("ratio", "times one process, on 12,000 rows", at_most=1.5, of=is_small_run),
    ),
)
