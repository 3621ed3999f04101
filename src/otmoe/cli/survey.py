"""``otmoe survey``: what columns hold, as counts that may leave a site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli import known, options
from otmoe.cli.common import Command, data, option, say, speech
from otmoe.cli.tables import table_of

if TYPE_CHECKING:
    from otmoe.data.survey import SurveyedColumn, SurveyedSite

_SHOWN = 6  # levels of a column in the table; --json has all


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  otmoe survey lyon.parquet --site Lyon
  otmoe survey lyon.parquet --site Lyon --json > lyon.survey.json
  otmoe survey data --site-column hospital

For a coordinator who has to agree with sites on a file of features: columns, what they hold, their
levels, how much is missing. Look at it before you send it.""",
)
@data
@option("--site", metavar="NAME", default="all rows", section="Columns", help="Name of the site.")
@option(
    "--site-column",
    metavar="COLUMN",
    section="Columns",
    help="Tell the values of this column apart.",
)
@option(
    "--max-levels",
    type=click.IntRange(min=1),
    default=known.MAX_LEVELS,
    show_default=True,
    section="What to count",
    help="Do not list the values of a text that has more.",
)
@option(
    "--least",
    type=click.IntRange(min=1),
    default=known.LEAST,
    show_default=True,
    section="What to count",
    help="Hide counts of fewer rows, and values that fewer rows have; 1 hides nothing.",
)
@options.sep
@speech
def survey(
    data: tuple[str, ...],
    site: str,
    site_column: str | None,
    max_levels: int,
    least: int,
    sep: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say what the columns of DATA hold: kinds, levels, missing values, as counts.

    Counts of few rows are hidden, and others with them where the total would give them away.
    Nothing is sent.
    """
    from otmoe.data.survey import guarded
    from otmoe.data.survey import survey as count

    raw = count(data, site=site, site_column=site_column, max_levels=max_levels, sep=sep)
    sites = [guarded(found, least) for found in raw]
    report = {"command": "survey", "least": least, "sites": [_told(found) for found in sites]}
    say(report, as_json, quiet, *_lines(sites, least))


def _told(found: SurveyedSite) -> dict[str, Any]:
    return {
        "site": found.site,
        "rows": found.n_rows,
        "columns": [
            {**vars(column), "levels": None if column.levels is None else dict(column.levels)}
            for column in found.columns
        ],
    }


def _lines(sites: Iterable[SurveyedSite], least: int) -> Iterator[Any]:
    for found in sites:
        yield f"{found.site}: {_count(found.n_rows, least)} rows, {len(found.columns)} columns"
        rows = (
            [column.name, column.kind, _count(column.missing, least), _levels(column, least)]
            for column in found.columns
        )
        yield table_of(["column", "kind", "missing", "values"], rows, {"column", "kind", "values"})
    yield f"Counts of fewer than {least} rows are hidden. Nothing has been sent."


def _count(n: int | None, least: int) -> str:
    return "hidden" if n is None else f"{n:,}"


def _levels(column: SurveyedColumn, least: int) -> str:
    if column.levels is None:
        many = column.distinct is not None
        return f"{column.distinct:,} different values: too many for a category" if many else ""
    shown = [f"{level} {n:,}" for level, n in list(column.levels.items())[:_SHOWN]]
    left = len(column.levels) - len(shown)
    more = [f"{left} more"] if left > 0 else []
    hidden = [f"{column.hidden} hidden"] if column.hidden else []
    return ", ".join([*shown, *more, *hidden])
