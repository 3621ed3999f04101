"""``otmoe refine start``: the server's first request."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from otmoe.cli import known, options
from otmoe.cli.aggregate import support_of
from otmoe.cli.common import Command, Rounds, check_output, few, option, output, say, usage
from otmoe.cli.holdings import roster_lines, why_scatter
from otmoe.cli.inbox import open_inbox
from otmoe.text.sentences import Error


@click.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe refine start model.json "*.moe.json" --state state.json -o round1.request.json
  otmoe refine start model.json "*.moe.json" --between auto --state state.json \\
      -o round1.request.json

The sites that are asked are those of the messages. The support points serve as a common scale of
the features: any that is roughly right will do, and none changes the answer.""",
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
    help="How many; auto stops a thousandth of a standard error from the maximum.",
)
@option(
    "--sandwich",
    is_flag=True,
    section="Rounds",
    help="Ask for what standard errors by the sandwich need; each site decides whether to send it.",
)
@option(
    "--between",
    type=click.Choice(known.RESTRICTIONS),
    section="Rounds",
    help="Have the last step say how sites differ, for `otmoe personalise`: in anything (auto), in "
    "the gate, or in intercepts. It asks for the same as --sandwich.",
)
@option(
    "--secure",
    is_flag=True,
    section="Rounds",
    help="Learn what all sites say in sum, and nothing of each: replies are masked by keys that "
    "their messages hold (`otmoe fit --secure`). Three sites at least; each round needs all of "
    "them. With 151 parameters a round takes a site 0.03 s more among 12 sites, 0.1 s among 100; "
    "its reply grows by 5 %, to 250 kB, and the request by 85 bytes a site.",
)
@option(
    "--support",
    metavar="DATA",
    section="Scale",
    help="Rows of covariates, as for `otmoe aggregate`; by default points are drawn from the "
    "sketches and rows that the messages bring.",
)
@options.missing("Scale")
@option(
    "--state",
    type=click.Path(path_type=Path),
    required=True,
    section="Output",
    help="File in which the server keeps where it stands.",
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
    """Begin with a merged MODEL; write the first request.

    FILES are the messages that it was merged of, or patterns in quotes.
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
        f"{len(sites)} sites are to answer {output}: {few(sites)}",
        *([f"they are asked for the scatter of scores, too, {why}"] if request.sandwich else []),
        *([] if begun.roster is None else roster_lines(begun.roster)),
        f"what the server has to keep is in {state}",
    )
