"""Secure sums in refine rounds: the server learns only the sum of all replies (maths 14).

Every number of a reply becomes an integer to which the site adds masks that it shares with each of
the others; in the sum over all sites of the roster they cancel. A round is all or nothing: if a
reply is missing, the sum cannot be unmasked, and the server starts again with other sites and a
different question (:func:`again`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from otmoe.documents.masked_reply import MaskedReply, Words
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.roster import Roster
from otmoe.documents.state import RefineState
from otmoe.federation.keys import Answered, Key
from otmoe.federation.layout import Layout
from otmoe.federation.masking import added, frozen, thawed
from otmoe.federation.rounds import request_of, step
from otmoe.likelihood.rounds import Refinement
from otmoe.text.errors import MessageError
from otmoe.text.notices import listed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

_MOVED = 1 / 64  # units by which a question moves if it is asked again before a step was taken


def unmasked(request: RefineRequest) -> RefineRequest:
    """Return the question of a request without its roster: what a site computes before masking.

    Examples
    --------
    A site answers, and masks the answer before anything is written::

        reply, rows = reply_from(unmasked(request), shard)
        masked(request, reply, Key.load("lyon.key"), site="Lyon").save("lyon.round1.reply.json")
    """
    return replace(request, roster=None)


def check_roster(request: RefineRequest, key: Key, site: str, new_roster: bool = False) -> Roster:
    """Return the roster of a request, or refuse one that this site should not answer.

    Parameters
    ----------
    request : RefineRequest
    key : Key
        Of this site.
    site : str
    new_roster : bool
        Whether the site agrees to another roster than it has answered before.
    """
    roster = request.roster
    if roster is None:
        raise MessageError(Error.ROSTER_MISSING)
    roster.check("request", "roster.sites")
    if roster.keys.get(site) != key.public:
        raise MessageError(Error.ROSTER_WITHOUT_ME, site=shown(site), key=key.public[:16])
    known = Answered.beside(key)
    known.check_roster(roster, new_roster)
    known.check_question(request)
    return roster


def masked(
    request: RefineRequest, reply: RefineReply, key: Key, *, new_roster: bool = False
) -> MaskedReply:
    """Return a masked reply, of which only the sum over the roster can be read, and record it.

    The record beside the key is written first: it refuses another answer to the same question.

    Parameters
    ----------
    request : RefineRequest
        With its roster.
    reply : RefineReply
        To the same question (:func:`unmasked`).
    key : Key
        Of this site.
    new_roster : bool
        Whether the site agrees to another roster than it has answered before.
    """
    roster = check_roster(request, key, reply.site, new_roster)
    layout = Layout.of(request)
    if request.sandwich and reply.content.scatter is None:
        raise MessageError(Error.SECURE_SCATTER, site=shown(reply.site))
    numbers = frozen(layout.packed(reply.content), len(roster.keys))
    numbers = key.masked(numbers, roster, reply.site, request.context)
    record = Answered.beside(key).with_answer(request, roster, numbers)
    record.save(Answered.path_of(key))
    return MaskedReply(reply.site, request.round, request.digest, request.context, numbers)


def check_masked(state: RefineState, reply: MaskedReply) -> None:
    """Refuse a masked reply that :func:`masked_step` would refuse, whatever the others are."""
    _Expected.of(state).check(reply)


def masked_step(state: RefineState, replies: Sequence[MaskedReply]) -> RefineState:
    """Return the state after one more round, from the sum of the masked replies of all sites.

    Parameters
    ----------
    state : RefineState
        With a roster.
    replies : sequence of MaskedReply
        Of all its sites, in any order.
    """
    expected = _Expected.of(state)
    request, roster = expected.request, expected.roster
    seen: dict[str, MaskedReply] = {}
    for reply in replies:
        expected.check(reply)
        if reply.site in seen:
            files = {"file": seen[reply.site].name, "other": reply.name}
            raise MessageError(Error.REPLY_TWICE, **files, site=shown(reply.site))
        seen[reply.site] = reply
    gone = [site for site in roster.sites if site not in seen]
    if gone:
        raise MessageError(Error.SECURE_MISSING, round=request.round, names=listed(gone))
    pooled = pooled_reply(request, [reply.numbers for reply in seen.values()])
    # From here on the sum is the reply of one site, which has the rows of all.
    rows = {roster.name: sum(state.sites.values())}
    after = step(replace(state, sites=rows, roster=None, checked=True), [pooled])
    return replace(after, sites=state.sites, roster=roster)


def pooled_reply(request: RefineRequest, numbers: Sequence[Words]) -> RefineReply:
    """Return the sum of all replies, or refuse numbers whose masks have not cancelled.

    Parameters
    ----------
    request : RefineRequest
        With its roster.
    numbers : sequence of ndarray of uint64 of shape (n, 2)
        One of each site.
    """
    roster = request.roster
    if roster is None:
        raise MessageError(Error.ROSTER_MISSING)
    total = numbers[0]
    for other in numbers[1:]:
        total = added(total, other)
    layout = Layout.of(request)
    count = frozen(np.full(len(layout.checks), len(roster.keys)), 1)
    if not np.array_equal(total[layout.checks], count):
        names = listed(list(roster.sites))
        raise MessageError(Error.MASKS_REMAIN, round=request.round, names=names)
    with np.errstate(all="ignore"):  # what is not finite is refused
        found = layout.unpacked(thawed(total), roster.name)
    return RefineReply(request.round, request.digest, found, f"the sum of {roster.name}")


def again(state: RefineState, without: Sequence[str]) -> RefineState:
    """Return the state with fewer sites and a different question, after a failed round.

    Sums over different sites cannot be compared: the rounds restart halfway between the best model
    so far and the one that was asked about; before the first step, a little away from it.

    Parameters
    ----------
    state : RefineState
        With a roster.
    without : sequence of str
        Sites that no longer take part; at least three must remain.
    """
    roster, known = state.roster, state.refinement
    if roster is None:
        raise MessageError(Error.ROSTER_MISSING)
    unknown = [site for site in without if site not in roster.keys]
    if unknown or not without:
        name = shown(unknown[0]) if unknown else "nobody"
        raise MessageError(Error.ROSTER_NOT_IN, site=name, names=listed(list(roster.sites)))
    left = Roster({site: key for site, key in roster.keys.items() if site not in without})
    left.check("roster", "sites")
    here = known.scaling.from_user(known.model)
    theta = here.to_vector()
    if known.best is not None:
        theta = (theta + known.best.theta) / 2
    else:
        digits = np.frombuffer(bytes.fromhex(left.nonce), np.uint8)
        signs = np.random.default_rng(digits).choice([-1.0, 1.0], len(theta))
        theta = theta + _MOVED * signs * Layout.of(request_of(state)).unit
    model = known.scaling.to_user(here.with_vector(theta))
    fresh = Refinement(model, known.scaling, known.ridge, known.rounds, sandwich=known.sandwich)
    sites = {site: rows for site, rows in state.sites.items() if site not in without}
    return replace(state, refinement=fresh, sites=sites, roster=left, last={})


@dataclass(frozen=True)
class _Expected:
    """What masked replies have to belong to."""

    request: RefineRequest
    roster: Roster
    context: str
    size: int

    @classmethod
    def of(cls, state: RefineState) -> _Expected:
        request = request_of(state)
        if request.roster is None:
            raise MessageError(Error.ROSTER_MISSING)
        return cls(request, request.roster, request.context, Layout.of(request).size)

    def check(self, reply: MaskedReply) -> None:
        """Refuse a reply of somebody else, to something else, or of another size."""
        site, names = shown(reply.site), listed(list(self.roster.sites))
        if reply.site not in self.roster.keys:
            raise MessageError(Error.REPLY_UNASKED, where=reply.name, site=site, sites=names)
        if (reply.round, reply.context) != (self.request.round, self.context):
            round = self.request.round
            raise MessageError(Error.REPLY_CONTEXT, where=reply.name, round=round, site=site)
        if len(reply.numbers) != self.size:
            raise MessageError(
                Error.MASKED_SIZE,
                where=reply.name,
                length=len(reply.numbers),
                wanted=self.size,
                site=site,
            )
