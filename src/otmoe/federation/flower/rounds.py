"""Refine rounds with Flower: the server asks the nodes again, and keeps their replies as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otmoe.aggregation import Aggregation
from otmoe.aggregation.support import support_from
from otmoe.arrays.numerics import Floats
from otmoe.documents.masked_reply import MaskedReply
from otmoe.documents.reply import RefineReply
from otmoe.documents.roster import Roster
from otmoe.documents.state import RefineState
from otmoe.federation.between import differences
from otmoe.federation.flower.nodes import connected, exchange, file_name, log, sent_as, who, words
from otmoe.federation.requests import Plan, Request
from otmoe.federation.rounds import begin, check_reply, request_of, step
from otmoe.federation.secure import again, check_masked, masked_step
from otmoe.inference.between import Between
from otmoe.likelihood.rows import Scaling
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error, Finding, Warn
from otmoe.text.strict_json import shown
from otmoe.workers.failures import Failure, TasksFailed


def refine(
    grid: Any,
    request: Request,
    plan: Plan,
    result: Aggregation,
    numbers: Mapping[str, int],
    support: Floats | int,
) -> tuple[RefineState, Between | None]:
    """Refine a merged model towards the fit of all rows, round by round.

    Requests, replies and the state are kept as files, as `otmoe refine` would have them.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    request : Request
        What was asked before; it says which columns are meant.
    plan : Plan
    result : Aggregation
        Its sites are asked.
    numbers : dict of int
        The node of each site.
    support : ndarray of shape (S, d), or int
        Rows of x, for a common scale of the features; or how many to draw from the messages.

    Returns
    -------
    RefineState
    Between or None
        How sites differ, if the plan asks for it and the replies allow it.
    """
    if isinstance(support, int):
        support = support_from(result.messages, support, random_state=request.seed).rows
    sites = {message.site: message.n_samples for message in result.messages}
    state = begin(
        result.model,
        sites,
        Scaling.of(support),
        plan.refine,
        features=request.spec,
        sandwich=plan.sandwich,
        between=plan.between,
        roster=Roster.of({m.site: m.key for m in result.messages}) if plan.secure else None,
    )
    folder = Path(plan.output) / "rounds"
    folder.mkdir()
    between, rosters = None, 1
    while not state.done:
        asked = request_of(state)
        name = f"round{asked.round}" + (f".roster{rosters}" if rosters > 1 else "")
        asked.save(folder / f"{name}.request.json")
        replies, failures = _ask_round(grid, request, state, numbers, plan.timeout)
        for failure in failures:
            log.error("otmoe: round %d: %s", asked.round, failure)
        for i, site in enumerate(state.sites):
            if site in replies:
                replies[site].save(folder / f"{file_name(i, site)}.{name}.reply.json")
        if failures and (plan.on_error == "raise" or not replies):
            raise TasksFailed(failures)
        gone = [site for site in state.asked if site not in replies]
        if state.roster is not None and gone:  # the sum of the others means nothing
            state, rosters = again(state, gone), rosters + 1
            continue
        odd = "raise" if plan.on_error == "raise" else "drop"
        before, state = state, _step(state, list(replies.values()), odd)
        for site, why in state.dropped.items():
            if site not in before.dropped:
                facts = {"site": words(site), "round": asked.round, "why": why}
                log.warning("otmoe: %s", Warn.REPLY_DROPPED(sites=(site,), **facts))
        if state.done and state.roster is None:
            plain = [reply for reply in replies.values() if isinstance(reply, RefineReply)]
            between = _differences(before, state, plain)
        state.save(folder / "state.json")
        log.info("otmoe: %s", state.refinement.status)
    return state, between


def _step(
    state: RefineState, replies: Sequence[RefineReply | MaskedReply], odd: Any
) -> RefineState:
    """Take a step from the replies of all nodes that have replied."""
    hidden = [reply for reply in replies if isinstance(reply, MaskedReply)]
    if state.roster is not None:
        return masked_step(state, hidden)
    plain = [reply for reply in replies if isinstance(reply, RefineReply)]
    return step(state, plain, allow_missing=True, odd=odd)


def _differences(
    before: RefineState, after: RefineState, replies: Sequence[RefineReply]
) -> Between | None:
    """Return how sites differ; where that cannot be said, the model is written without."""
    try:
        found = differences(before, after, replies)
    except InvalidInput as error:
        log.warning("otmoe: %s", error)
        return None
    for notice in () if found is None else found.warnings:
        log.warning("otmoe: %s", notice)
    return found


def _ask_round(
    grid: Any, request: Request, state: RefineState, numbers: Mapping[str, int], timeout: float
) -> tuple[dict[str, RefineReply | MaskedReply], list[Failure]]:
    """Ask the nodes of the sites that are connected; return their replies by site."""
    asked = request_of(state)
    site_of = {numbers[site]: site for site in state.asked}
    nodes = [node for node in connected(grid, 0, 0) if node.node_id in site_of]
    gone = [
        Failure(f"node {number} ({words(site)})", Finding.NODE_GONE())
        for number, site in site_of.items()
        if number not in {node.node_id for node in nodes}
    ]

    def read(record: Mapping[str, Any], node: Any) -> RefineReply | MaskedReply:
        text = sent_as(record, "reply")
        reply: RefineReply | MaskedReply
        if state.roster is None:
            reply = RefineReply.from_json(text, who(node))
        else:
            reply = MaskedReply.from_json(text, who(node))
        if reply.site != site_of[node.node_id]:
            raise InvalidInput(
                Error.NODE_RENAMED, site=shown(reply.site), before=shown(site_of[node.node_id])
            )
        if isinstance(reply, MaskedReply):
            check_masked(state, reply)
        else:
            check_reply(state, reply)
        return reply

    query = {"request": request.model_dump_json(), "refine": asked.to_json()}
    found, failures = exchange(grid, nodes, query, read, timeout)
    sent = {reply.site: reply for reply in found}  # in the order in which they came
    return {site: sent[site] for site in state.asked if site in sent}, gone + failures
