"""The paper's study: every step alone and restartable, or all of them.

    python -m paper quick       a small version of everything, into build/paper
    python -m paper all         everything in full; goes on where it was interrupted
    python -m paper timing      learning times, for which the machine has to be quiet
    python -m paper figures     figures of the CSVs in paper/results
    python -m paper docs        tables and figures of the pages in docs

Real data are looked for where OTMOE_DATA says, and left out if there are none.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from rich.console import Console

from paper import claims, figures, tables, traces
from paper.findings import RESULTS, Findings
from paper.study import STUDIES, Part
from paper.study import run as run_study
from paper.writing import write_docs
from studies.tables import console, markdown, show

BUILD = Path(__file__).parents[1] / "build" / "paper"
TIMING = [Part("hard", 1_000_000, 3), Part("hard", 100_000, 5)]
REAL = ("mmash", "beijing", "nycflights")
SIMULATED = ("variants", "coverage", "covariate_shift", "gate_softness")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("step", choices=["quick", "all", "timing", "figures", "docs"])
    parser.add_argument("--jobs", type=int, default=1, help="truths side by side, in `all`")
    parser.add_argument("--device", default="cpu", help="of the study in `all`, such as cuda")
    args = parser.parse_args()
    out = console()
    if args.step == "quick":
        quick(BUILD, out)
    elif args.step == "all":
        everything(args.jobs, args.device, out)
    elif args.step == "timing":
        run_study(TIMING, RESULTS / "learning_time.csv", None, 1, "cpu", out)
    elif args.step == "figures":
        figures.save(Findings.read(), figures.IMAGES)
    else:
        write_docs(Findings.read())


def quick(folder: Path, out: Console) -> None:
    """Run a small study, and make its figures and tables."""
    begin = perf_counter()
    run_study(STUDIES["quick"], folder / "study.csv", None, min(2, os.cpu_count() or 1), "cpu", out)
    traces.run(folder / "mm_traces.csv", (20_000,), 2)
    steps("variants", ["--quick", "--out", str(folder / "variants.csv")])
    for name in REAL if has_data(out) else ():
        steps(name, ["--quick", "--out", str(folder / f"{name}.csv")])
    findings = Findings.read(folder)
    images = figures.save(findings, folder)
    shown = [tables.medians(findings, "hard", n) for n in findings.sizes()]
    shown += [tables.duel(findings, rival) for rival in ("Mid", "W")]
    shown += [tables.slopes(findings), claims.table(findings)]
    show(shown, out)
    (folder / "tables.md").write_text("\n".join(markdown(shown)))
    out.print(
        f"{len(images)} figures, the tables and the CSVs are in {folder}: "
        f"{perf_counter() - begin:.0f} s. Few rows and two truths show that it runs, no more."
    )


def everything(jobs: int, device: str, out: Console) -> None:
    """Run every study in full, each going on where it stopped, and write the pages."""
    names = ("paper", "rounds", "consistency")
    parts = [part for name in names for part in STUDIES[name]]
    run_study(parts, RESULTS / "study.csv", None, jobs, device, out)
    run_study(TIMING, RESULTS / "learning_time.csv", None, 1, "cpu", out)
    traces.run(RESULTS / "mm_traces.csv", traces.ROWS, traces.TRUTHS)
    for name in SIMULATED + (REAL if has_data(out) else ()):
        steps(name, [])
        steps(name, ["--docs"])
    write_docs(Findings.read())


def has_data(out: Console) -> bool:
    if os.environ.get("OTMOE_DATA"):
        return True
    out.print("OTMOE_DATA names no folder: the studies on real data are left out.")
    return False


def steps(name: str, options: list[str]) -> None:
    """Run a study of its own in another process; end if it fails."""
    subprocess.run([sys.executable, "-m", f"paper.{name}", *options], check=True)


if __name__ == "__main__":
    main()
