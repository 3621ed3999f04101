"""``otmoe refine step``: the replies of a round, and what is made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otmoe.cli import options
from otmoe.cli.between import between_lines, between_report
from otmoe.cli.closing import closing
from otmoe.cli.common import (
    Command,
    Failed,
    check_output,
    few,
    option,
    output,
    say,
    sentence,
    usage,
    warn,
)
from otmoe.cli.inbox import paths_of
from otmoe.cli.tables import listed
from otmoe.text.errors import InferenceError, InvalidInput, MessageError
from otmoe.text.sentences import Error, Warn

if TYPE_CHECKING:
    from otmoe.documents.reply import RefineReply
    from otmoe.documents.state import RefineState
    from otmoe.inference import Inference
    from otmoe.inference.between import Between


REQUEST = "round{}.request.json"
"""Name of a request, unless another one is given."""

ESTIMATED = ("estimate", "se", "z", "p", "low", "high")
"""What --json says about a parameter."""


@click.command(
    "step",
    cls=Command,
    epilog="""\b
Examples:
  otmoe refine step state.json "*.round1.reply.json" -o refined.json
  otmoe refine step state.json replies --allow-missing --summary -o refined.json

STATE and the output files are written whole or not at all; once a step has been taken, further
replies to that round are refused.""",
)
@click.argument("state", type=click.Path(path_type=Path))
@click.argument("replies", nargs=-1, required=True, metavar="REPLIES...")
@option(
    "--allow-missing",
    is_flag=True,
    section="Sites",
    help="Take the step without sites that have not replied, and name them. A secure sum needs "
    "all sites: start again without them, with `otmoe refine again`.",
)
@option(
    "--odd",
    type=click.Choice(["drop", "refuse"]),
    default="drop",
    show_default=True,
    section="Sites",
    help="If a reply cannot be right, or is not a reply to this round: continue without it and say "
    "why, or stop and change nothing.",
)
@option(
    "--request",
    type=click.Path(path_type=Path),
    metavar="FILE",
    section="Output",
    help="File for the next request; by default named like round2.request.json, beside STATE.",
)
@option(
    "--summary",
    is_flag=True,
    section="Output",
    help="Print standard errors, tests and intervals when the rounds are done.",
)
@options.model_only
@output("Model file to write when the rounds are done, JSON.")
def take_step(
    state: Path,
    replies: tuple[str, ...],
    allow_missing: bool,
    odd: str,
    request: Path | None,
    summary: bool,
    model_only: bool,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Take a step from the REPLIES of all sites.

    It writes the next request or, at the end, the model. REPLIES are files, folders of them, or
    patterns in quotes. If a site has not replied, it is named, and nothing is changed.
    """
    from otmoe.documents.masked_reply import MaskedReply
    from otmoe.documents.reply import RefineReply
    from otmoe.documents.state import RefineState
    from otmoe.federation.rounds import request_of, step
    from otmoe.federation.secure import masked_step
    from otmoe.text.records import notice_document

    before = RefineState.load(state)
    if before.done:
        status = str(before.refinement.status)
        raise Failed(Error.SHELL_ROUNDS_OVER, where=str(state), status=status)
    request = request or state.with_name(REQUEST.format(before.refinement.rounds + 2))
    for path in (output, request):
        check_output(path, force)
    if len({path.resolve() for path in (state, output, request)}) < 3:
        raise usage(Error.SHELL_THREE_FILES)
    paths = paths_of(replies)
    found: list[RefineReply] = []
    aside: list[Exception] = []
    if before.roster is not None:  # what each site says is not known
        after, gone = masked_step(before, [MaskedReply.load(path) for path in paths]), []
    elif odd == "refuse":
        found = [RefineReply.load(path) for path in paths]
        after = step(before, found, allow_missing=allow_missing, odd="raise")
    else:
        found, aside = _usable(before, paths, allow_missing)
        after = step(before, found, allow_missing=allow_missing or bool(aside))
    if before.roster is None:
        gone = [site for site in before.asked if site not in {reply.site for reply in found}]
        found = [reply for reply in found if reply.site not in after.dropped]
    done = after.refinement
    lacking = [reply.site for reply in found if done.sandwich and reply.content.scatter is None]
    report: dict[str, Any] = {
        "command": "refine step",
        "state": str(state),
        "round": done.rounds,
        "status": notice_document(done.status),
        "decrement": done.decrement,
        "converged": done.converged,
        "done": after.done,
        "missing": gone,
        "set_aside": [sentence(error) for error in aside],
        "dropped": {site: notice_document(why) for site, why in after.dropped.items()},
        "unscattered": lacking,
        "output": str(output if after.done else request),
        "bytes": sum(path.stat().st_size for path in paths),
    }
    lines: list[Any] = [str(done.status)]
    # What is made of the step comes first and the state last: until then, it has not been taken.
    if after.done:
        between = _between(before, after, found, report)
        lines += _finish(after, between, output, summary, model_only, report)
    else:
        request_of(after).save(request)
        if after.looking:
            lines.append("this was the last step; sites are asked once more, to check it")
        lines.append(f"the next request is {request}; send it to {few(after.asked)}")
    after.save(state)
    for error in aside:
        warn(Warn.SHELL_SET_ASIDE(why=sentence(error)))
    for site, why in after.dropped.items():
        if site not in before.dropped:
            warn(Warn.REPLY_DROPPED(sites=(site,), site=site, round=done.rounds, why=why))
    if gone:
        warn(Warn.SHELL_NO_REPLY(sites=tuple(gone), names=few(gone)))
    if lacking and not after.done:  # else the standard errors say so
        warn(Warn.SHELL_NO_SCATTER(sites=tuple(lacking), names=few(lacking)))
    say(report, as_json, quiet, *lines)


