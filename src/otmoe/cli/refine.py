"""``otmoe refine``: rounds by files that lead a merged model to the answer of all rows."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import click

from otmoe import save_model, shards_from, support_from
from otmoe.aggregation.record import refined_document
from otmoe.aggregation.support import N_SUPPORT
from otmoe.cli import options
from otmoe.cli.aggregate import support_of
from otmoe.cli.common import (
    Command,
    Failed,
    Rounds,
    check_output,
    data,
    few,
    option,
    output,
    say,
    usage,
    warn,
)
from otmoe.cli.inbox import open_inbox, paths_of
from otmoe.cli.inspect import parts_of, parts_table, reply_privacy, total_of
from otmoe.cli.tables import experts_table, listed
from otmoe.data.shards import ROWS_PER_PARAMETER, joined
from otmoe.data.shards.memory import checked
from otmoe.documents.files import load_model_file
from otmoe.documents.model_file import ModelFile
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.state import RefineState
from otmoe.evaluation.prediction import spec_of
from otmoe.federation.rounds import begin, check_merged, reply_from, request_of, step
from otmoe.inference import Inference
from otmoe.likelihood.rows import Scaling
from otmoe.text.errors import InferenceError
from otmoe.text.records import notice_document
from otmoe.text.sentences import Error, Warn
from otmoe.text.strict_json import named

REQUEST = "round{}.request.json"
"""Name of a request, unless another one is given."""

ESTIMATED = ("estimate", "se", "z", "p", "low", "high")
"""What --json says about a parameter."""


@click.group(
    epilog="""\b
Example:
  otmoe refine start model.json "*.moe.json" --state state.json -o round1.request.json
  otmoe refine answer round1.request.json lyon.parquet --target y --site Lyon \\
      -o lyon.round1.reply.json
  otmoe refine step state.json "*.round1.reply.json" -o refined.json

The server starts; every site answers; the server takes a step, which makes the next request. When
it says so, the model is the maximum-likelihood answer of all rows, and has standard errors.""",
)
def refine() -> None:
    """Lead a merged model to the answer of all rows, by rounds of files."""


@refine.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe refine start model.json "*.moe.json" --state state.json -o round1.request.json

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
    found = load_model_file(model)
    merged, features = found.model, found.features
    aggregation = found.aggregation if isinstance(found, ModelFile) else None
    messages = open_inbox(files, exclude, skip_bad=False).messages
    check_merged(merged, features, messages, named(model))
    points = support_of(messages, support, N_SUPPORT, missing, 0)
    if isinstance(points, int):
        points = support_from(messages, points)
    sites = {message.site: message.n_samples for message in messages}
    scaling = Scaling.of(points)
    begun = begin(merged, sites, scaling, rounds, features=features, aggregation=aggregation)
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
        "bytes": output.stat().st_size,
    }
    say(
        report,
        as_json,
        quiet,
        f"{len(sites)} sites are to answer {output}: {few(sites)}",
        f"what the server has to keep is in {state}",
    )


@refine.command(
    cls=Command,
    epilog="""\b
Example:
  otmoe refine answer round1.request.json lyon.parquet --target y --site Lyon \\
      -o lyon.round1.reply.json
  otmoe inspect lyon.round1.reply.json

