"""Twelve air-quality stations that may not pool their rows, by the command line alone.

Each station fits its three years of hourly PM2.5 with `otmoe fit --sketch` and sends the message;
`otmoe aggregate` merges the twelve, once at points drawn from the sketches and once at real rows of
covariates, with several seeds; `otmoe evaluate` holds the models against the fourth year. The table
of features is read from the folder that OTMOE_DATA names (beijing/prsa_features_d19.parquet and
beijing/standardisation.json).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from otmoe import FeatureSpec
from otmoe.data.columns import Column
from studies.machines import environment
from studies.rows import Row, append, read
from studies.tables import put

PAGE = Path(__file__).parents[1] / "docs" / "sites.md"
RESULTS = Path(__file__).parent / "results"
STATIONS, MODELS = RESULTS / "beijing_stations.csv", RESULTS / "beijing_models.csv"
EXPERTS, SEEDS, TARGET = 4, 5, "PM2.5"
SYNTHETIC, REAL = "points drawn from the sketches", "real rows of covariates"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.beijing_sites", description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("OTMOE_DATA"))
    parser.add_argument("--show", action="store_true", help="only print what the CSVs hold")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/sites.md")
    args = parser.parse_args()
    if not args.show and not args.docs:
        if args.data is None or not (Path(args.data) / "beijing").is_dir():
            print("The data are not here: let OTMOE_DATA name the folder with beijing/ in it.")
            return
        for path in (STATIONS, MODELS):
            path.unlink(missing_ok=True)
        with TemporaryDirectory() as folder:
            study(Path(args.data) / "beijing", Path(folder))
    tables = [stations(read(STATIONS)), models(read(MODELS))]
    if args.docs:
        write_page(tables)
    else:
        show(tables)


# -- the study ---------------------------------------------------------------------------------


def study(data: Path, folder: Path) -> None:
    """Fit, merge and evaluate, and add what was found to the CSVs."""
    names = cut(data, folder)

    def otmoe(command: str, *args: Any) -> Row:
        """Run a command in the folder and return what it reports."""
        words = [sys.executable, "-m", "otmoe", command, *map(str, args), "--json"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)

    def evaluate(model: str) -> Row:
        return otmoe("evaluate", model, "test.parquet", "--target", TARGET, "--site-column", "site")

    fit = ["--target", TARGET, "--experts", EXPERTS, "--features", "features.json"]
    sent, alone = {}, {}
    for name in names:
        message = f"{name}.moe.json"
        where = ["--site", name, "--sketch", "-o", message]
        sent[name] = otmoe("fit", f"train/{name}.parquet", *fit, *where)
        alone[name] = evaluate(message)["sites"][name]["rmse"]
    merged: dict[tuple[str, int], Row] = {}
    for seed in range(SEEDS):
        for support, where in ((SYNTHETIC, []), (REAL, ["--support", "train"])):
            how = ["--seed", seed, "--force", "-o", "model.json", *where]
            result = otmoe("aggregate", "*.moe.json", *how)
            merged[support, seed] = evaluate("model.json")
            add(support, seed, result["support_points"], result["seconds"], merged[support, seed])
    pooled = otmoe("fit", "train", *fit, "--site", "all", "-o", "pooled.json")
    add("none: all rows in one place", 0, 0, pooled["seconds"], evaluate("pooled.json"))
    for name in names:
        parts = {part["name"]: part["bytes"] for part in sent[name]["parts"]}
        row = {
            "station": name,
            "rows": sent[name]["rows"],
            "bytes": sent[name]["bytes"],
            "sketch_bytes": parts.get("sketch", 0),
            "converged": sent[name]["converged"],
            "seconds": sent[name]["seconds"],
            "rmse_alone": alone[name],
            "rmse_sketches": merged[SYNTHETIC, 0]["sites"][name]["rmse"],
            "rmse_rows": merged[REAL, 0]["sites"][name]["rmse"],
        }
        append(STATIONS, row | environment())


def cut(data: Path, folder: Path) -> list[str]:
    """Write a file of training rows for each station, the test year, and the file of features."""
    table = pq.read_table(data / "prsa_features_d19.parquet")
    about = json.loads((data / "standardisation.json").read_text())
    spec = FeatureSpec(
        tuple(
            Column(name, center=about["mean"][name], scale=about["std_ddof0"][name])
            for name in about["features"]
        )
    )
    spec.save(folder / "features.json")
    training = pc.equal(table.column("split"), "train")
    train, test = table.filter(training), table.filter(pc.invert(training))
    pq.write_table(test, folder / "test.parquet")
    (folder / "train").mkdir()
    names = sorted(pc.unique(train.column("site")).to_pylist())
    for name in names:
        here = train.filter(pc.equal(train.column("site"), pa.scalar(name)))
        pq.write_table(here, folder / "train" / f"{name}.parquet")
    return names


def add(support: str, seed: int, points: int, seconds: float, found: Row) -> None:
    row = {"support": support, "seed": seed, "points": points, "seconds": seconds}
    row |= {key: found[key] for key in ("rows", "rmse", "mae", "r2", "log_likelihood")}
    append(MODELS, row | environment())


# -- reading -----------------------------------------------------------------------------------

Cells = tuple[str, list[str], list[list[str]]]


def stations(rows: list[Row]) -> Cells:
    """Return what each station sent, and how its test year is predicted."""
    heads = [
        "station",
        "rows",
        "bytes sent",
        "of them sketch",
        "RMSE alone",
        "merged at sketches",
        "merged at rows",
    ]
    body = [
        [
            row["station"],
            f"{int(row['rows']):,}",
            f"{int(row['bytes']):,}",
            f"{int(row['sketch_bytes']):,}",
            *(f"{float(row[key]):.2f}" for key in ("rmse_alone", "rmse_sketches", "rmse_rows")),
        ]
        for row in rows
    ]
    total = sum(int(row["bytes"]) for row in rows)
    better = sum(float(row["rmse_alone"]) < float(row["rmse_sketches"]) for row in rows)
    words = (
        f"{total:,} bytes were sent in all. Alone has the smaller RMSE than merged at sketches at "
        f"{better} of the {len(rows)} stations."
    )
    return words, heads, body


def models(rows: list[Row]) -> Cells:
    """Return the errors of the merged models on the test year of all stations."""
    heads = ["support", "points", "seed", "RMSE", "MAE", "R²", "log-likelihood"]
    body = [
        [
            row["support"],
            f"{int(row['points']):,}" if int(row["points"]) else "–",
            row["seed"],
            *(f"{float(row[key]):.3f}" for key in ("rmse", "mae", "r2", "log_likelihood")),
        ]
        for row in rows
    ]
    rmse = {(row["support"], row["seed"]): float(row["rmse"]) for row in rows}
    ratios = [  # at most 1.01 is the aim
        value / rmse[REAL, seed] for (support, seed), value in rmse.items() if support == SYNTHETIC
    ]
    return (
        "RMSE at points drawn from the sketches over that at real rows, by seed: "
        f"{', '.join(f'{ratio:.4f}' for ratio in ratios)}.",
        heads,
        body,
    )


def show(tables: list[Cells]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    for words, heads, body in tables:
        table = Table(box=box.SIMPLE_HEAD)
        for i, head in enumerate(heads):
            table.add_column(head, justify="right" if i else "left")
        for cells in body:
            table.add_row(*cells)
        console.print(table)
        console.print(words)


def write_page(tables: list[Cells], page: Path = PAGE) -> None:
    """Put the tables where docs/sites.md has its mark."""
    lines = []
    for words, heads, body in tables:
        rules = ["---", *["---:"] * (len(heads) - 1)]
        lines += [f"| {' | '.join(cells)} |" for cells in (heads, rules, *body)]
        lines += ["", words, ""]
    row = read(MODELS)[-1]
    lines += [f"Measured on: {row['machine']}, Python {row['python']}.", ""]
    put("beijing", lines, page)


if __name__ == "__main__":
    main()
