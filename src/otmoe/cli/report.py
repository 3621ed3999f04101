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

The page is one file that asks nothing of any network: mail it, print it. It names the sites.""",
)
@click.argument("file", type=click.Path(path_type=Path))
@option("--title", metavar="TEXT", section="Page", help="By default it has the name of FILE.")
@output("Page to write, HTML.")
def report(
    file: Path, title: str | None, output: Path, force: bool, as_json: bool, quiet: bool
) -> None:
    """Make a page of FILE, a model that `otmoe aggregate`, `refine` or `run` has written.

    It shows what each site sent and contributed, where its experts went, coefficients, the gate,
    and what to look at before trusting the model. Of a model alone it shows the model.
    """
    check_output(output, force)
    otmoe.report(file, output, title=title)
    found = {"command": "report", "output": str(output), "bytes": output.stat().st_size}
    about = [("written to", str(output)), ("size", f"{found['bytes']:,} bytes")]
    say(found, as_json, quiet, listed(about))
