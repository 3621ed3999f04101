"""What sketches are worth: sites that see different x, and support points without rows.

Eight sites see most of their rows in one region of x each, around one of four centres, and the rest
everywhere. Their models are merged with constant weights and with weights by sketches, at rows of
the sites and at points drawn from the sketches. One row of the CSV is one estimator.

The gate error is the mean, over 20,000 new x in equal parts around all centres, of the squared
distance between the gate probabilities of the truth and of the estimator, experts paired first.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from otmoe import LocalModel, MoE, MoERegressor, Policy, aggregate, draw_support, simulate
from otmoe.datasets.simulation import Simulation
from studies.machines import OtherWork, environment, machines
from studies.rows import Row, append, read
from studies.tables import put

PAGE = Path(__file__).parents[1] / "docs" / "support.md"
CSV = Path(__file__).parent / "results" / "covariate_shift.csv"
EXPERTS, FEATURES, SITES, ROWS, TEST = 4, 20, 8, 2500, 20_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.covariate_shift", description=__doc__)
    parser.add_argument("--own", nargs="+", type=float, default=[0.95, 0.9, 0.0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=CSV)
    parser.add_argument("--show", action="store_true", help="only print what the CSV holds")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/support.md")
    args = parser.parse_args()
    if args.docs:
        write_page(read(args.out))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    known = {(row["own"], row["seed"]) for row in read(args.out)}
    for own in args.own if not args.show else []:
        for seed in range(args.seeds):
            if (f"{own:.5g}", str(seed)) not in known:
                start = perf_counter()
                study(seed, own, args.out)
                console.print(f"own {own}, seed {seed}: {perf_counter() - start:.0f} s")
    rows = read(args.out)
    for lines in (shift_table(rows), points_table(rows)):
        console.print("\n".join(lines), highlight=False)


def study(seed: int, own: float, path: Path) -> None:
    """Add the estimators of one truth to the CSV."""
    other = OtherWork()
    data = simulate(1, EXPERTS, FEATURES, softness=1.0, random_state=seed)
    rng = np.random.default_rng([seed, 6])
    with threadpool_limits(1):
        sites = [rows_of(data, m % EXPERTS, own, rng) for m in range(SITES)]
        messages = [sent(f"site {m}", X, y, seed) for m, (X, y) in enumerate(sites)]
        everything = (np.concatenate(parts) for parts in zip(*sites, strict=True))
        found = {"centralised": ("", "", MoERegressor(EXPERTS, random_state=seed).fit(*everything))}
        real = draw_support([X for X, _ in sites], random_state=seed)
        for points, support in {"rows": real, "sketches": None}.items():
            for name, weight in {"constant": None, "covariate": "covariate"}.items():
                result = aggregate(
                    messages,
                    support,
                    method="reduction",
                    site_weight=weight,
                    random_state=seed,
                )
                found[f"{name}, {points}"] = (name, points, result)
    new = data.draw(TEST, rng)
    components = " ".join(str(len(m.sketch.weight)) for m in messages if m.sketch is not None)
    for name, (weight, points, result) in found.items():
        model = result.model_ if isinstance(result, MoERegressor) else result.model
        row: Row = {"own": own, "seed": seed, "estimator": name, "weight": weight, "points": points}
        row |= judged(model, data.truth, new)
        row |= {"components": components, "bytes": len(messages[0].to_json().encode())}
        append(path, row | {"other_cores_busy": other.cores()} | environment())


def rows_of(
    data: Simulation, region: int, own: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the rows of a site, a part of them from its own region of x."""
    mine = rng.binomial(ROWS, own)
    home = replace(data, centers=data.centers[[region]])
    X = np.concatenate([home.draw_x(mine, rng), data.draw_x(ROWS - mine, rng)])
    return X, data.truth.sample(X, rng)[0]


def sent(site: str, X: np.ndarray, y: np.ndarray, seed: int) -> LocalModel:
    est = MoERegressor(EXPERTS, random_state=seed).fit(X, y)
    return est.to_message(site, X, sketch=True, policy=Policy.off())


def judged(model: MoE, truth: MoE, new: Simulation) -> Row:
    """Return the gate error and the nats per row below the truth."""
    prob = model.aligned_to(truth, new.X).gate_prob(new.X)
    error = np.mean(np.sum((prob - truth.gate_prob(new.X)) ** 2, axis=1))
    below = np.mean(truth.log_density(new.X, new.y) - model.log_density(new.X, new.y))
    return {"gate_error": float(error), "below_truth": float(below)}


# -- reading -----------------------------------------------------------------------------------


def by_run(rows: list[Row], key: str) -> dict[float, dict[int, dict[str, float]]]:
    """Return a column by share of own rows, seed and estimator."""
    found: dict[float, dict[int, dict[str, float]]] = {}
    for row in rows:
        seeds = found.setdefault(float(row["own"]), {})
        seeds.setdefault(int(row["seed"]), {})[row["estimator"]] = float(row[key])
    return found


def shift_table(rows: list[Row]) -> list[str]:
    """Return the gate errors of every run with support points from sketches."""
    lines = [
        "| own region | seed | one fit of all rows | constant weights | by sketches | ratio |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for own, seeds in by_run(rows, "gate_error").items():
        for seed, error in seeds.items():
            constant, covariate = error["constant, sketches"], error["covariate, sketches"]
            lines.append(
                f"| {own:.0%} | {seed} | {error['centralised']:.2g} | {constant:.2g} | "
                f"{covariate:.2g} | {covariate / constant:.2f} |"
            )
    return lines


def points_table(rows: list[Row]) -> list[str]:
    """Return the median nats below the truth at rows and at points from sketches."""
    lines = [
        "| own region | weights | support: rows | support: sketches | worst difference |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    for own, seeds in by_run(rows, "below_truth").items():
        for weight in ("constant", "covariate"):
            pairs = [(s[f"{weight}, rows"], s[f"{weight}, sketches"]) for s in seeds.values()]
            real, drawn = (median(column) for column in zip(*pairs, strict=True))
            worst = max(b - a for a, b in pairs)
            lines.append(f"| {own:.0%} | {weight} | {real:.4f} | {drawn:.4f} | {worst:+.4f} |")
    return lines


def write_page(rows: list[Row]) -> None:
    """Put the tables where docs/support.md has its marks."""
    machine = f"Measured on: {machines(rows)}."
    for name, lines in {"shift": shift_table(rows), "points": points_table(rows)}.items():
        put(name, [*lines, "", machine], PAGE)


if __name__ == "__main__":
    main()