Give the rows, the weights and the name of the site's fit. Look at the reply before you send it.""",
)
@click.argument("request", type=click.Path(path_type=Path))
@data
@options.target()
@options.weight
@options.missing()
@option("--site", metavar="NAME", required=True, section="Reply", help="Name of the site, as sent.")
@output("Reply to write, JSON.")
def answer(
    request: Path,
    data: tuple[str, ...],
    target: str,
    weight: str | None,
    missing: Literal["error", "drop"],
    site: str,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Answer a REQUEST from the rows of one site.

    All of DATA is one site, read into memory. The reply holds sums over its rows: log-likelihood,
    score and information. No row leaves.
    """
    check_output(output, force)
    begun = perf_counter()
    asked = RefineRequest.load(request)
    shards = shards_from(
        list(data),
        target=target,
        features=spec_of(asked.model, asked.features),
        weight=weight,
        missing=missing,
    )
    reply, rows = reply_from(asked, joined(shards, checked(site)))
    reply.save(output)
    parts = parts_of(reply.document())
    size = output.stat().st_size
    if len(rows.X) < ROWS_PER_PARAMETER * asked.model.n_parameters:
        warn(reply_privacy(reply))
    if rows.dropped:
        warn(Warn.ROWS_DROPPED(rows=rows.dropped))
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
        "parts": [vars(part) for part in parts],
        "bytes": size,
        "seconds": perf_counter() - begun,
    }
    say(
        report,
        as_json,
        quiet,
        f"{site}: answered round {reply.round} from {report['rows']:,} rows",
        parts_table(parts),
        total_of(size, parts),
        reply_privacy(reply),
        f"written to {output}; nothing has been sent",
    )


@refine.command(
    "step",
    cls=Command,
    epilog="""\b
Examples:
  otmoe refine step state.json "*.round1.reply.json" -o refined.json
  otmoe refine step state.json replies --allow-missing --summary -o refined.json

STATE and the files it makes are written whole or not at all; a round that was taken is over, and
its replies are refused.""",
)
@click.argument("state", type=click.Path(path_type=Path))
@click.argument("replies", nargs=-1, required=True, metavar="REPLIES...")
@option(
    "--allow-missing",
    is_flag=True,
    section="Sites",
    help="Take the step without sites that have not replied, and name them.",
)
@option(
    "--request",
    type=click.Path(path_type=Path),
    metavar="FILE",
    section="Output",
    help="The next request to write; by default such as round2.request.json, beside STATE.",
)
@option(
    "--summary",
    is_flag=True,
    section="Output",
    help="Print standard errors, tests and intervals once it is done.",
)
@options.model_only
@output("Model file to write, JSON, once it is done.")
def take_step(
    state: Path,
    replies: tuple[str, ...],
    allow_missing: bool,
    request: Path | None,
    summary: bool,
    model_only: bool,
    output: Path,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Take a step from the REPLIES of all sites.

    It makes the next request or, when it is done, the model. REPLIES are files, folders of them,
    or patterns in quotes. A site that has not replied is named, and nothing is changed.
    """
    before = RefineState.load(state)
    if before.done:
        status = str(before.refinement.status)
        raise Failed(Error.SHELL_ROUNDS_OVER, where=str(state), status=status)
    request = request or state.with_name(REQUEST.format(before.refinement.rounds + 2))
    for path in (output, request):
        check_output(path, force)
    if len({path.resolve() for path in (state, output, request)}) < 3:
        raise usage(Error.SHELL_THREE_FILES)
    found = [RefineReply.load(path) for path in paths_of(replies)]
    after = step(before, found, allow_missing=allow_missing)
    done = after.refinement
    gone = [site for r, site in done.missing if r == done.rounds]
    report: dict[str, Any] = {
        "command": "refine step",
        "state": str(state),
        "round": done.rounds,
        "status": notice_document(done.status),
        "decrement": done.decrement,
        "converged": done.converged,
        "done": after.done,
        "missing": gone,
        "output": str(output if after.done else request),
        "bytes": sum(path.stat().st_size for path in paths_of(replies)),
    }
    lines: list[Any] = [str(done.status)]
    # What is made of the step comes first and the state last: until then, it has not been taken.
    if after.done:
        lines += _finish(after, output, summary, model_only, report)
    else:
        request_of(after).save(request)
        lines.append(f"the next request is {request}; send it to {few(after.sites)}")
    after.save(state)
    if gone:
        warn(Warn.SHELL_NO_REPLY(sites=tuple(gone), names=few(gone)))
    say(report, as_json, quiet, *lines)


def _finish(
    state: RefineState, output: Path, summary: bool, model_only: bool, report: dict[str, Any]
) -> list[Any]:
    """Write the model, and return what to say about it."""
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
    }
    if known.missing:
        about["missing"] = few(f"{site} (round {r})" for r, site in known.missing)
    aggregation = None
    if state.aggregation is not None and not model_only:
        aggregation = refined_document(state.aggregation, known, state.rounds, state.sites)
    save_model(known.model, output, about, state.features, aggregation)
    if state.absent:
        warn(Warn.SHELL_MISSED(sites=state.absent, names=few(state.absent)))
    if not known.converged:
        warn(Warn.SHELL_NOT_AT_MAXIMUM())
    mass = known.best.information.mass / known.best.n_samples
    lines = [listed([("model", str(output))]), experts_table(known.model, mass.tolist())]
    try:
        inference = state.inference()
    except InferenceError as error:
        warn(Warn.SHELL_NO_INFERENCE(why=str(error)))
        return lines
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
