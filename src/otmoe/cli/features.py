"""``otmoe features``: how columns become features, as a file to be looked at and sent round."""

from __future__ import annotations

from pathlib import Path

import click

from otmoe.cli import known, options
from otmoe.cli.common import Command, Names, check_output, data, option, output, say, usage
from otmoe.text.sentences import Error


@click.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe features data --target y -o features.json
  otmoe run data --target y --experts 2 --features features.json -o model.json

Look at the file before you use it: a level that is in no sampled row is not in it.""",
)
@data
@option("--target", metavar="COLUMN", section="Columns", help="The response, no feature.")
@option("--weight", metavar="COLUMN", section="Columns", help="Case weights, no feature either.")
@option("--site-column", metavar="COLUMN", section="Columns", help="The site, no feature either.")
@option(
    "--columns",
    type=Names(),
    section="Columns",
    help="The features, in order; by default all but those above, which need not be named then.",
)
@option(
    "--center",
    is_flag=True,
    section="Encoding",
    help="Subtract a number's mean in the sample, divide by its standard deviation.",
)
@option(
    "--max-levels",
    type=click.IntRange(min=2),
    default=known.MAX_LEVELS,
    show_default=True,
    section="Encoding",
    help="Refuse a category with more.",
)
@options.sep
@output("File to write, JSON.")
def features(
    data: tuple[str, ...],
    target: str | None,
    weight: str | None,
    site_column: str | None,
    columns: list[str] | None,
    center: bool,
    max_levels: int,
    sep: str | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say how columns become features, from the first rows of every file.

    Numbers, true and false stay numbers; text becomes a category.
    """
    check_output(output, force)
    if columns is None and target is None:
        raise usage(Error.SHELL_TARGET_OR_COLUMNS)
    roles = {name for name in (target, weight, site_column) if name is not None}
    if columns is not None and roles & set(columns):
        raise usage(Error.SHELL_ROLES)

    from otmoe import FeatureSpec
    from otmoe.data.shards import sample_rows
    from otmoe.data.shards.files import find
    from otmoe.data.shards.memory import default_columns
    from otmoe.data.shards.partitions import partitions_of
    from otmoe.data.tables import check_names

    sample = sample_rows(data, sep=sep)
    check_names(sorted(roles), sample.column_names)
    if columns is None:
        folders = partitions_of(find(data)[0])
        columns = default_columns(sample.column_names, {*roles, *folders})
    spec = FeatureSpec.from_sample(sample, columns, center=center, max_levels=max_levels)
    spec.save(output)
    report = {
        "command": "features",
        "output": str(output),
        "sampled_rows": sample.num_rows,
        "columns": len(spec.names),
        "features": len(spec.feature_names),
    }
    categories = [c for c in spec.columns if c.kind == "category"]
    say(
        report,
        as_json,
        quiet,
        f"{len(spec.names)} columns, {len(spec.feature_names)} features, from "
        f"{sample.num_rows:,} rows; written to {output}",
        *(f"  {c.name}: {', '.join(c.levels)} (reference {c.reference})" for c in categories),
    )
