"""Which replies to a refine round are used: those that belong to it and can be right (maths 14).

A reply that does not belong to the round (another round or request, other rows, a site that was not
asked, a second one) says nothing about the site: by files, it is set aside and the site has not
replied. A site whose numbers cannot be right is dropped, from this round on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.state import RefineState
from otmoe.federation.checks import odd_replies
from otmoe.likelihood.answers import SiteInformation
from otmoe.likelihood.rounds import Refinement
from otmoe.text.errors import MessageError
from otmoe.text.notices import Notice, listed
from otmoe.text.records import adds_up
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown


def check_belongs(state: RefineState, request: RefineRequest, reply: RefineReply) -> None:
    """Refuse a reply of somebody else, to something else, or about other rows."""
    if reply.site not in state.sites:
        raise MessageError(
            Error.REPLY_UNASKED,
            where=reply.name,
            site=shown(reply.site),
            sites=listed(list(state.sites)),
        )
    if reply.round != request.round:
        when = "over" if reply.round < request.round else "still to come"
        raise MessageError(
            Error.REPLY_ROUND,
            where=reply.name,
            round=reply.round,
            when=when,
            site=shown(reply.site),
            wanted=request.round,
        )
    if reply.digest != request.digest:
        raise MessageError(
            Error.REPLY_DIGEST,
            where=reply.name,
            round=request.round,
            digest=shown(reply.digest),
            wanted=shown(request.digest),
            site=shown(reply.site),
        )
    model, found = request.model, reply.content
    sizes = {
        "score": (len(found.information.score), model.n_parameters, "free parameters"),
        "mass": (len(found.information.mass), model.n_experts, "experts"),
    }
    if request.moments:
        size = 0 if found.moments is None else len(found.moments.mean)
        sizes["x_mean"] = (size, model.n_features, "features")
    for name, (size, wanted, what) in sizes.items():
        if size != wanted:
            raise MessageError(
                Error.REPLY_SIZE,
                where=reply.name,
                field=name,
                length=size,
                wanted=wanted,
                what=what,
                site=shown(reply.site),
            )
    if not adds_up(found.n_samples, state.sites[reply.site]):
        raise MessageError(
            Error.REPLY_ROWS,
            where=reply.name,
            rows=found.n_samples,
            site=shown(reply.site),
            fitted=state.sites[reply.site],
        )


def check_once(replies: Sequence[RefineReply]) -> None:
    """Refuse two replies of one site."""
    seen: dict[str, RefineReply] = {}
    for reply in replies:
        if reply.site in seen:
            files = {"file": seen[reply.site].name, "other": reply.name}
            raise MessageError(Error.REPLY_TWICE, **files, site=shown(reply.site))
        seen[reply.site] = reply


def belonging(
    state: RefineState, request: RefineRequest, replies: Sequence[RefineReply]
) -> tuple[list[RefineReply], list[MessageError]]:
    """Return the replies that belong to a round, and why each of the others does not.

    Of two that differ and bear the name of one site, nobody can say which is its own: neither is
    used. Copies count once.
    """
    found: dict[str, list[RefineReply]] = {}
    refused = []
    for reply in replies:
        try:
            check_belongs(state, request, reply)
        except MessageError as error:
            refused.append(error)
        else:
            found.setdefault(reply.site, []).append(reply)
    for site, sent in found.items():
        if all(reply.to_json() == sent[0].to_json() for reply in sent):
            found[site] = sent[:1]
            continue
        try:
            check_once(sent)
        except MessageError as error:
            refused.append(error)
            found[site] = []
    return [reply for sent in found.values() for reply in sent], refused


def without_odd(
    state: RefineState, replies: Sequence[RefineReply], odd: str
) -> tuple[Refinement, list[SiteInformation], dict[str, Notice]]:
    """Return what is known without replies that cannot be right, the others, and who sent them."""
    answers, known = [reply.content for reply in replies], state.refinement
    found = odd_replies(known, answers, state.last)
    for reply in replies:
        if odd == "raise" and reply.site in found:
            why, site = found[reply.site], shown(reply.site)
            raise MessageError(Error.REPLY_ODD, where=reply.name, site=site, why=why)
    if len(found) == len(answers):
        reasons = "; ".join(f"{site}: {why}" for site, why in found.items())
        raise MessageError(Error.REPLIES_ODD, round=known.rounds + 1, reasons=reasons)
    if known.best is not None and found.keys() & known.best.log_likelihood.keys():
        # the best model rests on them as well: begin again here, from those who are left
        known = replace(known, best=None, radius=np.inf, decrement=np.inf, trace=())
    left = [answer for answer in answers if answer.site not in found]
    return known, left, found
