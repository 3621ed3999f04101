"""Draw rows from a known mixture of experts, fit one, and compare the two."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.metrics import adjusted_rand_score

from otmoe import MoE, MoERegressor, simulate

TEST_ROWS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000, help="rows to fit")
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument(
        "--softness", type=float, default=0.0, help="0: a gate that is nearly a partition; 1: soft"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    # 1) the data
    console = Console(highlight=False)
    regions = "each of which has its region" if args.softness == 0 else "whose regions overlap"
    console.print(
        f"Drawing {args.samples:,} rows of {args.features} features from a mixture of "
        f"{args.experts} linear regressions, {regions}."
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

    # 2) the fit, after one so small that its time is that of compiling or loading the kernels
    tiny = simulate(500, 2, 2, random_state=0)
    first_use = timed(lambda: MoERegressor(2, n_jobs=-1, random_state=0).fit(tiny.X, tiny.y))
    estimator = MoERegressor(args.experts, n_jobs=-1, random_state=args.seed, verbose=1)
    fit = timed(lambda: estimator.fit(data.X, data.y))

    # 3) the comparison
    console.print(
        coefficients(data.truth, estimator.model_.aligned_to(data.truth, test.X), console)
    )
    true = data.truth.log_density(test.X, test.y).mean()
    ours = estimator.log_density(test.X, test.y).mean()
    by_truth = adjusted_rand_score(test.z, data.truth.gate_prob(test.X).argmax(axis=1))
    by_fit = adjusted_rand_score(test.z, estimator.predict_expert(test.X))

    table = Table(title=f"On {TEST_ROWS:,} new rows", box=box.SIMPLE_HEAD)
    for head in ("", "truth", "[bold]fit"):
        table.add_column(head, justify="right" if head else "left", no_wrap=bool(head))
    for words, a, b in [
        ("log-likelihood, nats per row", true, ours),
        ("expert told from x, adjusted Rand index", by_truth, by_fit),
    ]:
        table.add_row(words, f"{a:.4f}", f"[bold]{b:.4f}")
    console.print(table)
    console.print(
        f"The fit took {fit:.1f} s and {estimator.n_iter_} iterations on all rows, after "
        f"{first_use:.1f} s to compile or load the kernels at first use."
    )
    console.print(
        "Look at the log-likelihoods first: on rows it has not seen, the fit loses "
        f"{true - ours:.4f} nats per row for not knowing the truth."
    )


def timed(action: Callable[[], object]) -> float:
    begin = perf_counter()
    action()
    return perf_counter() - begin


def coefficients(truth: MoE, fitted: MoE, console: Console) -> Table:
    """Show each expert's variance and first coefficients, and the largest error of all of them."""
    terms = truth.terms[: max(2, (console.width - 36) // 10)][:5]
    table = Table(title="Experts, true over [bold]fitted", box=box.SIMPLE_HEAD)
    for head in ("", "variance", *terms, "largest error"):
        table.add_column(head, justify="right", no_wrap=head != "largest error")
    errors = np.abs(fitted.experts.coef - truth.experts.coef).max(axis=1)
    for k, error in enumerate(errors):
        pairs = [
            (truth.experts.var[k], fitted.experts.var[k]),
            *zip(truth.experts.coef[k], fitted.experts.coef[k], strict=True),
        ]
        cells = [f"{a:.2f}\n[bold]{b:.2f}[/bold]" for a, b in pairs[: len(terms) + 1]]
        table.add_row(str(k + 1), *cells, f"\n{error:.3f}")
    table.caption = f"The error is the largest of {len(truth.terms)} coefficients."
    return table


if __name__ == "__main__":
    main()
