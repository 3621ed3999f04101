"""``otmoe refine answer``: what a site replies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Literal, cast

import click

from otmoe.cli import options, policy
from otmoe.cli.common import Command, check_output, option, output, say, usage, warn
from otmoe.cli.holdings import (
    MASKED,
    few_groups,
    reply_privacy,
    roster_lines,
    scatter_words,
    why_scatter,
)
from otmoe.cli.parts import parts_of, parts_table, total_of
from otmoe.cli.remembered import recalled
from otmoe.text.sentences import Error, Warn


@click.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe refine answer round1.request.json --fit lyon.moe.json -o lyon.round1.reply.json
  otmoe refine answer round1.request.json lyon.parquet --target y --site Lyon \\
      -o lyon.round1.reply.json
  otmoe inspect lyon.round1.reply.json

Rows, weights and name must be those of the site's fit: --fit takes them from the file
lyon.moe.json.local, which `otmoe fit` wrote beside the message. Inspect the reply before you send
it.

A request may ask for the scatter of the scores, for sandwich standard errors or to estimate how
sites differ. A site sends it only with --scatter, or with --groups if its rows are clustered: one
more matrix, without labels.

A request for a secure sum names the sites that take part. Give --key, and compare the fingerprint
of the roster with that of other sites, for example by telephone, before you send the reply.""",
)
@click.argument("request", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, metavar="[DATA...]")
@option(
    "--fit",
    "message",
    type=click.Path(path_type=Path),
    metavar="MESSAGE",
    section="Columns",
    help="The site's message: take DATA, --target, --site and the other options about columns "
    "and rows from its fit, unless they are given.",
)
@options.target(required=False)
@options.weight
@options.offset
@option(
    "--groups",
    metavar="COLUMN",
    section="Columns",
    help="Cluster labels of the rows, such as the patient: send the scatter by group. Required if "
    "rows of a group share their expert.",
)
@option(
    "--missing",
    type=click.Choice(["error", "drop"]),
    section="Rows",
    help="Rows with missing values: refuse (the default) or drop them.",
)
@options.sep
@option("--site", metavar="NAME", section="Reply", help="Name of the site, as sent.")
@option(
    "--sandwich",
    "--scatter",
    "sandwich",
    is_flag=True,
    section="Reply",
    help="Send the scatter of the rows' scores as well, if the request asks for it.",
)
@option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    section="Reply",
    help="The private key that `otmoe fit --secure` wrote: mask the reply, so that only the sum "
    "over all sites can be read. Requests for plain replies are then refused.",
)
@option(
    "--new-roster",
    is_flag=True,
    section="Reply",
    help="Answer even if the roster has changed since earlier rounds. The difference between the "
    "two sums reveals something about sites that are in only one of them.",
)
@policy.options
@policy.ledger
@output("Reply to write, JSON.")
def answer(
    request: Path,
    data: tuple[str, ...],
    message: Path | None,
    target: str | None,
    weight: str | None,
    offset: str | None,
    groups: str | None,
    missing: Literal["error", "drop"] | None,
    sep: str | None,
    site: str | None,
    sandwich: bool,
    key: Path | None,
    new_roster: bool,
    policy_file: str | None,
    override: tuple[str, ...],
    reason: str | None,
    ledger: Path | None,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Answer a REQUEST from the rows of one site.

    All of DATA is one site, read into memory. The reply holds sums over its rows: log-likelihood,
    score and information, rounded; it is written only if the site's policy allows it to leave.
    """
    check_output(output, force)
    if message is not None:
        known = recalled(message)
        data, target = data or known.data, target or known.target
        weight, offset = weight or known.weight, offset or known.offset
        groups = groups or known.groups
        site, sep = site or known.site, sep or known.sep
        missing = missing or cast(Literal["error", "drop"], known.missing)
    for lacking, value in {"DATA": data, "--target": target, "--site": site}.items():
        if not value:
            raise usage(Error.SHELL_ANSWER_LACKS, lacking=lacking)
    assert site is not None

    from otmoe import shards_from
    from otmoe.data.shards import joined, rows_dropped
    from otmoe.data.shards.files import find
    from otmoe.data.shards.memory import checked
    from otmoe.documents.request import RefineRequest
    from otmoe.evaluation.prediction import spec_of
    from otmoe.federation.keys import Key
    from otmoe.federation.policy.border import Border, release_reply
    from otmoe.federation.policy.rules import in_force
    from otmoe.federation.policy.verdict import said
    from otmoe.federation.secure import check_roster, masked, unmasked

    begun = perf_counter()
    rules, source = in_force(policy_file)
    border = Border(rules, ledger, policy.set_aside(override, reason))
    asked = RefineRequest.load(request)
    own = None if key is None else Key.load(key)
    roster = None if own is None else check_roster(asked, own, checked(site), new_roster)
    book = border.count(find(data))
    shards = shards_from(
        list(data),
        target=target,
        features=spec_of(asked.model, asked.features),
        weight=weight,
        offset=offset,
        missing=missing or "error",
        sep=sep,
    )
    shard = replace(joined(shards, checked(site)), groups=groups)
    made = release_reply(
        unmasked(asked) if own else asked, shard, border, sandwich=sandwich, exact=own is not None
    )
    reply, rows = made.reply, made.found
    sent = masked(asked, reply, own, new_roster=new_roster) if own else reply
    sent.save(output)
    parts = parts_of(sent.document())
    size = output.stat().st_size
    for words in few_groups(reply):
        warn(words)
    scatter = reply.content.scatter
    for measure in made.withheld:
        warn(said(measure, made.verdict.people))
    labelled = groups is not None and asked.model.expert_per == "row"
    if scatter is None and asked.sandwich and not made.withheld:
        warn(Warn.SHELL_SANDWICH_ASKED(why=why_scatter(asked.between)))
    elif scatter is None and not asked.sandwich and (sandwich or labelled):
        warn(Warn.SHELL_SANDWICH_UNASKED())
    if rows.dropped:
        warn(rows_dropped(rows.dropped, len(rows.y), rows.missing))
    report = {
        "command": "refine answer",
        "output": str(output),
        "site": site,
        "round": reply.round,
        "digest": reply.digest,
        "rows": int(rows.X.shape[0]),
        "dropped": rows.dropped,
        "n_samples": reply.content.n_samples,
        "log_likelihood": reply.content.information.log_likelihood,
        "groups": None if scatter is None else scatter.n_scores,
        "withheld": [str(said(measure)) for measure in made.withheld],
        "roster": None if roster is None else roster.fingerprint,
        "parts": [vars(part) for part in parts],
        "bytes": size,
        "ledger": None if book is None else str(book),
        **policy.verdict_report(made.verdict, source),
        "seconds": perf_counter() - begun,
    }
    say(
        report,
        as_json,
        quiet,
        f"{site}: answered round {reply.round} from {report['rows']:,} rows",
        parts_table(parts),
        total_of(size, parts),
        *(
            [reply_privacy(reply), *scatter_words(reply)]
            if roster is None
            else [MASKED, *roster_lines(roster)]
        ),
        *policy.verdict_lines(made.verdict, source),
        *policy.ledger_lines(book),
        f"written to {output}; nothing has been sent",
    )
