"""``otmoe predict``: a model's answers for rows in files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from otmoe.cli import between, options
from otmoe.cli.common import (
    Command,
    Levels,
    Names,
    check_output,
    data,
    option,
    output,
    progress,
    say,
)


@click.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe predict model.json data -o predictions.parquet --quantiles .05,.95 --expert --keep y

Rows keep their order. Columns that --keep takes from CSV are text.""",
)
@click.argument("model", type=click.Path(path_type=Path))
@data
@option(
    "--quantiles",
    type=Levels(),
    section="What to predict",
    help="Also predict quantiles, of numbers and counts: columns q0.05, ...",
)
@option(
    "--proba",
    is_flag=True,
    section="What to predict",
    help="Also predict the probability of each class: columns p(...).",
)
@option(
    "--expert",
    is_flag=True,
    section="What to predict",
    help="Also predict the most probable expert, counted from 0.",
)
@between.site("What to predict")
@options.offset
@option("--keep", type=Names(), section="Rows", help="Columns of DATA to copy to the output.")
@option(
    "--missing",
    type=click.Choice(["error", "keep"]),
    default="error",
    show_default=True,
    section="Rows",
    help="Rows with a missing feature: refuse them, or leave their predictions empty.",
)
@options.sep
@output("File to write, .parquet, .csv or .csv.gz.")
def predict(
    model: Path,
    data: tuple[str, ...],
    quantiles: list[float] | None,
    proba: bool,
    expert: bool,
    site: str | None,
    offset: str | None,
    keep: list[str] | None,
    missing: Literal["error", "keep"],
    sep: str | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict rows with the model in the file MODEL.

    Files are read and written batch by batch, so they may be larger than memory. Columns become
    features as the model file specifies; if it does not, they are numbers, matched by name.
    """
    check_output(output, force)

    from otmoe.documents.files import load_model_file
    from otmoe.evaluation.prediction import Predictor

    file = load_model_file(model)
    options.check_offset(file, offset)
    predictor = Predictor(
        between.model_for(file, model, site),
        file.features,
        quantiles or (),
        expert=expert,
        proba=proba,
        keep=keep or (),
        missing=missing,
        offset=offset,
        sep=sep,
    )
    with progress("files", quiet) as report:
        n_rows = predictor.write(data, output, report)
    columns = [*predictor.keep, *predictor.columns]
    say(
        {"command": "predict", "output": str(output), "rows": n_rows, "columns": columns},
        as_json,
        quiet,
        f"wrote {n_rows:,} rows to {output}: {', '.join(columns)}",
    )
