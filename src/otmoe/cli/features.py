"""``otmoe features``: how columns become features, as a file to be looked at and sent round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from otmoe.cli import known, options
from otmoe.cli.common import (
    Command,
    Failed,
    Names,
    check_output,
    data,
    option,
    output,
    say,
    usage,
)
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from otmoe import FeatureSpec
    from otmoe.data.formula import Formula

_POINTS = 20_000  # drawn from sketches, for quantiles


@click.command(
    cls=Command,
    short_help="Define how columns become features.",
    epilog="""\b
Example:
  otmoe features data --target y -o features.json
  otmoe run data --target y --experts 2 --features features.json -o model.json
  otmoe features data --target late --spline hour:5 --interaction dep:origin -o features.json
  otmoe features inbox/*.moe.json --spline hour:5 -o features.json

Check the file before you use it: a level that occurs in no sampled row is missing from it.""",
)
@data
@options.target("The response; not a feature.", required=False)
@option(
    "--formula",
    metavar="TEXT",
    section="Columns",
    help="Columns, splines and interactions in one formula, as in 'y ~ spline(hour, 5) + "
    "dep:origin'.",
)
@option("--weight", metavar="COLUMN", section="Columns", help="Case weights; not a feature.")
@option(
    "--offset",
    metavar="COLUMN",
    section="Columns",
    help="Known part of the linear predictor; not a feature.",
)
@option("--site-column", metavar="COLUMN", section="Columns", help="The site; not a feature.")
@option(
    "--columns",
    type=Names(),
    section="Columns",
    help="The features, in order, in which case the options above may be omitted; by default all "
    "other columns.",
)
@option(
    "--center",
    is_flag=True,
    section="Encoding",
    help="Centre and scale numbers by their mean and standard deviation in the sample.",
)
@option(
    "--spline",
    "splines",
    multiple=True,
    metavar="COLUMN:DF",
    section="Terms",
    help="Model a number as a curve: a natural cubic spline with DF degrees of freedom; may be "
    "given several times.",
)
@option(
    "--interaction",
    "interactions",
    multiple=True,
    metavar="COLUMN:COLUMN",
    section="Terms",
    help="Products of two columns' features; may be given several times.",
)
@option(
    "--missing",
    type=click.Choice(["error", "indicator"]),
    default="error",
    show_default=True,
    section="Encoding",
    help="Missing values: leave them to --missing of later commands, or fill in the mean and add "
    "an indicator feature (for a category, make missing a level).",
)
@option(
    "--max-levels",
    type=click.IntRange(min=2),
    default=known.MAX_LEVELS,
    show_default=True,
    section="Encoding",
    help="Refuse a category with more levels.",
)
@options.sep
@output("File to write, JSON.")
def features(
    data: tuple[str, ...],
    target: str | None,
    formula: str | None,
    weight: str | None,
    offset: str | None,
    site_column: str | None,
    columns: list[str] | None,
    center: bool,
    splines: tuple[str, ...],
    interactions: tuple[str, ...],
    missing: Literal["error", "indicator"],
    max_levels: int,
    sep: str | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Define how columns become features, from the first rows of every file.

    Numbers and booleans stay numbers; text becomes a category. DATA may also be messages of sites
    (.json), for a coordinator who has no rows: their columns stay as they are, and knots of splines
    are quantiles of what the sketches of all sites describe.
    """
    check_output(output, force)
    sent = all(name.endswith(".json") for name in data)
    roles = [name for name in (target, weight, offset, site_column) if name is not None]
    if formula is not None:
        for word, value in {
            "--columns": columns,
            "--spline": splines,
            "--interaction": interactions,
        }.items():
            if value:
                raise usage(Error.SHELL_FORMULA_OR, option=word)
    elif columns is not None and set(roles) & set(columns):
        raise usage(Error.SHELL_ROLES)
    elif columns is None and target is None and not sent:
        raise usage(Error.SHELL_TARGET_OR_COLUMNS)
    if sent:
        given = {"--center": center, "--missing indicator": missing == "indicator", "--sep": sep}
        for word in given:
            if given[word]:
                raise usage(Error.SHELL_OF_DATA, option=word)
    how: dict[str, Any] = {"center": center, "max_levels": max_levels, "missing": missing}

    from otmoe import FeatureSpec
    from otmoe.data.formula import Formula
    from otmoe.data.responses import columns_of, responses_of
    from otmoe.data.shards import sample_rows
    from otmoe.data.shards.files import find
    from otmoe.data.shards.memory import default_columns
    from otmoe.data.shards.partitions import partitions_of
    from otmoe.data.tables import check_names

    parsed = None if formula is None else Formula.parse(formula)
    curves, products = dict(map(_spline, splines)), list(map(_interaction, interactions))
    if sent:
        spec, n_sites = _of_messages(data, parsed, columns, curves, products)
        told = f"the message{'s' * (n_sites != 1)} of {n_sites} site{'s' * (n_sites != 1)}"
        _tell(spec, output, {"sites": n_sites}, told, as_json, quiet)
        return
    if parsed is not None:
        target = target or parsed.target
        if target is None:
            raise usage(Error.SHELL_NO_TARGET)
        roles = list(dict.fromkeys([target, *roles]))
    sample = sample_rows(data, sep=sep)
    if target is not None:
        own = columns_of(responses_of(target, sample.column_names))
        roles = [*own, *(name for name in roles if name != target)]
    check_names(sorted(roles), sample.column_names)
    if parsed is not None:
        spec = replace(parsed, target=target).features(sample, roles=roles, **how)
    else:
        if columns is None:
            folders = partitions_of(find(data)[0])
            columns = default_columns(sample.column_names, {*roles, *folders})
        how |= {"splines": curves, "interactions": products}
        spec = FeatureSpec.from_sample(sample, columns, **how)
    rows = sample.num_rows
    _tell(spec, output, {"sampled_rows": rows}, f"{rows:,} rows", as_json, quiet)


def _of_messages(
    files: Sequence[str],
    formula: Formula | None,
    columns: Sequence[str] | None,
    curves: dict[str, int],
    products: list[tuple[str, str]],
) -> tuple[FeatureSpec, int]:
    """Return features of the columns that sites have sent models of, and the number of sites."""
    from otmoe import FeatureSpec, support_from
    from otmoe.cli.inbox import open_inbox
    from otmoe.data.tables import check_names

    messages = open_inbox(files, (), False).messages
    known = messages[0].features or FeatureSpec.of_names(messages[0].model.terms[1:])
    known = known.base
    if formula is not None:
        formula = replace(formula, target=None)
        columns, curves = formula.columns(dict.fromkeys(known.names, ())), formula.df
        products = list(dict.fromkeys(p for side in formula.sides() for p in side.interactions()))
    columns = known.names if columns is None else columns
    check_names(sorted(columns), known.names)
    places = {column.name: column for column in known.columns}
    spec = FeatureSpec(tuple(places[name] for name in columns), known.unknown)
    sample: dict[str, Any] = {}
    if curves:
        if not any(message.support_document() for message in messages):
            names = ", ".join(f"spline({name})" for name in curves)
            raise Failed(Error.SHELL_NO_SKETCHES, terms=names)
        sample = known.numbers(support_from(messages, _POINTS).rows)
    return spec.with_terms(sample, curves, products), len(messages)


def _tell(
    spec: FeatureSpec,
    output: Path,
    about: dict[str, int],
    source: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the file and say what is in it."""
    spec.save(output)
    report = {
        "command": "features",
        "output": str(output),
        **about,
        "columns": len(spec.names),
        "features": len(spec.feature_names),
        "terms": [term.name for term in spec.terms],
    }
    categories = [c for c in spec.columns if c.kind == "category"]
    say(
        report,
        as_json,
        quiet,
        f"{len(spec.names)} columns, {len(spec.feature_names)} features, from {source}; written to "
        f"{output}",
        *(f"  {c.name}: {', '.join(c.levels)} (reference {c.reference})" for c in categories),
        *term_lines(spec),
    )


def term_lines(spec: FeatureSpec) -> list[str]:
    """Return a line for each term, and for each column that says what missing values are."""
    from otmoe.data.terms import Spline

    lines = []
    for term in spec.terms:
        if isinstance(term, Spline):
            knots = ", ".join(f"{knot:g}" for knot in term.knots)
            lines.append(f"  {term.name}: {term.df} degrees of freedom, knots {knots}")
        else:
            size = len(spec.layout.of_terms[term.name])
            lines.append(f"  {term.name}: {size} product{'s' * (size != 1)}")
    for column in spec.columns:
        if column.impute is not None:
            lines.append(
                f"  {column.name}: missing values become {column.impute:g}, with an indicator"
            )
    return lines


def _spline(value: str) -> tuple[str, int]:
    name, colon, df = value.rpartition(":")
    if not colon or not name or not df.isdecimal():
        raise usage(Error.SHELL_SPLINE, value=value)
    return name, int(df)


def _interaction(value: str) -> tuple[str, str]:
    parts = value.split(":")
    if len(parts) != 2 or not all(parts):
        raise usage(Error.SHELL_INTERACTION, value=value)
    return parts[0], parts[1]
