"""Ten million rows in 64 Parquet files, fitted by workers: memory of driver and workers, and time.

A process of its own is the driver. It first fits two tiny files, so that libraries are loaded and
kernels compiled everywhere; what driver and workers hold then is their base, and the peak above it
is what the run costs. The time is set against that of reading the files once, on as many workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import SEED, Benchmark, Column, Requirement, Settings
from benchmarks.memory import MB
from otmoe import DistributedMoERegressor, shards_from
from otmoe.workers.gather import Workers, gather
from otmoe.workers.pools import local_workers
from studies.rows import Row
from studies.truths import draw

FILES = 64


def cases(settings: Settings) -> list[Row]:
    return [{"kind": "hard", "workers": n} for n in settings.threads if n > 1]


def measure(case: Row, settings: Settings) -> Row:
    n = 640_000 if settings.quick else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), case["kind"], n)
        write(Path(folder, "_tiny"), case["kind"], 4000, files=2)
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.out_of_core", folder, str(case["workers"])],
            check=True,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )
    found = json.loads(child.stdout)
    shard = n // FILES * 21 * 8
    return {
        "n": n,
        "files": FILES,
        "shard_mb": shard / MB,
        "driver_above_mb": found["driver"] / MB,
        "driver_peak_mb": found["driver_peak"] / MB,
        "worker_above_mb": found["worker"] / MB,
        "worker_shards": found["worker"] / shard,
        "run_seconds": found["run"],
        "read_seconds": found["read"],
        "reads": found["run"] / found["read"],
        "below_truth": found["below_truth"],
    }


def write(folder: Path, kind: str, n: int, files: int = FILES) -> None:
    """Write rows of one truth into files, one after another."""
    folder.mkdir(exist_ok=True)
    data = draw(kind, 10_000, SEED)
    for i in range(files):
        part = data.draw(n // files, SEED + 1 + i)
        columns = {f"x{j}": part.X[:, j] for j in range(part.X.shape[1])}
        pq.write_table(pa.table({"y": part.y, **columns}), folder / f"part-{i:02d}.parquet")


class Peaks:
    """The largest resident memory of this process and of its children, by the kernel's count."""

    def __init__(self) -> None:
        self.workers: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.is_set():
            for pid in children():
                self.workers[pid] = max(self.workers.get(pid, 0), status(pid, "VmHWM"))
            sleep(0.05)

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return max(self.workers.values(), default=0)


def children() -> list[int]:
    """Return the worker processes of this one."""
    mine = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and status(int(entry.name), "PPid") == os.getpid() * 1024:
            command = (entry / "cmdline").read_bytes()
            if b"popen_loky" in command:
                mine.append(int(entry.name))
    return mine


def status(pid: int, key: str) -> int:
    """Return an entry of /proc/PID/status, in bytes where it is in kB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    values = [line.split()[1] for line in lines if line.startswith(f"{key}:")]
    return int(values[0]) * 1024 if values else 0


def read_only(shard: Any) -> int:
    return len(shard.read().y)


def child(folder: str, workers: int) -> None:
    data = draw("hard", 4000, SEED)
    tiny = shards_from(Path(folder, "_tiny"), target="y")
    pool = local_workers(workers)()  # one pool for all, so that its base is that of the run
    est = DistributedMoERegressor(4, method="reduction", executor=pool, random_state=SEED)
    est.fit_shards(tiny)
    base = max(status(pid, "VmRSS") for pid in children())
    own = status(os.getpid(), "VmRSS")
    shards = shards_from(folder, target="y")
    begin = perf_counter()
    gather(read_only, shards, [shard.name for shard in shards], Workers(pool))
    read = perf_counter() - begin
    peaks = Peaks()
    begin = perf_counter()
    est.fit_shards(shards)
    run = perf_counter() - begin
    worker = peaks.stop()
    pool.shutdown()
    test = data.draw(20_000, SEED + 1000)
    loss = data.truth.log_density(test.X, test.y) - est.model_.log_density(test.X, test.y)
    print(
        json.dumps(
            {
                "driver": status(os.getpid(), "VmHWM") - own,
                "driver_peak": status(os.getpid(), "VmHWM"),
                "worker": worker - base,
                "run": run,
                "read": read,
                "below_truth": float(np.mean(loss)),
            }
        )
    )


BENCHMARK = Benchmark(
    "out_of_core",
    "Rows in 64 Parquet files (d=20, K=4), fitted by workers and merged",
    cases,
    measure,
    (
        Column("workers", "workers"),
        Column("n", "rows", "{:,.0f}"),
        Column("shard_mb", "a shard, MB", "{:.0f}"),
        Column("driver_peak_mb", "driver at its peak, MB", "{:.0f}"),
        Column("driver_above_mb", "driver above its base, MB", "{:.0f}"),
        Column("worker_shards", "worker above its base, shards", "{:.1f}"),
        Column("run_seconds", "seconds", "{:.0f}"),
        Column("reads", "in readings of the data", "{:.1f}"),
        Column("below_truth", "nats below truth", "{:.4f}"),
    ),
    (
        Requirement("driver_peak_mb", "MB of the driver at its peak", at_most=500),
        Requirement("worker_shards", "shards of a worker above its base", at_most=3),
    ),
)

if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]))
