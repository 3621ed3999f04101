"""Sixteen sites each fit a mixture of experts and send it once; the server merges them into one."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from otmoe import (
    Aggregation,
    LocalModel,
    MoE,
    MoERegressor,
    aggregate,
    draw_support,
    report,
    simulate,
)
from otmoe.aggregation.disagreement import THRESHOLD, likelihood_deviations
from otmoe.datasets import Simulation
from otmoe.evaluation.metrics import evaluate

TEST_ROWS = 20_000
METHODS = {"reduction": "reduction", "middle": "middle", "weighted_average": "average"}
METRICS = {
    "log_likelihood": "log-likelihood, nats per row",
    "transport": "transport divergence to the truth",
    "mse_total": "mean squared error of the parameters",
    "rpe": "relative prediction error",
    "ari": "expert predicted from x, adjusted Rand index",
}
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000, help="total number of rows")
    parser.add_argument("--sites", type=int, default=16)
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument(
        "--softness", type=float, default=0.0, help="0: the gate is nearly a partition; 1: soft"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--report", type=Path, default=Path("build", "demo.html"), help="report to write at the end"
    )
    args = parser.parse_args()
    console = Console(highlight=False)

    # 1) the data: one truth, sites of unequal size
    regions = "each of which has its region" if args.softness == 0 else "whose regions overlap"
    console.print(
        f"{args.samples:,} rows of {args.features} features, drawn from a mixture of "
        f"{args.experts} linear regressions, {regions}, are at {args.sites} sites."
    )
    try:
        data = simulate(
            args.samples,
            args.experts,
            args.features,
            softness=args.softness,
            random_state=args.seed,
        )
    except ValueError as error:
        parser.error(str(error))
    test = data.draw(TEST_ROWS, args.seed + 1)
    sites = split(data, args.sites, args.seed)
    compile_kernels()

    # 2) each site fits its own rows and sends one message
    messages, slowest = fit_sites(sites, args.experts, console)
    size = np.mean([len(message.to_json()) for message in messages])
    console.print(
        f"Each site sent one message of {size / 1000:.1f} kB of plain JSON; no row of y left a "
        f"site. The slowest fit took {slowest:.1f} s."
    )

    # 3) the server merges the messages, by the reduction and by the two simpler ways of the paper
    support = draw_support([X for X, _ in sites], random_state=args.seed)
    results = {method: aggregate(messages, support, method=method) for method in METHODS}
    reduced = results["reduction"]
    console.print(f"The reduction {reduced.status}; it took {reduced.timings['total']:.1f} s.")

    # 4) compared with the fit of all rows, and with the truth
    whole = MoERegressor(args.experts, n_jobs=1, random_state=args.seed)
    seconds, _ = timed(lambda: whole.fit(data.X, data.y))
    models = {"truth": data.truth, "all rows": whole.model_}
    models |= {METHODS[method]: result.model for method, result in results.items()}
    learning = {"all rows": seconds}
    for method, result in results.items():
        learning[METHODS[method]] = slowest + result.timings["total"]
    scores = {
        name: evaluate(model, test.X, test.y, test.z, data.truth) for name, model in models.items()
    }
    console.print(comparison(scores, learning))
    console.print(on_average(reduced))
    # the numbers of the experts are those of the page
    console.print(
        coefficients(data.truth.aligned_to(reduced.model, test.X), reduced.model, console)
    )
    console.print(contributions(reduced))
    loss = {
        name: scores["truth"]["log_likelihood"] - s["log_likelihood"] for name, s in scores.items()
    }
    console.print(
        "Look at the log-likelihoods first: on new rows, the model merged by the reduction loses "
        f"{loss['reduction']:.4f} nats per row to the truth; the fit of all rows loses "
        f"{loss['all rows']:.4f}."
    )

    # 5) a report on what each site contributed
    args.report.parent.mkdir(parents=True, exist_ok=True)
    report(reduced, args.report, title=f"Report on the demo: {len(reduced.sites)} sites, one model")
    console.print(
        f"The report is in [bold]{escape(str(args.report.resolve()))}[/bold]: read the section "
        "'Can it be trusted?', and click on a site to follow its experts.",
        soft_wrap=True,
    )


def split(data: Simulation, n_sites: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Give every site its rows; the largest has three times those of the smallest."""
    rng = np.random.default_rng(seed)
    shares = np.linspace(1, 3, n_sites)
    ends = np.cumsum(shares / shares.sum() * len(data.y)).astype(int)[:-1]
    rows = np.split(rng.permutation(len(data.y)), ends)
    return [(data.X[index], data.y[index]) for index in rows]


def compile_kernels() -> None:
    """Fit something tiny, so that times do not include compilation."""
    tiny = simulate(500, 2, 2, random_state=0)
    est = MoERegressor(2, random_state=0).fit(tiny.X, tiny.y)
    aggregate([est.to_message("tiny"), est.to_message("twin")], tiny.X)


