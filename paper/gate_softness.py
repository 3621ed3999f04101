"""Two gates of one round, from sharp truths to soft ones: fitted to averages, or averaged.

The reduction fits a gate to averaged probabilities; the other averages the sites' coefficients.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from otmoe import MoE, aggregate, draw_support, simulate
from otmoe.arrays.numerics import Floats, design
from otmoe.data.shards import RowsShard, split
from otmoe.distributed.fit import fit_shards
from otmoe.likelihood.fit import em
from studies.machines import environment, machines
from studies.rows import Row, append, read
from studies.tables import put

CSV = Path(__file__).parent / "results" / "gate_softness.csv"
PAGE = Path(__file__).parents[1] / "docs" / "maths.md"
SOFTNESS = (0.0, 0.25, 0.5, 0.6, 0.75, 1.0)
ROWS, SITES, EXPERTS, FEATURES, POINTS = 50_000, 32, 4, 20, 4_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.gate_softness", description=__doc__)
    parser.add_argument("--truths", type=int, default=3)
    parser.add_argument("--out", type=Path, default=CSV)
    parser.add_argument("--docs", action="store_true", help="write the table of docs/maths.md")
    args = parser.parse_args()
    if args.docs:
        write_page(read(args.out))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    known = {(float(row["softness"]), int(row["truth"])) for row in read(args.out)}
    for truth in range(args.truths):
        for softness in SOFTNESS:
            if (softness, truth) not in known:
                row = measured(softness, truth)
                append(args.out, row)
                console.print(f"softness {softness}, truth {truth}: {row}", highlight=False)


def measured(softness: float, truth: int) -> Row:
    data = simulate(ROWS, EXPERTS, FEATURES, softness=softness, random_state=truth)
    parts = split(ROWS, SITES, data.truth.n_parameters, np.random.default_rng(truth))
    shards = [RowsShard(f"shard {i}", data.X, data.y, index=part) for i, part in enumerate(parts)]
    with threadpool_limits(1):
        whole = em(data.X, data.y, EXPERTS, random_state=truth).model
        fit = fit_shards(shards, EXPERTS, method="reduction", random_state=truth)
        support = draw_support([data.X], POINTS, random_state=truth).rows
        reduced = fit.aggregation.model
        averaged = aggregate(fit.local_models, support, method="aligned_average").model

    def error(model: MoE) -> float:
        gate = model.aligned_to(data.truth, support).gate.centred
        return float(np.mean((gate - data.truth.gate.centred) ** 2))

    return {
        "softness": softness,
        "truth": truth,
        "rows": ROWS,
        "sites": SITES,
        "entropy_truth": entropy(data.truth, support),
        "entropy_reduction": entropy(reduced, support),
        "entropy_averaged": entropy(averaged, support),
        "mse_reduction": error(reduced) / error(whole),
        "mse_averaged": error(averaged) / error(whole),
        **environment(),
    }


def entropy(model: MoE, X: Floats) -> float:
    """Return the mean entropy of the gate as a share of log K."""
    log_prob = model.gate.log_prob(design(X))
    return float(-np.mean(np.sum(np.exp(log_prob) * log_prob, axis=1)) / np.log(EXPERTS))


def write_page(rows: list[Row]) -> None:
    """Put the table where docs/maths.md has its marks."""
    heads = ["softness", "truths", "entropy / log K: truth", "reduction", "averaged"]
    heads += ["gate MSE: reduction", "averaged"]
    lines = [f"| {' | '.join(heads)} |", "|" + " ---: |" * len(heads)]
    for softness in dict.fromkeys(row["softness"] for row in rows):
        mine = [row for row in rows if row["softness"] == softness]
        cells = [softness, str(len(mine))]
        for key in ("entropy_truth", "entropy_reduction", "entropy_averaged"):
            cells.append(f"{median(float(row[key]) for row in mine):.2f}")
        for key in ("mse_reduction", "mse_averaged"):
            cells.append(f"{median(float(row[key]) for row in mine):.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"Medians over truths. Measured on: {machines(rows)}."]
    put("gates", lines, PAGE)


if __name__ == "__main__":
    main()
