"""``otmoe survey``: what columns hold, as counts that may leave a site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli import known, options, policy
from otmoe.cli.common import Command, data, option, say, speech
from otmoe.cli.tables import table_of

if TYPE_CHECKING:
    from otmoe.data.survey import SurveyedColumn, SurveyedSite
    from otmoe.federation.policy.surveys import ReleasedSurvey

_SHOWN = 6  # levels of a column in the table; --json has all


@click.command(
    cls=Command,
    short_help="Summarise the columns of a site: kinds, levels, missing values.",
    epilog="""\b
Examples:
  otmoe survey lyon.parquet --site Lyon
  otmoe survey lyon.parquet --site Lyon --json > lyon.survey.json
  otmoe survey data --site-column hospital

For a coordinator who has to agree with sites on a file of features: columns, what they hold, their
levels, how much is missing. The site's policy says which columns may be read and which counts are
too small to be disclosed. Check the survey before you send it.""",
)
@data
@option("--site", metavar="NAME", default="all rows", section="Columns", help="Name of the site.")
@option(
    "--site-column",
    metavar="COLUMN",
    section="Columns",
    help="Report each value of this column separately.",
)
@option(
    "--max-levels",
    type=click.IntRange(min=1),
    default=known.MAX_LEVELS,
    show_default=True,
    section="What to count",
    help="Do not list the values of a text column with more.",
)
@option(
    "--least",
    type=click.IntRange(min=1),
    section="What to count",
    help="Hide counts of fewer rows, and values that fewer rows have; by default as set by the "
    "policy, or 10 without one.",
)
@options.sep
@policy.options
@speech
def survey(
    data: tuple[str, ...],
    site: str,
    site_column: str | None,
    max_levels: int,
    least: int | None,
    sep: str | None,
    policy_file: str | None,
    override: tuple[str, ...],
    reason: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Summarise the columns of DATA: kinds, levels and missing values, as counts.

    Small counts are hidden, together with others from which they could be deduced; the remaining
    counts are rounded to multiples of five. Nothing is sent.
    """
    from otmoe.federation.policy.border import Border
    from otmoe.federation.policy.rules import in_force
    from otmoe.federation.policy.surveys import release_survey
    from otmoe.federation.policy.verdict import check

    rules, source = in_force(policy_file)
    found = release_survey(
        data,
        Border(rules, overrides=policy.set_aside(override, reason)),
        least=least,
        site=site,
        site_column=site_column,
        max_levels=max_levels,
        sep=sep,
    )
    check(found.verdict)
    what = "people" if found.verdict.people else "rows"
    report = {
        "command": "survey",
        "least": found.least,
        "step": found.step,
        "left_out": found.left_out,
        "sites": [_told(site) for site in found.sites],
        **policy.verdict_report(found.verdict, source),
    }
    lines = [*_lines(found.sites, what), _hidden(found, what)]
    say(report, as_json, quiet, *lines, *policy.verdict_lines(found.verdict, source))


def _hidden(found: ReleasedSurvey, what: str) -> str:
    """Say what the survey does not tell."""
    words = [f"Counts of fewer than {found.least} {what} are hidden."] if found.least > 1 else []
    if found.step > 1:
        words.append(f"Counts of values are rounded to multiples of {found.step}.")
    if found.left_out:
        words.append(f"Columns not allowed by the policy, and not read: {found.left_out}.")
    return " ".join([*words, "Nothing has been sent."])


def _told(found: SurveyedSite) -> dict[str, Any]:
    return {
        "site": found.site,
        "rows": found.n_rows,
        "columns": [
            {**vars(column), "levels": None if column.levels is None else dict(column.levels)}
            for column in found.columns
        ],
    }


def _lines(sites: Iterable[SurveyedSite], what: str) -> Iterator[Any]:
    for found in sites:
        yield f"{found.site}: {_count(found.n_rows)} {what}, {len(found.columns)} columns"
        rows = (
            [column.name or "(no name)", column.kind, _count(column.missing), _levels(column)]
            for column in found.columns
        )
        yield table_of(["column", "kind", "missing", "values"], rows, {"column", "kind", "values"})


def _count(n: int | None) -> str:
    return "hidden" if n is None else f"{n:,}"


def _levels(column: SurveyedColumn) -> str:
    if column.levels is None:
        many = column.distinct is not None
        return f"{column.distinct:,} distinct values: too many for a category" if many else ""
    shown = [f"{level} {n:,}" for level, n in list(column.levels.items())[:_SHOWN]]
    left = len(column.levels) - len(shown)
    more = [f"{left} more"] if left > 0 else []
    hidden = [f"{column.hidden} hidden"] if column.hidden else []
    return ", ".join([*shown, *more, *hidden])
