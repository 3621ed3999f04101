"""``otmoe refine start``: the server's first request."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Literal

import click

from otmoe.cli import known, options
from otmoe.cli.aggregate import support_of
from otmoe.cli.common import Command, Rounds, check_output, few, option, output, say, usage
from otmoe.cli.holdings import roster_lines, why_scatter
from otmoe.cli.inbox import open_inbox, paths_of
from otmoe.cli.remembered import columns_asked, columns_told
from otmoe.text.sentences import Error


@click.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe refine start model.json "*.moe.json" --state state.json -o round1.request.json
  otmoe refine start model.json "*.moe.json" --between auto --state state.json \\
      -o round1.request.json

The sites of the messages are asked. The support points only set a common scale for the features: a
rough one is enough, and it does not change the result.""",
)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@option(
    "--exclude",
    multiple=True,
    metavar="SITE",
    section="Sites",
    help="Do not ask this site; may be given several times.",
)
@option(
    "--rounds",
    type=Rounds(1),
    default="auto",
    show_default=True,
    section="Rounds",
    help="Number of rounds; auto stops within a thousandth of a standard error of the maximum.",
)
@option(
    "--sandwich",
    is_flag=True,
    section="Rounds",
    help="Ask for what sandwich standard errors need; each site decides whether to send it.",
)
@option(
    "--between",
    type=click.Choice(known.RESTRICTIONS),
    section="Rounds",
    help="Have the last step estimate how sites differ, for `otmoe personalise`: in everything "
    "(auto), in the gate, or in the intercepts. Asks for the same as --sandwich.",
)
@option(
    "--secure",
    is_flag=True,
    section="Rounds",
    help="Learn only the sum of all replies, and none of them individually: replies are masked "
    "with the keys in the sites' messages (`otmoe fit --secure`). Needs at least three "
    "sites, and a reply from each of them in every round.",
)
@option(
    "--support",
    metavar="DATA",
    section="Scale",
    help="Rows of covariates, as for `otmoe aggregate`; by default points are drawn from the "
    "sketches and rows in the messages.",
)
@options.missing("Scale")
@option(
    "--state",
    type=click.Path(path_type=Path),
    required=True,
    section="Output",
    help="File that holds the server's state between rounds.",
)
@output("Request to write, JSON.")
def start(
    model: Path,
    files: tuple[str, ...],
    exclude: tuple[str, ...],
    rounds: int | str,
    sandwich: bool,
    between: str | None,
    secure: bool,
    support: str | None,
    missing: Literal["error", "drop"],
    state: Path,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Start from a merged MODEL, and write the first request.

    FILES are the messages that it was merged from, or patterns in quotes.
    """
    for path in (state, output):
        check_output(path, force)
    if state.resolve() == output.resolve():
        raise usage(Error.SHELL_TWO_FILES)

    from otmoe import support_from
    from otmoe.aggregation.support import N_SUPPORT
    from otmoe.documents.files import load_model_file
    from otmoe.documents.model_file import ModelFile
    from otmoe.documents.roster import Roster
    from otmoe.federation.rounds import begin, check_merged, request_of
    from otmoe.likelihood.rows import Scaling
    from otmoe.text.strict_json import named

    found = load_model_file(model)
    merged, features = found.model, found.features
    aggregation = found.aggregation if isinstance(found, ModelFile) else None
    messages = open_inbox(files, exclude, skip_bad=False).messages
    check_merged(merged, features, messages, named(model))
    points = support_of(messages, support, N_SUPPORT, missing, 0)
    if isinstance(points, int):
        points = support_from(messages, points).rows
    sites = {message.site: message.n_samples for message in messages}
    begun = begin(
        merged,
        sites,
        Scaling.of(points),
        rounds,
        features=features,
        aggregation=aggregation,
        sandwich=sandwich,
        between=between,
        roster=Roster.of({m.site: m.key for m in messages}) if secure else None,
        columns=columns_asked(paths_of(files)) | columns_told(found),
    )
    request = request_of(begun)
    request.save(output)
    begun.save(state)
    report = {
        "command": "refine start",
        "output": str(output),
        "state": str(state),
        "round": request.round,
        "digest": request.digest,
        "sites": sites,
        "sandwich": request.sandwich,
        "between": between,
        "roster": None if begun.roster is None else begun.roster.fingerprint,
        "bytes": output.stat().st_size,
    }
    why = why_scatter(request.between)
    say(
        report,
        as_json,
        quiet,
        f"the request is {output}; send it to {few(sites)}",
        *([f"they are also asked for the scatter of scores, {why}"] if request.sandwich else []),
        *([] if begun.roster is None else roster_lines(begun.roster)),
        f"keep {state}: the next step needs this state",
        *(["Next, at every site: " + _answer(output)] if begun.roster is None else []),
    )


def _answer(request: Path) -> str:
    """Return what a site runs to answer a request."""
    return f"otmoe refine answer {quote(str(request))} --fit MESSAGE -o REPLY"
