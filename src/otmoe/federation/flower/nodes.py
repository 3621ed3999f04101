"""Flower's nodes: who is connected, a query to each, and what comes back."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from otmoe.text.errors import InvalidInput, MissingPackage, OtmoeError
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Finding
from otmoe.workers.failures import Failure, sentence

RECORD = "otmoe"
"""The record of a query, and of a reply."""

POLL = 1.0
"""Seconds between two looks at what has come, unless time is up before."""

UNPACK = 30.0
"""Seconds that pulling and unpacking the reply of a node may take."""

PARALLEL = 16
"""Replies that are pulled at a time."""

_GRACE = 60.0  # seconds for which Flower keeps a query that nobody waits for
_LONGEST_NAME = 120  # bytes of a site's name in that of a file
_LONGEST = 500  # characters of a node's words that are shown

log = logging.getLogger("flwr")
"""Flower's, so that `flwr log` shows it."""

T = TypeVar("T")


def flower() -> tuple[Any, Any, Any]:
    """Return the modules of Flower that are used here."""
    try:
        from flwr import app, clientapp, serverapp
    except ImportError as error:
        raise MissingPackage(Error.NO_FLOWER) from error
    return app, clientapp, serverapp


def connected(grid: Any, nodes: int, wait: float) -> list[Any]:
    """Return the nodes that are connected, when they are enough or it is late."""
    end = time.monotonic() + wait
    while True:
        found = sorted(grid.get_nodes(), key=lambda node: node.node_id)
        if len(found) >= nodes or time.monotonic() >= end:
            return found
        _pause(end)


def _pause(end: float) -> None:
    """Sleep until the next look is due."""
    time.sleep(min(POLL, max(end - time.monotonic(), 0.0)))


def who(node: Any) -> str:
    """Return the number of a node, and the name under which it was registered."""
    return f"node {node.node_id}" + (f" ({words(node.name)})" if node.name else "")


def words(text: str, most: int = _LONGEST) -> str:
    """Return what a node says as one line, which can forge no other."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else f"{line[:most]}..."


def exchange(
    grid: Any,
    nodes: Sequence[Any],
    query: Mapping[str, str],
    read: Callable[[Mapping[str, Any], Any], T],
    timeout: float,
) -> tuple[list[T], list[Failure]]:
    """Send a query to each node, and wait for the replies.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    nodes : sequence of nodes
    query : dict of str
    read : callable, (record of a reply, node) -> T
        Raises an error that says why a reply is not what was asked for.
    timeout : float
        Seconds to wait.

    Returns
    -------
    replies : list of T
        In the order in which they came.
    failures : list of Failure
        Nodes that died, were too slow, failed, or replied anything else.
    """
    app, _, _ = flower()
    log.info("otmoe: asking %s", ", ".join(map(who, nodes)) or "nobody")
    record = app.ConfigRecord(dict(query))
    queries = [
        app.Message(
            app.RecordDict({RECORD: record}),
            dst_node_id=node.node_id,
            message_type=app.MessageType.QUERY,
            ttl=timeout + _GRACE,
        )
        for node in nodes
    ]
    waiting = dict(zip(grid.push_messages(queries) if queries else (), nodes, strict=True))
    replies: list[T] = []
    failures: list[Failure] = []
    end = time.monotonic() + timeout
    while waiting:
        late = time.monotonic() >= end
        for number, came in _pulled(grid, list(waiting)):
            node = waiting[number]
            name = who(node)
            try:
                if isinstance(came, Exception):
                    raise came
                if not came and not late:
                    continue
                if not came:
                    raise InvalidInput(Error.NODE_LATE, seconds=timeout)
                replies.append(read(_content(came[0]), node))
                log.info("otmoe: %s has replied", name)
            except Exception as error:
                failures.append(Failure(name, refusal_of(error, name)))
            del waiting[number]
        if waiting:
            _pause(end)
    return replies, failures


def _pulled(grid: Any, numbers: Sequence[str]) -> Iterator[tuple[str, list[Any] | Exception]]:
    """Pull replies, some at a time and each by itself: yield what came, or what went wrong.

    A reply that Flower cannot unpack, or that takes too long, does not affect the others.
    """
    for begin in range(0, len(numbers), PARALLEL):
        done: SimpleQueue[tuple[str, list[Any] | Exception]] = SimpleQueue()

        def pull(number: str, done: SimpleQueue[Any] = done) -> None:
            try:
                done.put((number, list(grid.pull_messages([number]))))
            except Exception as error:
                done.put((number, error))

        some = set(numbers[begin : begin + PARALLEL])
        for number in sorted(some):
            # no pool: do not wait at the end for a pull that was given up
            Thread(target=pull, args=(number,), daemon=True).start()
        end = time.monotonic() + UNPACK
        while some:
            try:
                number, came = done.get(timeout=max(end - time.monotonic(), 0.001))
            except Empty:
                break
            some.discard(number)
            yield number, came
        for number in sorted(some):
            yield number, InvalidInput(Error.NODE_SLOW, seconds=UNPACK)


def refusal_of(error: Exception, name: str) -> Notice:
    """Return why a node failed, in a line that can forge no other."""
    cause = words(sentence(error)).removeprefix(f"{name}: ")
    if isinstance(error, OtmoeError):
        return Notice(error.code, cause, (), error.facts)
    return Notice(Finding.NODE_FAILED.code, cause)


def _content(reply: Any) -> Mapping[str, Any]:
    """Return what a node sent, unless it is an error."""
    if reply.has_error():
        reason = reply.error.reason or f"error {reply.error.code} of Flower"
        raise InvalidInput(Error.NODE_ERROR, reason=reason)
    record: Mapping[str, Any] = reply.content.get(RECORD, {})
    if isinstance(record.get("error"), str):
        raise InvalidInput(Error.NODE_ERROR, reason=record["error"])
    return record


def sent_as(record: Mapping[str, Any], name: str) -> bytes:
    """Return a part of what a node sent."""
    sent = record.get(name)
    if not isinstance(sent, bytes):
        raise InvalidInput(Error.NODE_PART, part=name)
    return sent


def file_name(i: int, site: str) -> str:
    """Return a file name without a path, whatever the site calls itself."""
    name = re.sub(r"[^\w-]+", "_", site)[:60]
    return f"{i + 1:03d}-" + name.encode()[:_LONGEST_NAME].decode(errors="ignore")
