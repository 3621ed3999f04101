"""Refine rounds with files: the server asks, sites reply, the server takes a step (maths 14).

Examples
--------
>>> from otmoe import simulate
>>> from otmoe.likelihood.rows import Rows, Scaling
>>> data = simulate(2000, 2, 3, softness=1.0, random_state=0)
>>> sites = {"Lyon": Rows(data.X[:800], data.y[:800]), "Nantes": Rows(data.X[800:], data.y[800:])}
>>> state = begin(data.truth, {"Lyon": 800, "Nantes": 1200}, Scaling.of(data.X))
>>> while not state.done:
...     request = request_of(state)  # goes to the sites
...     replies = [reply_to(request, rows, name) for name, rows in sites.items()]  # come back
...     state = step(state, replies)
>>> state.refinement.converged
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from otmoe.data.features import FeatureSpec
from otmoe.data.shards import Shard, ShardRows
from otmoe.distributed.task import by_group, read, rows_in
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.compatible import check_compatible
from otmoe.documents.message import LocalModel
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.roster import Roster
from otmoe.documents.state import RefineState
from otmoe.federation.checks import last_replies
from otmoe.federation.replies import check_belongs, check_once, without_odd
from otmoe.likelihood.answers import SiteInformation, site_information
from otmoe.likelihood.prior import check_restriction
from otmoe.likelihood.rounds import Refinement, advance, judged
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.text.errors import InvalidInput, MessageError, ShardError
from otmoe.text.notices import listed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

LEAST_GROUPS = 10
"""Groups, or rows, of which a scatter may leave a site: one of G groups has rank G."""


def begin(
    model: MoE,
    sites: Mapping[str, float],
    scaling: Scaling,
    rounds: int | str = "auto",
    *,
    ridge: Ridge | None = None,
    features: FeatureSpec | None = None,
    aggregation: AggregationRecord | None = None,
    sandwich: bool = False,
    between: str | None = None,
    roster: Roster | None = None,
    columns: Mapping[str, Any] | None = None,
) -> RefineState:
    """Return the state before the first round.

    Parameters
    ----------
    model : MoE
        The start, on the user's scale: the merged model.
    sites : dict of float
        The sites that will be asked, and the rows that each has (the sum of their weights).
    scaling : Scaling
        Some standardisation of the features, such as that of support points.
    rounds : int or "auto"
        "auto" stops within a thousandth of a standard error of the maximum.
    ridge : Ridge, optional
        By default that of the family.
    features : FeatureSpec, optional
        How columns become the model's features.
    aggregation : AggregationRecord, optional
        How the model was merged, as its file has it; the state keeps it.
    sandwich : bool
        Whether to ask for what the sandwich needs; each site decides whether to send it.
    between : {"auto", "gate", "intercepts"}, optional
        What may differ between sites, if the last round is to estimate how they differ
        (:func:`otmoe.federation.between.differences`); asks for the same as `sandwich`.
    roster : Roster, optional
        Of these sites, to learn only the sum of their replies (:mod:`otmoe.federation.secure`).
    columns : dict, optional
        What the model's file calls the columns of the fits; the state keeps it.
    """
    if roster is not None and between is not None:
        raise InvalidInput(Error.SECURE_BETWEEN)
    if between is not None:
        check_restriction(between, "between")
    rows = {site: float(n) for site, n in sites.items()}
    ridge = Ridge.of(model.experts) if ridge is None else ridge
    scatter = sandwich or between is not None
    refinement = Refinement(model, scaling, ridge, sandwich=scatter)
    known = features, aggregation, between, roster
    return RefineState(refinement, rows, rounds, *known, columns={} if columns is None else columns)


def check_merged(
    model: MoE, features: FeatureSpec | None, messages: Sequence[LocalModel], source: str
) -> None:
    """Refuse a model that was not merged from messages like these.

    Parameters
    ----------
    model : MoE
    features : FeatureSpec, optional
        Of the model.
    messages : sequence of LocalModel
    source : str
        Where the model comes from; an error begins with it.
    """
    for message in messages:
        who = f"the message of site {shown(message.site)}"
        check_compatible(message.model, message.features, who, model, features, source)


def request_of(state: RefineState) -> RefineRequest:
    """Return what the sites are asked next."""
    if state.done:
        raise MessageError(Error.ROUNDS_OVER)
    known = state.refinement
    return RefineRequest(
        known.rounds + 1,
        known.model,
        known.scaling,
        state.features,
        moments=known.pooled is None,
        sandwich=known.sandwich,
        between=state.between is not None,
        roster=state.roster,
    )


def reply_to(
    request: RefineRequest, rows: Rows, site: str, *, sandwich: bool = False, groups: Any = None
) -> RefineReply:
    """Return what a site replies, in one pass over its rows, two with a scatter.

    A scatter is sent if the request asks for it and the site agrees, by `sandwich` or `groups`.

    Parameters
    ----------
    request : RefineRequest
    rows : Rows
        On the user's scale, with the weights and the offset of the site's fit; y holds numbers,
        for classes those from 0.
    site : str
        Its name, as in its message.
    sandwich : bool
        Whether the scatter of the scores may leave.
    groups : array-like of shape (n,), optional
        Label of the group of each row: that of the groups' scores may. Labels do not leave.
    """
    if request.roster is not None:
        raise MessageError(Error.SECURE_REQUEST)
    with np.errstate(all="ignore"):  # what is not finite is refused
        found = site_information(
            site,
            request.model,
            request.scaling,
            rows,
            moments=request.moments,
            scatter=request.sandwich and (sandwich or groups is not None),
            groups=groups,
        )
    _check_groups(found)
    return RefineReply(request.round, request.digest, found)


def _check_groups(found: SiteInformation) -> None:
    """Refuse to speak about fewer groups than hide each."""
    if found.scatter is not None and found.scatter.n_scores < LEAST_GROUPS:
        raise InvalidInput(
            Error.FEW_GROUPS_TO_SEND, groups=found.scatter.n_scores, least=LEAST_GROUPS
        )


def reply_from(
    request: RefineRequest, shard: Shard, *, sandwich: bool = False
) -> tuple[RefineReply, ShardRows]:
    """Return what a site replies, and the rows that it has read for it.

    Parameters
    ----------
    request : RefineRequest
    shard : Shard
        The site's rows, under its name; class labels are those of the model. If it reads groups,
        the scatter of their scores may leave.
    sandwich : bool
        Whether that of the rows' scores may.
    """
    target = Target.of(request.model)
    found = by_group(read(shard), target)
    rows = rows_in(found, target, shard.name)
    try:
        return reply_to(request, rows, shard.name, sandwich=sandwich, groups=found.groups), found
    except (MessageError, InvalidInput) as error:
        raise error.about(shard.name, ShardError) from error


def step(
    state: RefineState,
    replies: Sequence[RefineReply],
    *,
    allow_missing: bool = False,
    odd: Literal["drop", "raise"] = "drop",
) -> RefineState:
    """Return the state after one more round, or refuse a reply that does not belong to it.

    A site whose reply cannot be right (:mod:`otmoe.federation.checks`) is left out of this round
    and all to come; the state says why.

    The last step has not been checked. Unless it is too short to matter, sites are asked once more,
    and it is undone if it lowered the likelihood.

    Parameters
    ----------
    state : RefineState
    replies : sequence of RefineReply
        In any order.
    allow_missing : bool
        Whether to continue without sites that have not replied; the state names them.
    odd : {"drop", "raise"}
        Whether to continue without a site whose reply cannot be right, or to refuse the round.
    """
    request = request_of(state)
    if state.roster is not None:
        raise MessageError(Error.REPLY_NOT_MASKED)
    replies = [reply for reply in replies if reply.site not in state.dropped]
    check_once(replies)
    for reply in replies:
        check_belongs(state, request, reply)
    seen = {reply.site for reply in replies}
    missing = [site for site in state.asked if site not in seen]
    if missing and not (allow_missing and seen):
        code = Error.NO_REPLIES if allow_missing else Error.REPLIES_MISSING
        raise MessageError(code, round=request.round, names=listed(missing, 12))
    known, answers, found = without_odd(state, replies, odd)
    dropped = {**state.dropped, **found}
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused
            if known.is_unseen(state.rounds):
                likely = {a.site: a.information.log_likelihood for a in answers}
                return replace(state, refinement=judged(known, likely), dropped=dropped)
            after = advance(known, answers, list(state.sites))
            last = last_replies(known, after, answers, state.last)
        return replace(state, refinement=after, last=last, dropped=dropped)
    except (ValueError, np.linalg.LinAlgError) as error:
        raise MessageError(
            Error.NO_STEP,
            round=request.round,
            sites=listed([a.site for a in answers]),
            reason=" ".join(str(error).split())[:200],
        ) from error


def check_reply(state: RefineState, reply: RefineReply) -> None:
    """Refuse a reply that :func:`step` would refuse or drop, whatever the others are."""
    request = request_of(state)
    check_belongs(state, request, reply)
    without_odd(state, [reply], "raise")
