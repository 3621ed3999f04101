"""Measure, print tables and keep the figures: ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from benchmarks import (
    attacks,
    bad_nodes,
    between,
    clustered,
    constants,
    defaults,
    em_pass,
    families,
    flexmix,
    gpu_fit,
    gpu_pass,
    groups,
    hindsight,
    latency,
    many,
    memory,
    merging,
    out_of_core,
    personal,
    policy,
    questions,
    reduction,
    refine,
    report,
    resume,
    scale,
    screening,
    search,
    secure,
    splines,
    whole_fit,
    wide,
)
from benchmarks.harness import RESULTS, Settings, rewrite, run, show
from studies.rows import read

SPEED = (em_pass.BENCHMARK, whole_fit.BENCHMARK, memory.BENCHMARK, reduction.BENCHMARK)
ALL = (
    *SPEED,
    refine.BENCHMARK,
    out_of_core.BENCHMARK,
    resume.BENCHMARK,
    many.BENCHMARK,
    scale.BENCHMARK,
    scale.PREDICTIONS,
    gpu_pass.BENCHMARK,
    gpu_fit.BENCHMARK,
    families.BENCHMARK,
    screening.BENCHMARK,
    attacks.BENCHMARK,
    bad_nodes.BENCHMARK,
    search.BENCHMARK,
    wide.BENCHMARK,
    merging.BENCHMARK,
    report.BENCHMARK,
    latency.BENCHMARK,
    constants.BENCHMARK,
    clustered.BENCHMARK,
    groups.BENCHMARK,
    personal.STATIONS,
    personal.BENCHMARK,
    hindsight.BENCHMARK,
    policy.BENCHMARK,
    questions.MESSAGES,
    questions.QUESTIONS,
    between.BENCHMARK,
    secure.BENCHMARK,
    splines.CHOICE,
    splines.BENCHMARK,
    flexmix.BENCHMARK,
    *defaults.BENCHMARKS,
)
ROOT = Path(__file__).parents[1]


def main() -> None:
    names = [benchmark.name for benchmark in ALL]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"what to measure, of {', '.join(names)}, or defaults for all of defaults_*; "
        f"without a name {', '.join(b.name for b in SPEED)}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer rows and repetitions, elsewhere"
    )
    parser.add_argument("--resume", action="store_true", help="keep the rows that are in the CSV")
    parser.add_argument(
        "--threads", type=int, nargs="+", help="numbers of threads; 1 and all cores by default"
    )
    parser.add_argument("--out", type=Path, help="folder of the CSV files")
    parser.add_argument("--show", action="store_true", help="print what the CSV files hold")
    parser.add_argument(
        "--docs", action="store_true", help="write the tables in the documentation from the CSV"
    )
    args = parser.parse_args()
    unknown = set(args.names) - {*names, "defaults"}
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {names}")

    wanted = {n for n in names if n.startswith("defaults")} if "defaults" in args.names else set()
    wanted |= set(args.names)
    chosen = [b for b in ALL if b.name in wanted] if args.names else list(SPEED)
    folder = args.out or (ROOT / "build" / "benchmarks" if args.quick else RESULTS)
    console = Console()
    if args.docs:
        pages = ("benchmarks", "report", "inference", "groups", "policy", "secure", "robust")
        for page in (f"{name}.md" for name in pages):
            rewrite(ROOT / "docs" / page, ALL, folder)
        return
    settings = Settings(args.quick, tuple(args.threads or sorted({1, os.cpu_count() or 1})))
    for benchmark in chosen:
        if args.show:
            show(benchmark, read(folder / f"{benchmark.name}.csv"), console)
        else:
            run(benchmark, settings, folder, resume=args.resume, console=console)


if __name__ == "__main__":
    main()
