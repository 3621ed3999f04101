"""Peak memory of a fit above the data it is given.

A process of its own loads the rows, so that making them leaves no peak behind, and fits. The peak
is the kernel's high-water mark of resident memory. (Linux keeps it per program; `ru_maxrss`, which
serves elsewhere, can be inherited from the process that started this one.)
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from otmoe import MoERegressor, simulate
from studies.rows import Row
from studies.truths import draw

MB = 1e6


def cases(settings: Settings) -> list[Row]:
    return [{"kind": kind, "threads": n} for kind in ("hard", "soft") for n in settings.threads]


def measure(case: Row, settings: Settings) -> Row:
    n = 200_000 if settings.quick else 1_000_000
    data = draw(case["kind"], n, SEED)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "X.npy"), data.X)
        np.save(Path(folder, "y.npy"), data.y)
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", folder, str(case["threads"])],
            check=True,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
    before, peak = json.loads(child.stdout)
    return {
        "n": n,
        "data_mb": (data.X.nbytes + data.y.nbytes) / MB,
        "before_mb": before / MB,
        "peak_mb": peak / MB,
        "above_mb": (peak - before) / MB,
    }


def resident() -> tuple[int, int]:
    """Return the present and the largest resident memory of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return tuple(int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest, largest  # macOS: in bytes; nothing before the data was larger


def child(folder: str, threads: int) -> None:
    """Fit the rows in a folder and print resident memory before, and at its peak."""
    small = simulate(500, 2, 3, random_state=SEED)
    MoERegressor(2, n_jobs=threads, random_state=SEED).fit(small.X, small.y)
    X, y = (np.load(Path(folder, name)) for name in ("X.npy", "y.npy"))
    before, _ = resident()
    MoERegressor(4, n_jobs=threads, random_state=SEED).fit(X, y)
    _, peak = resident()
    print(json.dumps([before, peak]))


BENCHMARK = Benchmark(
    "memory",
    "Peak memory of a fit (d=20, K=4) above the data",
    cases,
    measure,
    (
        Column("kind", "truth"),
        Column("threads", "threads"),
        Column("n", "rows", "{:,.0f}"),
        Column("data_mb", "data, MB", "{:.0f}"),
        Column("above_mb", "above the data, MB", "{:.0f}"),
    ),
    (Requirement("above_mb", "MB above the data", at_most=300),),
)

if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]))
