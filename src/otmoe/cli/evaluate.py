"""``otmoe evaluate``: how good a model is on rows in files."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import between, options
from otmoe.cli.common import NAMED, Command, data, option, progress, say, speech, usage, warn
from otmoe.cli.remembered import columns_asked, columns_told
from otmoe.cli.structure import PER
from otmoe.cli.tables import table_of
from otmoe.text.sentences import Error

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
    short_help="Measure the errors of a model on rows with a known response.",
    epilog="""\b
Examples:
  otmoe evaluate model.json test.parquet --target y
  otmoe evaluate model.json "test/*.parquet" --target y --site-column hospital --json

Use rows that the model was not fitted to; otherwise it will look better than it is.""",
)
@click.argument("model", type=click.Path(path_type=Path))
@data
@options.target(
    "The response, if the file MODEL does not name it; y/n for y of n trials, a,b for several "
    "responses.",
    required=False,
)
@options.weight
@options.offset
@option(
    "--site-column",
    metavar="COLUMN",
    section="Columns",
    help="Also report each value of this column separately.",
)
@option(
    PER,
    metavar="COLUMN",
    section="Columns",
    help="If rows of a group share one expert in the model: labels of the groups. The "
    "log-likelihood is then that of groups.",
)
@options.missing()
@options.sep
@between.site("Model")
@speech
def evaluate(
    model: Path,
    data: tuple[str, ...],
    target: str | None,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    expert_per: str | None,
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
    there are two, the area under the ROC curve; for several responses those of each. For
    comparison, the null model is shown: the best model of these rows without covariates, with
    the offset if there is one.
    """
    from otmoe.data.shards import rows_dropped
    from otmoe.documents.files import load_model_file
    from otmoe.evaluation.files import evaluate_files

    file = load_model_file(model)
    known = columns_asked([model]) | columns_told(file)
    target = target or known.get("target")
    if target is None:
        raise usage(Error.SHELL_EVALUATE_TARGET, model=model)
    options.check_offset(file, offset)
    options.check_groups(file, expert_per)
    used = between.model_for(file, model, site)
    with progress("files", quiet) as report:
        found = evaluate_files(
            used,
            data,
            str(target),
            features=file.features,
            weight=weight,
            site_column=site_column,
            missing=missing,
            offset=offset,
            sep=sep,
            groups=expert_per,
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
        **({} if found.n_groups is None else {"groups": found.n_groups}),
        "dropped": found.dropped,
        "weight": total.weight,
        **_measures(total),
    }
    if site_column is not None:
        said["sites"] = {
            name: {"rows": score.n_rows, "weight": score.weight, **score.measures, **_each(score)}
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


def _measures(score: Score) -> dict[str, Any]:
    """Return all that is measured, for programs."""
    measured = {**score.measures, "null": score.null, "explained": score.explained}
    return {**measured, **_each(score, null=True)}


def _each(score: Score, null: bool = False) -> dict[str, Any]:
    """Return the measures of each of several responses."""
    if not score.responses:
        return {}
    of = _measures if null else (lambda own: own.measures)
    return {"responses": {name: of(own) for name, own in score.responses.items()}}


def explained_lines(score: Score, response: str = "") -> list[str]:
    """Return what share of the null model's error a model takes away, in words."""
    if score.responses:
        each = score.responses.items()
        return [line for name, own in each for line in explained_lines(own, f" of {name}")]
    if not isfinite(score.explained):
        return []
    what = "deviance" if "deviance" in score.measures or score.classes.size else "variance"
    explained = f"The model explains {score.explained:.1%} of the {what}{response}"
    if "log_likelihood" not in score.null:
        return [f"{explained}."]
    better = score.measures["log_likelihood"] - score.null["log_likelihood"]
    return [
        f"{explained}; its log-likelihood is "
        f"{abs(better):.4g} nats per row {'above' if better > 0 else 'below'} the null model's."
    ]


def _overall(found: Evaluation) -> Table:
    """Return the measures of all rows, beside those of the null model."""
    rows = [
        [words, f"{score.measures[name]:.5g}", _shown(score.null, name)]
        for words, score, name in _parts(found.total)
    ]
    grouped = "" if found.n_groups is None else f" in {found.n_groups:,} groups"
    heads = [f"{found.total.n_rows:,} rows{grouped}", "model", "null model"]
    return table_of(heads, rows, heads[:1])


def _shown(values: dict[str, float], name: str) -> str:
    return f"{values[name]:.5g}" if name in values else ""


def _parts(score: Score) -> list[tuple[str, Score, str]]:
    """Return each measure: its words, the score it is of, and its name there."""
    own = [(words, score, name) for name, words in WORDS.items() if name in score.measures]
    each = score.responses.items()
    more = [(f"{r}: {words}", part, name) for r, one in each for words, part, name in _parts(one)]
    return own + more


def _narrow(score: Score) -> list[tuple[str, Score, str]]:
    """Return the measures that a table of sites has room for."""
    every = _parts(score)
    return [part for part in every if not score.responses or part[1] is score or part[2] == "r2"]


def _by_site(column: str, found: Evaluation) -> Table:
    words = [words for words, _, _ in _narrow(found.total)]
    most = sorted(found.sites.items(), key=lambda item: -item[1].weight)[:NAMED]
    rows = (
        [name, f"{score.n_rows:,}", *(f"{p.measures[key]:.5g}" for _, p, key in _narrow(score))]
        for name, score in sorted(most)
    )
    table = table_of([column, "rows", *words], rows, {column})
    left = len(found.sites) - len(most)
    if left:
        table.caption = f"{left:,} smaller ones are listed by --json"
    return table
