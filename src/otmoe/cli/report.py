"""``otmoe report``: a page on what each site contributed, and whether to trust the result."""

from __future__ import annotations

from pathlib import Path

import click

import otmoe
from otmoe.cli.common import Command, check_output, option, output, say
from otmoe.cli.tables import listed


@click.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe aggregate "*.moe.json" -o model.json
  otmoe report model.json -o report.html

The page is a single file that loads nothing from the network. It names the sites.""",
)
@click.argument("file", type=click.Path(path_type=Path))
@option(
    "--title",
    metavar="TEXT",
    section="Page",
    help="Title of the page; by default the name of FILE.",
)
@output("Page to write, HTML.")
def report(
    file: Path, title: str | None, output: Path, force: bool, as_json: bool, quiet: bool
) -> None:
    """Write a report on FILE, a model, as a web page.

    FILE is what `otmoe aggregate`, `refine` or `run` has written. The page shows what each site
    sent and contributed, how its experts were merged, coefficients, the gate, and what to check
    before trusting the model. If FILE contains only a model, the page shows that alone.
    """
    check_output(output, force)
    otmoe.report(file, output, title=title)
    found = {"command": "report", "output": str(output), "bytes": output.stat().st_size}
    about = [("written to", str(output)), ("size", f"{found['bytes']:,} bytes")]
    say(found, as_json, quiet, listed(about))