def _usable(
    state: RefineState, paths: list[Path], allow_missing: bool
) -> tuple[list[RefineReply], list[Exception]]:
    """Return the replies that belong to this round, and why other files are set aside.

    As many sites may be missing as files were set aside, which may have been their replies. Replies
    to a round that is over are none to this one, and say nothing.
    """
    from otmoe.documents.reply import RefineReply
    from otmoe.federation.replies import belonging
    from otmoe.federation.rounds import request_of

    read: list[RefineReply] = []
    aside: list[Exception] = []
    for path in paths:
        try:
            read.append(RefineReply.load(path))
        except FileNotFoundError:
            raise
        except (MessageError, OSError) as error:
            aside.append(error)
    read = [reply for reply in read if reply.site not in state.dropped]
    found, refused = belonging(state, request_of(state), read)
    if refused and not found:
        raise refused[0]
    aside += [error for error in refused if error.facts.get("when") != "over"]
    lost = len(aside) + sum(error.code == Error.REPLY_TWICE.code for error in refused)
    missing = {*state.asked} - {reply.site for reply in found}
    if aside and missing and not (found and (allow_missing or len(missing) <= lost)):
        raise aside[0]
    return found, aside


def _between(
    before: RefineState, after: RefineState, replies: list[RefineReply], report: dict[str, Any]
) -> Between | None:
    """Return how sites differ, if that was asked for; the model is written all the same."""
    from otmoe.federation.between import differences

    try:
        found = differences(before, after, replies)
    except InvalidInput as error:
        warn(Warn.SHELL_NO_BETWEEN(why=sentence(error)))
        return None
    if found is not None:
        report["between"] = between_report(found)
        for notice in found.warnings:
            warn(notice)
    return found


def _finish(
    state: RefineState,
    between: Between | None,
    output: Path,
    summary: bool,
    model_only: bool,
    report: dict[str, Any],
) -> list[Any]:
    """Write the model, and return what to say about it."""
    from otmoe import save_model
    from otmoe.aggregation.record import refined_document
    from otmoe.documents.files import load_model_file

    known = state.refinement
    assert known.best is not None  # at least one round has been answered
    sites = [site for site in state.sites if site not in state.absent]
    about: dict[str, Any] = {
        "made by": "otmoe refine",
        "rounds": known.rounds,
        "status": str(known.status),
        "sites": few(sites),
        "number of sites": len(sites),
        "rows": known.best.n_samples,
        **state.columns,
    }
    if known.missing:
        about["missing"] = few(f"{site} (round {r})" for r, site in known.missing)
    if state.dropped:
        about["dropped"] = few(f"{site} ({why})" for site, why in state.dropped.items())
    aggregation = None
    if state.aggregation is not None and not model_only:
        how = state.rounds, state.sites, state.features
        aggregation = refined_document(state.aggregation, known, *how)
    kept = between
    if between is not None and model_only:  # the prior has to reach the sites, others' names not
        kept = replace(between, sites=())
    save_model(known.model, output, about, state.features, aggregation, kept)
    if absent := tuple(site for site in state.absent if site not in state.dropped):
        warn(Warn.SHELL_MISSED(sites=absent, names=few(absent)))
    apart = [] if state.aggregation is None else state.aggregation.sites
    for notice in known.warnings(state.rounds, [site.site for site in apart if site.flagged]):
        warn(notice)
    if not known.converged:
        warn(Warn.SHELL_NOT_AT_MAXIMUM())
    lines: list[Any] = [
        listed([("model", str(output))]),
        *([] if between is None else between_lines(between)),
        *closing(load_model_file(output), output),
    ]
    try:
        inference = state.inference()
    except InferenceError as error:
        warn(Warn.SHELL_NO_INFERENCE(why=str(error)))
        return lines
    report |= {"kind": inference.kind, "groups": inference.n_groups, "df": inference.df}
    report["estimates"] = _estimates(inference)
    if summary:
        return [*lines, str(inference.summary())]
    for words in inference.warnings:
        warn(words)
    return lines


def _estimates(inference: Inference) -> list[dict[str, Any]]:
    return [
        {"parameter": name, **{key: float(getattr(row, key)) for key in ESTIMATED}}
        for name, row in zip(inference.names, inference.table(), strict=True)
    ]