def fit_sites(
    sites: list[tuple[np.ndarray, np.ndarray]], n_experts: int, console: Console
) -> tuple[list[LocalModel], float]:
    """Return the message of every site and the seconds of the slowest fit."""
    messages, seconds = [], []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # small sites warn
        task = bars.add_task("local fits", total=len(sites))
        for m, (X, y) in enumerate(sites):
            estimator = MoERegressor(n_experts, random_state=m)
            took, message = timed(lambda: estimator.fit(X, y).to_message(f"site {m + 1}"))  # noqa: B023
            messages.append(message)
            seconds.append(took)
            bars.advance(task)
    bad = [
        message.site
        for message, z in zip(messages, likelihood_deviations(messages), strict=True)
        if z < -THRESHOLD
    ]
    if bad:
        console.print(f"Left out, with a log-likelihood far below the others: {', '.join(bad)}.")
    return [message for message in messages if message.site not in bad], max(seconds)


def timed(action: Callable[[], T]) -> tuple[float, T]:
    begin = perf_counter()
    result = action()
    return perf_counter() - begin, result


def comparison(scores: dict[str, dict[str, float]], learning: dict[str, float]) -> Table:
    """Show the paper's metrics, one column per estimator."""
    table = Table(title=f"On {TEST_ROWS:,} new rows", box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in scores:
        table.add_column(f"[bold]{name}" if name == "reduction" else name, justify="right")
    for key, words in METRICS.items():
        cells = [f"{score[key]:.4f}" for score in scores.values()]
        table.add_row(words, *cells)
    cells = [f"{learning[name]:.2f}" if name in learning else "" for name in scores]
    table.add_row("learning time on one core, s", *cells)
    table.caption = "Learning time of a merged model: the slowest site plus merging."
    return table


def coefficients(truth: MoE, fitted: MoE, console: Console) -> Table:
    """Show each expert's variance and first coefficients, and the largest error of all of them."""
    terms = truth.terms[: max(2, (console.width - 36) // 10)][:5]
    table = Table(
        title="Experts: truth above, [bold]merged model[/bold] below", box=box.SIMPLE_HEAD
    )
    for head in ("", "variance", *terms, "largest error"):
        table.add_column(head, justify="right", no_wrap=head != "largest error")
    errors = np.abs(fitted.experts.coef - truth.experts.coef).max(axis=1)
    for k, error in enumerate(errors):
        pairs = [
            (truth.experts.var[k], fitted.experts.var[k]),
            *zip(truth.experts.coef[k], fitted.experts.coef[k], strict=True),
        ]
        cells = [f"{a:.2f}\n[bold]{b:.2f}[/bold]" for a, b in pairs[: len(terms) + 1]]
        table.add_row(f"expert {k}", *cells, f"\n{error:.3f}")
    table.caption = f"The error is the largest of {len(truth.terms)} coefficients."
    return table


def on_average(result: Aggregation) -> str:
    """Explain why the plain average of coefficients does well or badly here."""
    orders = {tuple(map(int, record.destination)) for record in result.sites}
    if len(orders) == 1:
        here = (
            "The average of coefficients can win here, since all sites number their experts in the "
            "same order (the one with most rows first) and an average keeps gates as steep as the "
            "sites found them, while the reduction fits its gate to averaged probabilities."
        )
    else:
        here = (
            f"The average of coefficients suffers here, since sites number their experts in "
            f"{len(orders)} different orders and it averages coefficients of different experts."
        )
    return (
        f"{here} It fails as soon as one site numbers its experts in another order, as happens if "
        "experts have about equally many rows or sites have different rows: the reduction matches "
        "experts by what they predict, whatever their order."
    )


def contributions(result: Aggregation) -> Table:
    """Show the largest and the smallest sites, in the words of the page's table of sites."""
    table = Table(title="Sites", box=box.SIMPLE_HEAD)
    for head in ("site", "rows", "weight", "cost", "disagreement", "its experts went to"):
        table.add_column(
            head, justify="left" if head in ("site", "its experts went to") else "right"
        )
    table.caption = "Cost in nats, of the experts; disagreement in nats per row, of predictions."
    records = sorted(result.sites, key=lambda record: -record.weight)
    shown = records if len(records) <= 6 else [*records[:3], None, *records[-2:]]
    for record in shown:
        if record is None:
            table.add_row("…")
            continue
        went = ", ".join(map(str, record.destination))
        table.add_row(
            record.site,
            f"{record.n_samples:,.0f}",
            f"{record.weight:.1%}",
            f"{record.cost:.4f}",
            "" if record.disagreement is None else f"{record.disagreement:.4f}",
            went,
        )
    return table


if __name__ == "__main__":
    main()
