"""How often intervals of 95 % hold the truth: at the maximum, after one round, after refining.

One truth per case; every replication draws new rows and fits them whole with default settings (G).
The rows are also split over small sites, each fitted from the truth, whose models the reduction
merges (R) and refine rounds lead on from there (refined). Intervals of G come from the information
and from the sandwich. Those of R, in the first replications, come from the information of all rows
at R, as if nobody had refused them; those of the refined model from what the sites sent. One row of
the CSV is one table of intervals: how many it has of each block, and how many of them hold the
truth.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from otmoe import LocalModel, MoE, aggregate, draw_support, simulate
from otmoe.data.shards import ArrayShard
from otmoe.datasets.simulation import Simulation
from otmoe.distributed.rounds import refine_shards
from otmoe.inference import (
    Inference,
    distance_to_maximum,
    observed_inference,
    refined_inference,
)
from otmoe.inference.covariance import parameter_covariance
from otmoe.likelihood.fit import em
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.ridge import Ridge
from otmoe.text.errors import InferenceError
from studies.machines import environment, machines
from studies.rows import Row, append, read
from studies.tables import put
from studies.truths import KINDS

PAGE = Path(__file__).parents[1] / "docs" / "inference.md"
CSV = Path(__file__).parent / "results" / "coverage.csv"
ROWS, EXPERTS, FEATURES, GRID = 4000, 3, 3, 50
SITES, SPLIT = 16, 50  # sites of R, and replications that have it
LEVEL = 0.95


@dataclass(frozen=True)
class Case:
    """A truth and how it is fitted."""

    simulate: dict[str, object]
    alpha: float | None = None  # of the family


CASES = {
    "soft": Case(KINDS["soft"]),
    "poisson": Case({"softness": 1.0, "family": "poisson"}),
    "hard": Case(KINDS["hard"]),
    "hard, alpha 1e-4": Case(KINDS["hard"], 1e-4),
}
BLOCKS = ("gate", "expert", "variance", "mean")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.coverage", description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--out", type=Path, default=CSV)
    parser.add_argument("--show", action="store_true", help="only print what the CSV holds")
    parser.add_argument("--docs", action="store_true", help="write the table of docs/inference.md")
    args = parser.parse_args()
    if args.docs:
        write_page(read(args.out))
        return
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not args.show:
        with threadpool_limits(1):
            for name in args.cases:
                study(name, args.replications, args.out)
                console.print(f"{name}: done", highlight=False)
    heads, body = table(read(args.out))
    shown = Table(*heads, box=box.SIMPLE_HEAD)
    for cells in body:
        shown.add_row(*cells)
    console.print(shown)


def study(name: str, replications: int, path: Path) -> None:
    """Add the replications of a case that the CSV lacks."""
    case = CASES[name]
    source = simulate(ROWS, EXPERTS, FEATURES, random_state=0, **case.simulate)
    known = {
        (int(row["replication"]), row["estimator"]) for row in read(path) if row["case"] == name
    }
    for i in range(replications):
        data = source.draw(ROWS, i)
        for estimators, function in ((("G",), whole), (("R", "refined"), split)):
            if all((i, estimator) in known for estimator in estimators if estimator != "R"):
                continue
            for row in function(case, source, data, i):
                if (i, row["estimator"]) not in known:
                    about = {"case": name, "replication": i, "rows": ROWS}
                    append(path, about | row | environment())


def whole(case: Case, source: Simulation, data: Simulation, seed: int) -> list[Row]:
    """Fit all rows in one place."""
    options = {"family": source.truth.experts.family, "alpha": case.alpha}
    fit = em(data.X, data.y, EXPERTS, random_state=seed, **options)
    model = fit.model.aligned_to(source.truth, data.X)
    found = []
    for kind in ("information", "sandwich"):
        result = observed_inference(model, data.X, data.y, alpha=case.alpha, kind=kind)
        found.append({"estimator": "G", "kind": kind, "distance": "", "refused": 0})
        found[-1] |= counted(result, source)
    return found


def split(case: Case, source: Simulation, data: Simulation, seed: int) -> list[Row]:
    """Fit sites, merge their models, and refine."""
    truth = source.truth
    options = {"family": truth.experts.family, "alpha": case.alpha}
    parts = np.array_split(np.arange(ROWS), SITES)
    messages = [
        LocalModel.from_fit(em(data.X[p], data.y[p], EXPERTS, init=truth, **options), f"site {m}")
        for m, p in enumerate(parts)
    ]
    support = draw_support([data.X], 1000, random_state=seed).rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about sites that stand out
        merged = aggregate(messages, support, method="reduction").model.aligned_to(truth, data.X)
    found = [unchecked(merged, data, case.alpha, source)] if seed < SPLIT else []
    shards = [ArrayShard(f"site {m}", data.X[p], data.y[p]) for m, p in enumerate(parts)]
    ridge = Ridge.of(truth.experts, case.alpha)
    state = refine_shards(shards, merged, "auto", scaling=Scaling.of(support), ridge=ridge)
    row = {"estimator": "refined", "kind": "information", "distance": state.decrement**0.5}
    try:
        found.append(row | {"refused": 0} | counted(refined_inference(state), source))
    except InferenceError:
        none = {f"{block}_{part}": 0 for block in BLOCKS for part in ("of", "in")}
        found.append(row | {"refused": 1} | none | {"not_identified": 0})
    return found


def unchecked(model: MoE, data: Simulation, alpha: float | None, source: Simulation) -> Row:
    """Return what intervals would hold at a model that may not be at the maximum."""
    rows, _ = Rows(data.X, data.y).standardised(model.experts)
    here = rows.scaling.from_user(model)
    information = observed_information(here, rows)
    penalty = Ridge.of(model.experts, alpha).matrix(here)
    distance = distance_to_maximum(model, information, penalty, scaling=rows.scaling)
    covariance = parameter_covariance(model, information, penalty, scaling=rows.scaling)
    try:
        observed_inference(model, data.X, data.y, alpha=alpha)
        refused = 0
    except InferenceError:
        refused = 1
    row = {"estimator": "R", "kind": "information", "distance": distance, "refused": refused}
    return row | counted(Inference(model, covariance, len(data.y)), source)


def counted(found: Inference, source: Simulation) -> Row:
    """Return, by block, the number of intervals and of those that hold the truth."""
    truth, grid = source.truth, source.draw_x(GRID, np.random.default_rng(0))
    value = truth.to_vector()
    row: Row = {}
    blocks = {block: [] for block in BLOCKS}
    for estimate, at in zip(found.table(LEVEL), value, strict=True):
        true = np.exp(at) if estimate.block == "variance" else at
        blocks[estimate.block].append((estimate.low, true, estimate.high))
    at_grid = found.mean_interval(grid, LEVEL)
    blocks["mean"] = list(zip(at_grid.low, truth.predict(grid), at_grid.high, strict=True))
    unknown = 0
    for block, intervals in blocks.items():
        known = [(low, true, high) for low, true, high in intervals if np.isfinite(low)]
        unknown += len(intervals) - len(known) if block != "mean" else 0
        row[f"{block}_of"] = len(known)
        row[f"{block}_in"] = sum(low <= true <= high for low, true, high in known)
    return row | {"not_identified": unknown}


# -- reading -----------------------------------------------------------------------------------


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells: coverage by block, with its Monte Carlo error."""
    heads = ["data", "model", "from", "runs", *BLOCKS, "not identified", "distance", "refused"]
    body = []
    order = ("G", "R", "refined")
    keys = dict.fromkeys((r["case"], r["estimator"], r["kind"]) for r in rows)
    cases = list(CASES)
    for key in sorted(keys, key=lambda key: (cases.index(key[0]), order.index(key[1]))):
        mine = [r for r in rows if (r["case"], r["estimator"], r["kind"]) == key]
        lost = mean(float(r["not_identified"]) for r in mine)
        distances = [float(r["distance"]) for r in mine if r["distance"] != ""]
        refused = mean(float(r["refused"]) for r in mine)
        far = f"{np.median(distances):.2g}" if distances else "–"
        ends = [f"{lost:.2g}", far, f"{refused:.0%}"]
        body.append([*key, str(len(mine)), *(share(mine, block) for block in BLOCKS), *ends])
    return heads, body


def share(rows: list[Row], block: str) -> str:
    """Return the coverage of a block; intervals of one replication are not independent."""
    shares = [
        float(r[f"{block}_in"]) / float(r[f"{block}_of"]) for r in rows if float(r[f"{block}_of"])
    ]
    if len(shares) < 2:
        return "–"
    return f"{mean(shares):.3f} ± {stdev(shares) / sqrt(len(shares)):.3f}"


def write_page(rows: list[Row]) -> None:
    """Put the table where docs/inference.md has its marks."""
    heads, body = table(rows)
    rules = ["---" if head in ("data", "model", "from") else "---:" for head in heads]
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, rules, *body)]
    lines += ["", f"Measured on: {machines(rows)}."]
    put("coverage", lines, PAGE)


if __name__ == "__main__":
    main()
