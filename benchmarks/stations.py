"""Sites that nothing happened to: how far apart? ``python -m benchmarks.stations FILE [ROWS...]``.

FILE is a Parquet table of air-quality stations (UCI 501) with the columns site, split, PM2.5,
y_imputed and features. Every set of 3, 4, 6, 8 and 12 stations is screened (maths 12); none of them
should have a member that stands out. The table gives the largest deviation in predictions and the
lowest in likelihood that occur; those beyond 5 and -5 are flagged.
"""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from otmoe.aggregation.disagreement import (
    THRESHOLD,
    divergences,
    site_likelihood_deviations,
    standing,
)
from otmoe.likelihood.fit import em

POINTS, SEED = 400, 0


def stations(path: str, n_rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return X and y of some training rows of every station, X on a common scale."""
    table = pq.read_table(path)
    table = table.filter(pc.and_(pc.equal(table["split"], "train"), pc.invert(table["y_imputed"])))
    other = {"site", "datetime", "split", "PM2.5", "y_imputed"}
    names = [name for name in table.column_names if name not in other]
    X = np.column_stack([table[name].to_numpy() for name in names])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y, site = table["PM2.5"].to_numpy(), table["site"].to_numpy(zero_copy_only=False)
    rng = np.random.default_rng(SEED)
    parts = [np.flatnonzero(site == name) for name in np.unique(site)]
    parts = [np.sort(rng.choice(part, min(n_rows, len(part)), replace=False)) for part in parts]
    return [(X[part], y[part]) for part in parts]


def main(path: str, *sizes: str) -> None:
    print("K, rows, stations, sets, largest deviation, lowest of likelihood, flagged", flush=True)
    for n_rows in map(int, sizes or (1000, 4000, 30_000)):
        data = stations(path, n_rows)
        points = np.concatenate([X[:: len(X) // (POINTS // len(data))] for X, _ in data])
        for K in (2, 4):
            fits = [em(X, y, K, random_state=SEED) for X, y in data]
            n = np.array([fit.n_samples for fit in fits])
            mean = np.array([fit.log_likelihood for fit in fits]) / n
            cost, _ = divergences([fit.model for fit in fits], points)
            error = np.array([fit.model.n_parameters for fit in fits]) / n
            error = 0.5 * (error[:, None] + error)
            for size in (3, 4, 6, 8, 12):
                largest, lowest = [], []
                for chosen in map(list, combinations(range(len(fits)), size)):
                    pairs = np.ix_(chosen, chosen)
                    largest.append(standing(cost[pairs], error[pairs]).deviation.max())
                    lowest.append(site_likelihood_deviations(mean[chosen], n[chosen]).min())
                flagged = np.maximum(largest, np.negative(lowest)) > THRESHOLD
                figures = f"{max(largest):.1f}, {min(lowest):.1f}, {flagged.sum()}"
                print(f"{K}, {n_rows}, {size}, {len(largest)}, {figures}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
