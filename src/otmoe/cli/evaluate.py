"""``otmoe evaluate``: how good a model is on rows in files."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import between, options
from otmoe.cli.common import NAMED, Command, data, option, progress, say, speech, warn
from otmoe.cli.tables import table_of

if TYPE_CHECKING:
    from rich.table import Table

    from otmoe.evaluation.files import Evaluation
    from otmoe.evaluation.scores import Score


WORDS = {
    "log_likelihood": "log-likelihood per row",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "deviance": "deviance per row",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "auc": "AUC",
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
@options.offset
@option(
    "--site-column",
    metavar="COLUMN",
    section="Columns",
    help="Tell the values of this column apart too.",
)
@options.missing()
@options.sep
@between.site("Model")
@speech
def evaluate(
    model: Path,
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    missing: Literal["error", "drop"],
    sep: str | None,
    site: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Evaluate the model in the file MODEL on rows whose response is known.

    MODEL may be a merged model or a site's message. Rows are read batch by batch, so files may be
    larger than memory. For numbers: RMSE, MAE and R², the share of the variance explained; for
    counts the deviance as well; for classes the accuracy, the log loss, the Brier score and, if
    there are two, the area under the ROC curve. Beside it stands the null model: the best one of
    these rows that knows no covariate.
    """
    from otmoe.data.shards import rows_dropped
    from otmoe.documents.files import load_model_file
    from otmoe.evaluation.files import evaluate_files

    file = load_model_file(model)
    options.check_offset(file, offset)
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
            offset=offset,
            sep=sep,
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
        "null": total.null,
        "explained": total.explained,
    }
    if site_column is not None:
        said["sites"] = {
            name: {"rows": score.n_rows, "weight": score.weight, **score.measures}
            for name, score in found.sites.items()
        }
    say(
        said,
        as_json,
        quiet,
        _overall(found),
        *explained_lines(total),
        *([] if site_column is None else [_by_site(site_column, found)]),
    )


def explained_lines(score: Score) -> list[str]:
    """Return what share of the null model's error a model takes away, in words."""
    if not isfinite(score.explained):
        return []
    what = "deviance" if "deviance" in score.measures or score.classes.size else "variance"
    explained = f"The model explains {score.explained:.1%} of the {what}"
    if "log_likelihood" not in score.null:
        return [f"{explained}."]
    better = score.measures["log_likelihood"] - score.null["log_likelihood"]
    return [
        f"{explained}; its log-likelihood is "
        f"{abs(better):.4g} nats per row {'above' if better > 0 else 'below'} the null model's."
    ]


def _overall(found: Evaluation) -> Table:
    """Return the measures of all rows, beside those of the null model."""
    mine, null = found.total.measures, found.total.null
    rows = [
        [words, f"{mine[name]:.5g}", f"{null[name]:.5g}" if name in null else ""]
        for name, words in _words(found).items()
    ]
    heads = [f"{found.total.n_rows:,} rows", "model", "null model"]
    return table_of(heads, rows, heads[:1])


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
