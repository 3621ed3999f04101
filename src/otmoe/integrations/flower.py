"""Flower: every node fits its own rows and replies with its message; the server merges them.

One round of queries. A node replies with the very text that ``otmoe fit`` would have written, and
the server keeps it as a file, so that the same model can be made of the files again.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from otmoe.aggregation import Aggregation, aggregate
from otmoe.futures import Failure, TasksFailed, sentence
from otmoe.integrations.query import Offer, Plan, Request, answer, classes_as, configured
from otmoe.jsontext import shown
from otmoe.message import LocalModel
from otmoe.numerics import Floats
from otmoe.outputs import whole
from otmoe.shards import draw_features

_RECORD = "otmoe"  # the record of a query, and of a reply
_POLL = 1.0  # seconds between two looks at what has come
_GRACE = 60.0  # seconds for which Flower keeps a query that nobody waits for
_LONGEST = 500  # characters of a node's words that are shown
_ABOUT = 5000  # characters about sites in a model file

_log = logging.getLogger("flwr")  # Flower's, so that `flwr log` shows it


def _flower() -> tuple[Any, Any, Any]:
    """Return the modules of Flower that are used here."""
    try:
        from flwr import app, clientapp, serverapp
    except ImportError as error:
        raise ImportError(
            "Flower is not installed: pip install 'otmoe[flower]', or send the messages as files."
        ) from error
    return app, clientapp, serverapp


# -- the node --------------------------------------------------------------------------------------


def client_app() -> Any:
    """Return the ClientApp of a site: it replies to a query with the site's message.

    The node config of the SuperNode has the fields of :class:`otmoe.integrations.query.Offer`:
    the site's name, where its rows are, and what may leave.

    Returns
    -------
    flwr.clientapp.ClientApp

    Examples
    --------
    >>> from otmoe.integrations.flower import client_app
    >>> app = client_app()  # doctest: +SKIP
    """
    flower, clientapp, _ = _flower()
    app = clientapp.ClientApp()

    @app.query()
    def reply(message: Any, context: Any) -> Any:
        explain, record = True, dict[str, str | bytes]()
        try:
            offer = Offer.from_config(context.node_config, "node config")
            explain = offer.explain
            request = Request.from_json(message.content[_RECORD]["request"])
            record["message"] = answer(request, offer).to_json().encode()
        except Exception as error:  # the server should get a sentence, not the repr of an exception
            _log.exception("otmoe: the query failed")
            record["error"] = sentence(error) if explain else "failed, and does not say why"
        content = flower.RecordDict({_RECORD: flower.ConfigRecord(record)})
        return flower.Message(content, reply_to=message)

    return app


# -- the server ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """What a node sent.

    Attributes
    ----------
    node : str
        Its number, and the name under which it was registered.
    text : bytes
        As it came.
    message : LocalModel
    """

    node: str
    text: bytes
    message: LocalModel


def ask(
    grid: Any, request: Request, *, nodes: int = 1, wait: float = 60, timeout: float = 3600
) -> tuple[list[Reply], list[Failure]]:
    """Ask every node that is connected, and wait for the replies.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    request : Request
    nodes : int
        How many to wait for; whoever is connected then is asked.
    wait : float
        Seconds to wait for them.
    timeout : float
        Seconds to wait for the replies.

    Returns
    -------
    replies : list of Reply
        Sorted by site, whoever was first.
    failures : list of Failure
        Nodes that did not connect, died, were too slow, failed, or replied anything else.
    """
    flower, _, _ = _flower()
    found = _connected(grid, nodes, wait)
    failures = []
    if len(found) < nodes:
        cause = f"{len(found)} of {nodes} connected within {wait:g} s; start the others"
        failures.append(Failure("nodes", cause))
    _log.info("otmoe: asking %s", ", ".join(map(_who, found)) or "nobody")
    record = flower.ConfigRecord({"request": request.model_dump_json()})
    queries = [
        flower.Message(
            flower.RecordDict({_RECORD: record}),
            dst_node_id=node.node_id,
            message_type=flower.MessageType.QUERY,
            ttl=timeout + _GRACE,
        )
        for node in found
    ]
    waiting = dict(zip(grid.push_messages(queries) if queries else (), found, strict=True))
    replies: list[Reply] = []
    end = time.monotonic() + timeout
    while waiting:
        late = time.monotonic() >= end
        for query, node in list(waiting.items()):
            who = _who(node)
            try:
                # One by one: a reply that Flower cannot unpack is no reason to lose the others.
                came = list(grid.pull_messages([query]))
                if not came and not late:
                    continue
                if not came:
                    raise ValueError(f"no reply within {timeout:g} s")
                replies.append(_read(came[0], node, request))
                _log.info("otmoe: %s has replied", who)
            except Exception as error:
                failures.append(Failure(who, _words(sentence(error)).removeprefix(f"{who}: ")))
            del waiting[query]
        if waiting:
            time.sleep(_POLL)
    replies, twice = _distinct(replies)
    return replies, failures + twice


def _connected(grid: Any, nodes: int, wait: float) -> list[Any]:
    """Return the nodes that are connected, when they are enough or it is late."""
    end = time.monotonic() + wait
    while True:
        found = sorted(grid.get_nodes(), key=lambda node: node.node_id)
        if len(found) >= nodes or time.monotonic() >= end:
            return found
        time.sleep(_POLL)


def _who(node: Any) -> str:
    return f"node {node.node_id}" + (f" ({_words(node.name)})" if node.name else "")


def _read(reply: Any, node: Any, request: Request) -> Reply:
    """Return what a node sent, if that is what it was asked for."""
    if reply.has_error():
        raise ValueError(reply.error.reason or f"error {reply.error.code} of Flower")
    record = reply.content.get(_RECORD, {})
    if isinstance(record.get("error"), str):
        raise ValueError(record["error"])
    sent = record.get("message")
    if not isinstance(sent, bytes):
        raise ValueError("its reply holds no message; run the same app at all nodes")
    message = LocalModel.from_json(sent, _who(node))
    if node.name and message.site != node.name:
        raise ValueError(f"calls itself {shown(message.site)}, which is not its registered name")
    model, family = message.model, message.model.experts.family
    asked = ("logistic", "multinomial") if request.family == "classes" else (request.family,)
    if family not in asked or model.n_experts != request.experts:
        raise ValueError(
            f"sent {model.n_experts} {family} experts, and was asked for {request.experts} "
            f"({request.family})"
        )
    if message.features != request.spec:
        raise ValueError("sent a model of other features than it was asked for")
    if request.family == "classes":
        classes = np.asarray(model.classes)
        text = classes.dtype.kind == "U"
        if not np.array_equal(np.sort(classes), classes_as(request.classes, text)):
            raise ValueError("sent a model of other classes than were declared")
    return Reply(_who(node), sent, message)


def _distinct(replies: Iterable[Reply]) -> tuple[list[Reply], list[Failure]]:
    """Return the replies by site, and those of nodes that use one name, of which none is sure."""
    replies = sorted(replies, key=lambda reply: (reply.message.site, reply.node))
    counts = Counter(reply.message.site for reply in replies)
    failures = [
        Failure(reply.node, f"another node too calls itself {shown(reply.message.site)}")
        for reply in replies
        if counts[reply.message.site] > 1
    ]
    return [reply for reply in replies if counts[reply.message.site] == 1], failures


def _words(text: str, most: int = _LONGEST) -> str:
    """Return what a node says as one line, which can forge no other."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else f"{line[:most]}..."


