"""`otmoe run` killed at nine tenths of its shards, and the same command again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.harness import Benchmark, Column, Requirement, Settings
from studies.rows import Row

ROWS = 400  # of a shard


def cases(settings: Settings) -> list[Row]:
    return [{"shards": 50 if settings.quick else 1000}]


def measure(case: Row, settings: Settings) -> Row:
    shards = case["shards"]
    with TemporaryDirectory() as folder:
        here = Path(folder)
        size = f"--files {shards} --rows {shards * ROWS} --experts 2 --features 5 --softness 0.5"
        otmoe(here, f"simulate -o data {size}")
        begin = perf_counter()
        otmoe(here, run("whole"))
        whole = perf_counter() - begin
        at = 9 * shards // 10
        begin = perf_counter()
        driver = subprocess.Popen(command(run("model")), cwd=here, stdout=subprocess.DEVNULL)
        parts = here / "model.json.parts"
        while len(list(parts.glob("*.fit.npz"))) < at:
            if driver.poll() is not None:
                raise SystemExit("it was done before it was killed: give it more shards")
            time.sleep(0.02)
        driver.kill()
        driver.wait()
        killed = perf_counter() - begin
        kept = len(list(parts.glob("*.fit.npz")))
        begin = perf_counter()
        told = json.loads(otmoe(here, run("model") + " --json"))
        again = perf_counter() - begin
        same = (here / "whole.json").read_bytes() == (here / "model.json").read_bytes()
        return {
            "whole_seconds": whole,
            "killed_seconds": killed,
            "kept": kept,
            "fitted": shards - len(told["reused"]),
            "again_seconds": again,
            "same_bytes": int(same),
        }


def run(name: str) -> str:
    return f"run data --target y --experts 2 --n-jobs 2 -o {name}.json"


def command(words: str) -> list[str]:
    return [sys.executable, "-m", "otmoe", *words.split()]


def otmoe(folder: Path, words: str) -> str:
    done = subprocess.run(command(words), cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


BENCHMARK = Benchmark(
    "resume",
    f"A run of shards of {ROWS} rows, killed (kill -9), and the same command again",
    cases,
    measure,
    (
        Column("shards", "shards", "{:,.0f}"),
        Column("whole_seconds", "undisturbed, s", "{:.1f}"),
        Column("killed_seconds", "killed after, s", "{:.1f}"),
        Column("kept", "fits kept", "{:,.0f}"),
        Column("fitted", "fitted by the second", "{:,.0f}"),
        Column("again_seconds", "the second, s", "{:.1f}"),
        Column("same_bytes", "same bytes", "{:.0f}"),
    ),
    (Requirement("same_bytes", "the same bytes in the model file", at_least=1),),
)
