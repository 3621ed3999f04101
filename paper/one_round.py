"""The estimators that need one round, in the paper's metrics, over kinds of data and sites.

For each truth rows are drawn, fitted whole (G), and split into shards, whose local models are
merged by every method. One row of the CSV is one estimator. Seconds are those of one core: the
learning time of a merged model is that of the slowest shard plus that of the merging, as in the
paper.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from rich import box
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.harness import KINDS, OtherWork, Row, append, environment, read
from otmoe import DistributedMoERegressor, MoE, MoERegressor, aggregate, draw_support, simulate
from otmoe.datasets.simulation import Simulation
from otmoe.metrics import evaluate

PAGE = Path(__file__).parents[1] / "docs" / "one_round.md"
CSV = Path(__file__).parent / "results" / "one_round.csv"
METHODS = (
    "reduction",
    "middle",
    "weighted_average",
    "aligned_average",
    "greedy",
    "ensemble",
)
LETTERS = {"centralised": "G", "reduction": "R", "middle": "Mid", "weighted_average": "W"}
FEATURES, EXPERTS, TEST = 20, 4, 25_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m paper.one_round", description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["hard", "soft"], choices=list(KINDS))
    parser.add_argument("--sites", nargs="+", type=int, default=[4, 16, 64, 128])
    parser.add_argument("--truths", type=int, default=10)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=CSV)
    parser.add_argument("--show", action="store_true", help="only print what the CSV holds")
    parser.add_argument("--docs", action="store_true", help="write the tables of docs/one_round.md")
    args = parser.parse_args()
    if args.docs:
        write_page(read(args.out))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    if not args.show:
        for kind in args.kinds:
            for truth in range(args.truths):
                study(kind, truth, args.sites, args.rows, args.out, console)
    show(read(args.out), console)


def study(kind: str, truth: int, sites: list[int], n: int, path: Path, console: Console) -> None:
    """Add what the CSV lacks of one truth."""
    known = {
        (row["sites"], row["method"])
        for row in read(path)
        if (row["kind"], row["truth"], row["rows"]) == (kind, str(truth), str(n))
    }
    wanted = [M for M in sites if any((str(M), method) not in known for method in METHODS)]
    if not wanted and ("1", "centralised") in known:
        return
    data = simulate(n, EXPERTS, FEATURES, random_state=truth, **KINDS[kind])
    test = data.draw(TEST, truth + 1000)
    about = {"kind": kind, "truth": truth, "rows": n}
    with threadpool_limits(1):
        if ("1", "centralised") not in known:
            start, other = perf_counter(), OtherWork()
            est = MoERegressor(EXPERTS, random_state=truth).fit(data.X, data.y)
            seconds = perf_counter() - start
            row = about | {"sites": 1, "method": "centralised"} | judged(est.model_, data, test)
            append(path, finished(row, seconds, 0.0, "", "", other))
        for M in wanted:
            start = perf_counter()
            for row in merged(about, M, data, test):
                if (str(M), row["method"]) not in known:
                    append(path, row)
            console.print(
                f"{kind} truth {truth}, {M} sites: {perf_counter() - start:.0f} s", highlight=False
            )


def merged(about: Row, M: int, data: Simulation, test: Simulation) -> Iterator[Row]:
    """Fit the shards once and merge them by every method."""
    other = OtherWork()
    seed = about["truth"]
    est = DistributedMoERegressor(EXPERTS, n_shards=M, random_state=seed).fit(data.X, data.y)
    left_out = est.aggregation_.left_out
    messages = [message for message in est.local_models_ if message.site not in left_out]
    support = draw_support([data.X], random_state=seed)
    for method in METHODS:
        result = aggregate(messages, support, method=method)
        row = about | {"sites": M, "method": method} | judged(result.model, data, test)
        yield finished(
            row,
            est.timings_["local"],
            result.timings["total"],
            " ".join(est.refitted_),
            " ".join(left_out),
            other,
        )


def judged(model: MoE, data: Simulation, test: Simulation) -> Row:
    """Return the paper's metrics on new rows, and the nats per row below the truth."""
    found = evaluate(model, test.X, test.y, test.z, data.truth)
    true = float(data.truth.log_density(test.X, test.y).mean())
    row: Row = {"below_truth": true - found["log_likelihood"], **found}
    for name in ("mse_gate", "mse_coef", "mse_var", "mse_total"):
        row.setdefault(name, "")
    return row


