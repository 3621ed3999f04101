"""``otmoe refine again``: a secure sum with fewer sites and another question."""

from __future__ import annotations

from pathlib import Path

import click

from otmoe.cli.common import Command, check_output, few, option, output, say, usage
from otmoe.cli.holdings import roster_lines
from otmoe.text.sentences import Error


@click.command(
    "again",
    cls=Command,
    epilog="""\b
Example:
  otmoe refine again state.json --exclude Nantes -o round2b.request.json
  otmoe refine answer round2b.request.json lyon.parquet --target y --site Lyon --key lyon.key \\
      --new-roster -o lyon.round2b.reply.json

Replies to the previous request can no longer be used. Sites have to agree to the new roster: if
rounds were completed with the excluded sites, the difference between the sums reveals nearly as
much as plain replies of these sites would have.""",
)
@click.argument("state", type=click.Path(path_type=Path))
@option(
    "--exclude",
    multiple=True,
    required=True,
    metavar="SITE",
    section="Sites",
    help="Continue without this site; may be given several times. At least three must remain.",
)
@output("Request to write, JSON.")
def start_again(
    state: Path, exclude: tuple[str, ...], output: Path, force: bool, as_json: bool, quiet: bool
) -> None:
    """Repeat a round of a secure sum without sites that do not reply.

    It replaces the roster and the question in STATE, and writes the request.
    """
    from otmoe.documents.state import RefineState
    from otmoe.federation.rounds import request_of
    from otmoe.federation.secure import again

    check_output(output, force)
    if state.resolve() == output.resolve():
        raise usage(Error.SHELL_TWO_FILES)
    fresh = again(RefineState.load(state), exclude)
    request = request_of(fresh)
    request.save(output)
    fresh.save(state)
    assert fresh.roster is not None  # `again` sees to it
    report = {
        "command": "refine again",
        "output": str(output),
        "state": str(state),
        "round": request.round,
        "digest": request.digest,
        "sites": dict(fresh.sites),
        "roster": fresh.roster.fingerprint,
        "bytes": output.stat().st_size,
    }
    say(
        report,
        as_json,
        quiet,
        f"the request is {output}; send it to {few(fresh.sites)}",
        *roster_lines(fresh.roster),
        f"keep {state}: the next step needs this state",
    )
