"""Flower: every node fits its own rows and replies with its message; the server merges them.

One round of queries, followed by refine rounds if requested. A node replies with the same text that
``otmoe fit`` or ``otmoe refine answer`` would have written, and the server keeps it as a file, so
that the same model can be made from the files again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from otmoe.aggregation import Aggregation
from otmoe.arrays.numerics import Floats
from otmoe.data.shards import draw_features
from otmoe.documents.message import LocalModel
from otmoe.documents.model_file import ModelFile
from otmoe.documents.request import RefineRequest
from otmoe.federation.flower.merging import Reply, merged
from otmoe.federation.flower.nodes import (
    RECORD,
    connected,
    exchange,
    file_name,
    flower,
    log,
    sent_as,
    who,
    words,
)
from otmoe.federation.flower.rounds import refine
from otmoe.federation.offers import Offer
from otmoe.federation.policy.told import told
from otmoe.federation.requests import (
    Plan,
    Request,
    classes_as,
    configured,
    message_for,
    reply_for,
)
from otmoe.model.target import CLASSES
from otmoe.text.errors import InvalidInput, MessageError
from otmoe.text.names import plain, skeleton
from otmoe.text.outputs import whole
from otmoe.text.records import LONGEST_SENTENCE
from otmoe.text.sentences import Error, Finding
from otmoe.text.strict_json import shown
from otmoe.workers.failures import Failure, TasksFailed

_MAKER = "otmoe.federation.flower.app"

# -- the node --------------------------------------------------------------------------------------


def client_app() -> Any:
    """Return the ClientApp of a site: it replies with the site's message, or to a refine request.

    The node config of the SuperNode has the fields of :class:`otmoe.federation.offers.Offer`:
    the site's name, where its rows are, and what may leave.

    Returns
    -------
    flwr.clientapp.ClientApp

    Examples
    --------
    >>> from otmoe.federation.flower.app import client_app
    >>> app = client_app()  # doctest: +SKIP
    """
    flwr, clientapp, _ = flower()
    app = clientapp.ClientApp()

    @app.query()
    def reply(message: Any, context: Any) -> Any:
        explain, columns, record = True, list[str](), dict[str, str | bytes]()
        try:
            offer = Offer.from_config(context.node_config, "node config")
            explain = offer.explain
            asked = message.content[RECORD]
            request = Request.from_json(asked["request"])
            columns = [request.target, *request.spec.names]
            if "refine" in asked:
                found = reply_for(request, RefineRequest.from_json(asked["refine"]), offer)
                record["reply"] = found.to_json().encode()
            else:
                start = ModelFile.from_json(asked["start"]) if "start" in asked else None
                record["message"] = message_for(request, offer, start).to_json().encode()
        except Exception as error:  # a sentence may quote a value: it stays in the site's log
            log.exception("otmoe: the query failed")
            record["error"] = told(error, columns, explain=explain)
        content = flwr.RecordDict({RECORD: flwr.ConfigRecord(record)})
        return flwr.Message(content, reply_to=message)

    return app


# -- the server ------------------------------------------------------------------------------------


def ask(
    grid: Any,
    request: Request,
    *,
    start: ModelFile | None = None,
    nodes: int = 1,
    wait: float = 60,
    timeout: float = 3600,
) -> tuple[list[Reply], list[Failure]]:
    """Ask every node that is connected, and wait for the replies.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    request : Request
    start : ModelFile, optional
        From which nodes start their fits, instead of searching.
    nodes : int
        How many to wait for; all nodes connected then are asked.
    wait : float
        Seconds to wait for them.
    timeout : float
        Seconds to wait for the replies.

    Returns
    -------
    replies : list of Reply
        Sorted by site, whatever the order of arrival.
    failures : list of Failure
        Nodes that did not connect, died, were too slow, failed, or replied anything else.
    """
    found = connected(grid, nodes, wait)
    failures = []
    if len(found) < nodes:
        cause = Finding.NODES_ABSENT(found=len(found), wanted=nodes, seconds=wait)
        failures.append(Failure("nodes", cause))
    replies, more = exchange(
        grid,
        found,
        {
            "request": request.model_dump_json(),
            **({} if start is None else {"start": start.to_json()}),
        },
        lambda record, node: _read(record, node, request),
        timeout,
    )
    replies, twice = _distinct(replies)
    return replies, failures + more + twice


def _read(record: Mapping[str, Any], node: Any, request: Request) -> Reply:
    """Return what a node sent, if that is what it was asked for."""
    sent = sent_as(record, "message")
    message = LocalModel.from_json(sent, who(node))
    if node.name and message.site != plain(node.name):
        raise InvalidInput(Error.NODE_NAME, site=shown(message.site))
    model, family = message.model, message.model.experts.family
    labelled = request.family == CLASSES
    as_asked = model.experts.classifies if labelled else family == request.family
    if not as_asked or model.n_experts != request.experts:
        raise InvalidInput(
            Error.NODE_EXPERTS,
            experts=model.n_experts,
            family=family,
            wanted=request.experts,
            wanted_family=request.family,
        )
    if message.features != request.spec:
        raise InvalidInput(Error.NODE_FEATURES)
    if labelled:
        classes = np.asarray(model.classes)
        text = classes.dtype.kind == "U"
        if not np.array_equal(np.sort(classes), classes_as(request.classes, text)):
            raise InvalidInput(Error.NODE_CLASSES)
    return Reply(who(node), sent, message, node.node_id)


def _distinct(replies: Iterable[Reply]) -> tuple[list[Reply], list[Failure]]:
    """Return the replies by site, and those of nodes that use one name, of which none is sure."""
    replies = sorted(replies, key=lambda reply: (reply.message.site, reply.node))
    counts = Counter(skeleton(reply.message.site) for reply in replies)
    failures = [
        Failure(reply.node, Finding.NODE_NAME_TWICE(site=shown(reply.message.site)))
        for reply in replies
        if counts[skeleton(reply.message.site)] > 1
    ]
    return [reply for reply in replies if counts[skeleton(reply.message.site)] == 1], failures


def server_app() -> Any:
    """Return the ServerApp: one query to every node, one model of their messages, refine rounds.

    What to ask and what to do is in the run config, as :func:`otmoe.federation.requests.configured`
    reads it.

    Returns
    -------
    flwr.serverapp.ServerApp

    Examples
    --------
    >>> from otmoe.federation.flower.app import server_app
    >>> app = server_app()  # doctest: +SKIP
    """
    _, _, serverapp = flower()
    app = serverapp.ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        serve(grid, context.run_config)

    return app


def serve(grid: Any, config: Mapping[str, Any]) -> Aggregation:
    """Ask every node, keep what they send, and write the merged model.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    config : dict
        The run config.

    Returns
    -------
    Aggregation
    """
    request, plan = configured(config)
    support = _support(plan, request)
    folder = Path(plan.output)
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(Error.FOLDER_NOT_EMPTY, where="run config", folder=folder)
    replies, failures = _collect(grid, request, plan, folder / "messages")
    replies, failures, result = merged(request, plan, replies, support, failures)
    if plan.consensus:
        result.save(folder / "first.json", {"made by": _MAKER}, request.spec)
        start = ModelFile(result.model, request.spec)
        replies, more = _collect(grid, request, plan, folder / "messages2", start)
        failures += more
        replies, failures, result = merged(request, plan, replies, support, failures)
    for warning in result.warnings:
        log.warning("otmoe: %s", warning)
    about: dict[str, Any] = {
        "made by": _MAKER,
        "target": request.target,
        "method": plan.method,
        **({"chosen": result.method} if result.candidates else {}),
        "seed": request.seed,
        "sites": words(", ".join(record.site for record in result.sites), LONGEST_SENTENCE),
        "left out": words(
            "; ".join(f"{s}: {why}" for s, why in result.left_out.items()), LONGEST_SENTENCE
        ),
        "failed": words("; ".join(map(str, failures)), LONGEST_SENTENCE),
    }
    between = None
    failed = {failure.name: failure.cause for failure in failures}
    result = replace(result, left_out={**result.left_out, **failed})
    if plan.refine:
        result.save(folder / "merged.json", about, request.spec)
        numbers = {reply.message.site: reply.number for reply in replies}
        try:
            state, between = refine(grid, request, plan, result, numbers, support)
        except MessageError as error:  # no step can be taken; there is the merged model
            if plan.on_error == "raise":
                raise
            log.error("otmoe: %s", error)
            about["status"] = words(f"not refined: {error}", LONGEST_SENTENCE)
            result.save(folder / "model.json", about, request.spec)
            return result
        result = result.refined(state.refinement, plan.refine)
        missing = (f"{site} (round {r})" for r, site in state.refinement.missing)
        about |= {"rounds": state.refinement.rounds, "status": str(state.refinement.status)}
        about["missing"] = words(", ".join(missing), LONGEST_SENTENCE)
    result.save(folder / "model.json", about, request.spec, between)
    log.info("otmoe: %s; the model is in %s", result.status, folder / "model.json")
    return result


def _collect(
    grid: Any, request: Request, plan: Plan, folder: Path, start: ModelFile | None = None
) -> tuple[list[Reply], list[Failure]]:
    """Ask every node for a message, and keep them as files."""
    folder.mkdir(parents=True)
    replies, failures = ask(
        grid, request, start=start, nodes=plan.nodes, wait=plan.wait, timeout=plan.timeout
    )
    for i, reply in enumerate(replies):
        with whole(folder / f"{file_name(i, reply.message.site)}.moe.json") as file:
            file.write(reply.text)
    for failure in failures:
        log.error("otmoe: %s", failure)
    if failures and (plan.on_error == "raise" or not replies):
        raise TasksFailed(failures)
    return replies, failures


def _support(plan: Plan, request: Request) -> Floats | int:
    """Return the rows of x that the server has, (S, d), or how many to draw from the messages."""
    if plan.support is None:
        return plan.n_support
    return draw_features(
        plan.support,
        request.spec,
        plan.n_support,
        missing=request.missing,
        random_state=request.seed,
    )[0]
