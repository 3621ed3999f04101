"""``otmoe summary``: a model as a table to read, to compute with, or to show."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli.closing import closing, facts_of, matrix_of, title_of
from otmoe.cli.common import Command, check_output, option, say, speech, usage
from otmoe.text.html import html_table
from otmoe.text.outputs import write_whole
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from otmoe.inference.matrix import Matrix


@click.command(
    cls=Command,
    short_help="Show the coefficients of a model and how good it is.",
    epilog="""\b
Examples:
  otmoe summary model.json
  otmoe summary model.json -o coefficients.csv
  otmoe summary model.json -o summary.html""",
)
@click.argument("model", type=click.Path(path_type=Path))
@option(
    "--csv",
    "as_csv",
    is_flag=True,
    section="Output",
    help="The coefficients as CSV: a row per feature (those of splines too), a column per expert, "
    "then standard errors.",
)
@option("--html", "as_html", is_flag=True, section="Output", help="A page of HTML.")
@option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    section="Output",
    help="File to write; a name ending in .csv or .html selects the format. By default the "
    "result is printed.",
)
@option("--force", is_flag=True, section="Output", help="Overwrite an existing file.")
@speech
def summary(
    model: Path,
    as_csv: bool,
    as_html: bool,
    output: Path | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show the coefficients of the file MODEL, features down and experts across.

    A spline is shown as a whole, with the test that its curve is zero in an expert; `otmoe
    inspect` and `otmoe report` show the curve, --csv its coefficients.

    Also shown: log-likelihood and share explained if the file has them, whether the maximum was
    reached, standard errors, sites that stand out, and what to do next. MODEL may be a merged
    model or a site's message.
    """
    from otmoe.documents.files import load_model_file

    if as_csv + as_html + as_json > 1:
        raise usage(Error.SHELL_ONE_FORM)
    if output is not None:
        if not (as_csv or as_html or as_json):
            as_csv = output.suffix.lower() == ".csv"
            as_html = output.suffix.lower() in (".html", ".htm")
        if not (as_csv or as_html):
            raise usage(Error.SHELL_FORM_OF_FILE)
        check_output(output, force)
    file = load_model_file(model)
    matrix = matrix_of(file)
    if as_csv or as_html:
        text = _csv(matrix) if as_csv else _page(title_of(file), facts_of(file), matrix)
        if output is None:
            click.echo(text, nl=False)
        else:
            write_whole(output, text)
            say({}, False, quiet, f"written to {output}")
        return
    report: dict[str, Any] = {
        "command": "summary",
        "model": str(model),
        "facts": dict(facts_of(file)),
        "share": None if matrix.share is None else matrix.share.tolist(),
        "coefficients": _records(matrix),
        "curves": [asdict(t) for row in matrix.curves for t in row.tests.values()],
    }
    say(report, as_json, quiet, *closing(file, model))


def _csv(matrix: Matrix) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(["" if cell is None else cell for cell in row] for row in matrix.csv_rows())
    return out.getvalue()


def _records(matrix: Matrix) -> list[dict[str, Any]]:
    heads, *rows = matrix.csv_rows()
    return [dict(zip(heads, row, strict=True)) for row in rows]


def _page(title: str, facts: list[tuple[str, str]], matrix: Matrix) -> str:
    about = html_table(["", ""], facts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        "<style>body{font-family:sans-serif}td,th{padding:2px 8px;text-align:right}</style>"
        f"</head><body><h1>{escape(title)}</h1>{about}{matrix.html()}</body></html>\n"
    )