def server_app() -> Any:
    """Return the ServerApp: one query to every node, then one model of their messages.

    What to ask and what to do is in the run config, as :func:`otmoe.integrations.query.configured`
    reads it.

    Returns
    -------
    flwr.serverapp.ServerApp

    Examples
    --------
    >>> from otmoe.integrations.flower import server_app
    >>> app = server_app()  # doctest: +SKIP
    """
    _, _, serverapp = _flower()
    app = serverapp.ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        serve(grid, context.run_config)

    return app


def serve(grid: Any, config: Mapping[str, Any]) -> Aggregation:
    """Ask every node, keep what they send, and write the model made of it.

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
        raise ValueError(f"run config: the folder {folder} is not empty; name another as output.")
    (folder / "messages").mkdir(parents=True, exist_ok=True)
    replies, failures = ask(grid, request, nodes=plan.nodes, wait=plan.wait, timeout=plan.timeout)
    for i, reply in enumerate(replies):
        name = re.sub(r"[^\w-]+", "_", reply.message.site)[:60]
        with whole(folder / "messages" / f"{i + 1:03d}-{name}.moe.json") as file:
            file.write(reply.text)
    for failure in failures:
        _log.error("otmoe: %s", failure)
    if failures and (plan.on_error == "raise" or not replies):
        raise TasksFailed(failures)
    weight = {"rows": None, "equal": np.ones(len(replies)), "covariate": "covariate"}
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # they are in the result, one by one
        result = aggregate(
            [reply.message for reply in replies],
            support,
            method=plan.method,
            site_weight=weight[plan.site_weight],
            outliers=plan.outliers,
            random_state=request.seed,
        )
    for warning in result.warnings:
        _log.warning("otmoe: %s", warning)
    about = {
        "made by": "otmoe.integrations.flower",
        "target": request.target,
        "method": plan.method,
        "seed": request.seed,
        "sites": _words(", ".join(record.site for record in result.sites), _ABOUT),
        "left out": _words("; ".join(map(": ".join, result.left_out.items())), _ABOUT),
        "failed": _words("; ".join(map(str, failures)), _ABOUT),
    }
    failed = {failure.name: failure.cause for failure in failures}
    merged = replace(result, left_out={**result.left_out, **failed})
    merged.save(folder / "model.json", about, request.spec)
    _log.info("otmoe: %s; the model is in %s", result.status, folder / "model.json")
    return result


def _support(plan: Plan, request: Request) -> Floats | int:
    """Return the rows of x that the server has, (S, d), or how many to draw from the messages."""
    if plan.support is None:
        return plan.points
    return draw_features(
        plan.support,
        request.spec,
        plan.points,
        missing=request.missing,
        random_state=request.seed,
    )[0]
