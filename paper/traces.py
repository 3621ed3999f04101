"""The objective of the MM iterations, step by step, on data with hard gates.

For each truth the sites are fitted once. Iterations set out from where `otmoe.aggregate` begins,
and from as many local experts as the model has, drawn at random from all sites.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from otmoe import aggregate, draw_support, simulate
from otmoe.data.shards import RowsShard, split
from otmoe.distributed.fit import fit_shards
from otmoe.model.ensemble import pool
from paper.findings import RESULTS
from paper.study import EXPERTS, FEATURES, POINTS
from paper.variants import descend, exact
from studies.machines import environment
from studies.rows import Row, append, read
from studies.tables import console
from studies.truths import KINDS

SITES, ROWS, TRUTHS = 16, (20_000, 100_000), 5
OURS, RANDOM = "otmoe.aggregate", "local experts drawn at random"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.traces", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "mm_traces.csv")
    parser.add_argument("--truths", type=int, default=TRUTHS)
    args = parser.parse_args()
    run(args.out, ROWS, args.truths)


def run(
    path: Path,
    sizes: tuple[int, ...],
    truths: int,
    *,
    sites: int = SITES,
    features: int = FEATURES,
) -> None:
    """Add to the CSV the truths that it lacks."""
    known = {(int(row["rows"]), int(row["truth"])) for row in read(path)}
    out = console()
    for n in sizes:
        for truth in range(truths):
            if (n, truth) not in known:
                for row in list(traces(n, truth, sites, features)):  # all or none
                    append(path, row)
                out.print(f"traces: {n:,} rows, truth {truth}")


def traces(n: int, truth: int, sites: int, features: int) -> Iterator[Row]:
    data = simulate(n, EXPERTS, features, random_state=truth, **KINDS["hard"])
    parts = split(n, sites, data.truth.n_parameters, np.random.default_rng(truth))
    shards = [
        RowsShard(f"shard {i}", data.X, data.y, index=part) for i, part in enumerate(parts, 1)
    ]
    with threadpool_limits(1):
        fit = fit_shards(shards, EXPERTS, method="reduction", n_support=POINTS, random_state=truth)
        messages = [m for m in fit.local_models if m.site not in fit.aggregation.left_out]
        support = draw_support([data.X], POINTS, random_state=truth).rows
        pooled = pool([m.model for m in messages], np.array([m.n_samples for m in messages]))
        rng = np.random.default_rng(truth)
        start = pooled.experts.take(rng.choice(pooled.experts.n_experts, EXPERTS, replace=False))
        found = {
            OURS: aggregate(messages, support, method="reduction").trace,
            RANDOM: descend(pooled, support, start, exact)[2],
        }
    for name, trace in found.items():
        for iteration, objective in enumerate(trace):
            yield {
                "rows": n,
                "sites": sites,
                "truth": truth,
                "start": name,
                "iteration": iteration,
                "objective": f"{objective:.12g}",  # in full: a rise may be small
                **environment(),
            }


if __name__ == "__main__":
    main()