def finished(
    row: Row, local: float, merging: float, refitted: str, left_out: str, other: OtherWork
) -> Row:
    return (
        row
        | {"local_seconds": local, "merging_seconds": merging, "learning_seconds": local + merging}
        | {"refitted": refitted, "left_out": left_out, "other_cores_busy": other.cores()}
        | environment()
    )


# -- reading -----------------------------------------------------------------------------------

SHOWN = {
    "below_truth": "nats below truth",
    "transport": "T_c",
    "rpe": "RPE",
    "ari": "ARI",
    "mse_coef": "MSE of beta",
    "mse_total": "MSE",
    "learning_seconds": "seconds",
}
WORDS = {"log_likelihood": "log-likelihood", "rpe": "RPE", "ari": "ARI", "transport": "T_c"}
BETTER = {"log_likelihood": 1, "rpe": -1, "ari": 1, "transport": -1}


def tables(rows: list[Row], kind: str) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells: medians over truths, and the worst run."""
    of_kind = [row for row in rows if row["kind"] == kind]
    heads = ["sites", "estimator", "truths", *SHOWN.values(), "worst nats"]
    body = []
    places = dict.fromkeys((int(row["sites"]), row["method"]) for row in of_kind)
    for M, method in sorted(places, key=lambda place: place[0]):
        mine = [r for r in of_kind if (int(r["sites"]), r["method"]) == (M, method)]
        middle = [
            f"{median(values):.3g}" if (values := numbers(mine, key)) else "–" for key in SHOWN
        ]
        name = f"{method} ({LETTERS[method]})" if method in LETTERS else method
        worst = f"{max(numbers(mine, 'below_truth')):.3g}"
        body.append([str(M), name.replace("_", " "), str(len(mine)), *middle, worst])
    return heads, body


def show(rows: list[Row], console: Console) -> None:
    """Print medians, the worst run, and how often R beats the other two of the paper."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        title = f"{kind} gates, medians over truths"
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        heads, body = tables(rows, kind)
        for head in heads:
            table.add_column(head, justify="left" if head == "estimator" else "right")
        for cells in body:
            table.add_row(*cells)
        console.print(table)
        for rival in ("middle", "weighted_average"):
            console.print("\n".join(duel(rows, kind, rival)), highlight=False)


def write_page(rows: list[Row]) -> None:
    """Put the tables where docs/one_round.md has its marks."""
    text = PAGE.read_text()
    for kind in dict.fromkeys(row["kind"] for row in rows):
        heads, body = tables(rows, kind)
        rules = ["---" if head == "estimator" else "---:" for head in heads]
        lines = [f"| {' | '.join(cells)} |" for cells in (heads, rules, *body)]
        for rival in ("middle", "weighted_average"):
            first, *others = duel(rows, kind, rival)
            lines += ["", f"{first}:", "", *(f"* {line.strip()}" for line in others)]
        lines += ["", f"Measured on: {rows[-1]['machine']}, Python {rows[-1]['python']}."]
        begin, end = f"<!-- {kind} -->\n", f"<!-- end of {kind} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after
    PAGE.write_text(text)


def numbers(rows: list[Row], key: str) -> list[float]:
    """Return the values of a column; the experts of an ensemble are no clusters of anything."""
    return [
        float(row[key])
        for row in rows
        if row[key] != "" and not (key == "ari" and row["method"] == "ensemble")
    ]


def duel(rows: list[Row], kind: str, rival: str) -> list[str]:
    """Say how often R beats a rival, metric by metric."""
    by_run = {(r["truth"], int(r["sites"]), r["method"]): r for r in rows if r["kind"] == kind}
    lines = [f"R beats the {rival.replace('_', ' ')} in"]
    for M in sorted({sites for _, sites, method in by_run if method == "reduction"}):
        truths = [t for t, sites, method in by_run if (sites, method) == (M, "reduction")]
        truths = [t for t in truths if (t, M, rival) in by_run]
        wins = {
            metric: sum(
                sign * float(by_run[t, M, "reduction"][metric])
                > sign * float(by_run[t, M, rival][metric])
                for t in truths
            )
            for metric, sign in BETTER.items()
        }
        counted = ", ".join(f"{WORDS[metric]} {count}" for metric, count in wins.items())
        lines.append(f"  {M} sites, of {len(truths)} truths: {counted}")
    return lines


if __name__ == "__main__":
    main()
