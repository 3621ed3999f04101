"""The command ``otmoe``."""

from __future__ import annotations

import click

from otmoe.cli import (
    aggregate,
    evaluate,
    features,
    fit,
    inspect,
    personalise,
    predict,
    refine,
    report,
    run,
    select,
    simulate,
    summary,
    survey,
)
from otmoe.cli.common import Commands

__all__ = ["main"]


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Example, if the rows can be read from here:
  otmoe simulate -o data --files 4 --rows 8000 --experts 2 --features 3
  otmoe run data --target y --experts 2 -o model.json
  otmoe predict model.json data -o predictions.parquet

\b
Example, if sites may not pool their rows:
  otmoe fit data/part-0.parquet --target y --experts 2 --site Lyon --sketch -o lyon.moe.json
  otmoe inspect lyon.moe.json
  otmoe aggregate "*.moe.json" -o model.json
  otmoe report model.json -o report.html

Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted, 143 ended by SIGTERM.
OTMOE_DEBUG=1 shows where an error came from.""",
)
@click.version_option(package_name="otmoe", prog_name="otmoe", message="%(prog)s %(version)s")
def main() -> None:
    """Mixtures of experts, fitted where the rows are and merged into one model.

    DATA is Parquet, CSV or Feather: files, folders, patterns in quotes such as "data/*.parquet", or
    URLs such as s3://bucket/data.
    """


for _command in (
    simulate.simulate,
    survey.survey,
    features.features,
    run.run,
    select.select,
    fit.fit,
    inspect.inspect,
    select.elbow,
    aggregate.aggregate,
    refine.refine,
    personalise.personalise,
    summary.summary,
    report.report,
    evaluate.evaluate,
    predict.predict,
):
    main.add_command(_command)
