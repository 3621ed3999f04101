"""``otmoe evaluate``: how good a model is on rows in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import between, options
from otmoe.cli.common import NAMED, Command, data, option, progress, say, speech, warn
from otmoe.cli.tables import listed, table_of

if TYPE_CHECKING:
    from rich.table import Table

    from otmoe.evaluation.files import Evaluation


WORDS = {
    "log_likelihood": "log-likelihood per row",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "deviance": "deviance per row",
    "accuracy": "accuracy",
    "log_loss": "log loss",
}


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  otmoe evaluate model.json test.parquet --target y
  otmoe evaluate model.json "test/*.parquet" --target y --site-column hospital --json

Give rows that the model was not fitted to, or it will look better than it is.""",
)
@click.argument("model", type=click.Path(path_type=Path))
@data
@options.target()
@options.weight
@option(
    "--site-column",
    metavar="COLUMN",
    section="Columns",
    help="Tell the values of this column apart too.",
)
@options.missing()
@between.site("Model")
@speech
def evaluate(
    model: Path,
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    site_column: str | None,
    missing: Literal["error", "drop"],
    site: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Hold the model in the file MODEL against rows whose response is known.

    MODEL may be a merged model or a site's message. Rows are read batch by batch, so files may be
    larger than memory. For numbers: RMSE, MAE and R², the share of the variance explained; for
    counts the deviance as well; for classes the accuracy and the log loss.
    """
    from otmoe.data.shards import rows_dropped
    from otmoe.documents.files import load_model_file
    from otmoe.evaluation.files import evaluate_files

    file = load_model_file(model)
    used = between.model_for(file, model, site)
    with progress("files", quiet) as report:
        found = evaluate_files(
            used,
            data,
            target,
            features=file.features,
            weight=weight,
            site_column=site_column,
            missing=missing,
            progress=report,
        )
    if found.dropped:
        warn(rows_dropped(found.dropped, found.total.n_rows, found.missing))
    total = found.total
    said: dict[str, Any] = {
        "command": "evaluate",
        "model": str(model),
        **({} if site is None else {"site": site}),
        "rows": total.n_rows,
        "dropped": found.dropped,
        "weight": total.weight,
        **total.measures,
    }
    if site_column is not None:
        said["sites"] = {
            name: {"rows": score.n_rows, "weight": score.weight, **score.measures}
            for name, score in found.sites.items()
        }
    pairs = [("rows", f"{total.n_rows:,}")]
    pairs += [(words, f"{total.measures[name]:.5g}") for name, words in _words(found).items()]
    say(
        said,
        as_json,
        quiet,
        listed(pairs),
        *([] if site_column is None else [_by_site(site_column, found)]),
    )


def _words(found: Evaluation) -> dict[str, str]:
    return {name: words for name, words in WORDS.items() if name in found.total.measures}


def _by_site(column: str, found: Evaluation) -> Table:
    words = _words(found)
    most = sorted(found.sites.items(), key=lambda item: -item[1].weight)[:NAMED]
    rows = (
        [name, f"{score.n_rows:,}", *(f"{score.measures[key]:.5g}" for key in words)]
        for name, score in sorted(most)
    )
    table = table_of([column, "rows", *words.values()], rows, {column})
    left = len(found.sites) - len(most)
    if left:
        table.caption = f"and {left:,} smaller ones, which --json lists"
    return table
