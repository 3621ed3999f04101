"""Secure sums in refine rounds: the server learns what all sites say in sum, no more (maths 14).

Every number of a reply becomes an integer to which the site adds masks that it shares with each of
the others; in the sum over all sites of the roster they cancel. A round is all or nothing: if a
reply is missing, the sum means nothing, and the server begins again with other sites and another
question (:func:`again`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.masked_reply import MaskedReply, Words
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.roster import Roster
from otmoe.documents.sketch import symmetric
from otmoe.documents.state import RefineState
from otmoe.federation.keys import Answered, Key
from otmoe.federation.masking import added, frozen, thawed
from otmoe.federation.rounds import request_of, step
from otmoe.likelihood.answers import FeatureMoments, SiteInformation
from otmoe.likelihood.grouped import Scatter
from otmoe.likelihood.information import Information, predictors_of
from otmoe.likelihood.rounds import Refinement
from otmoe.text.errors import MessageError
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

_MOVED = 1 / 64  # units by which a question moves if it is asked again before a step was taken
_CONSTANT = 1e-12  # a variance below this share of the mean square is rounding


def unmasked(request: RefineRequest) -> RefineRequest:
    """Return the question of a request without its roster: what a site works out before it masks.

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
    """Return a reply of which only the sum over the roster means anything, and record it.

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
    _check(state, request_of(state), reply)


def masked_step(state: RefineState, replies: Sequence[MaskedReply]) -> RefineState:
    """Return the state after one more round, from the sum of the masked replies of all sites.

    Parameters
    ----------
    state : RefineState
        With a roster.
    replies : sequence of MaskedReply
        Of all its sites, in any order.
    """
    request, roster = request_of(state), state.roster
    seen: dict[str, MaskedReply] = {}
    for reply in replies:
        _check(state, request, reply)
        if reply.site in seen:
            files = {"file": seen[reply.site].name, "other": reply.name}
            raise MessageError(Error.REPLY_TWICE, **files, site=shown(reply.site))
        seen[reply.site] = reply
    assert roster is not None  # _check and pooled_reply see to it
    gone = [site for site in roster.sites if site not in seen]
    if gone:
        raise MessageError(Error.SECURE_MISSING, round=request.round, names=", ".join(gone))
    pooled = pooled_reply(request, [reply.numbers for reply in seen.values()])
    # From here on the sum is the reply of one site, which has the rows of all.
    rows = {roster.name: sum(state.sites.values())}
    after = step(replace(state, sites=rows, roster=None, checked=True), [pooled])
    return replace(after, sites=state.sites, roster=roster)


def pooled_reply(request: RefineRequest, numbers: Sequence[Words]) -> RefineReply:
    """Return what all sites say in sum, or refuse numbers whose masks have not cancelled.

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
        names = ", ".join(roster.sites)
        raise MessageError(Error.MASKS_REMAIN, round=request.round, names=names)
    found = layout.unpacked(thawed(total), roster.name)
    return RefineReply(request.round, request.digest, found, f"the sum of {roster.name}")


def again(state: RefineState, without: Sequence[str]) -> RefineState:
    """Return the state with fewer sites and another question, after a round that came to nothing.

    Sums over different sites cannot be compared: the search begins anew, halfway between the best
    model so far and the one that was asked about; before the first step, a little away from it.

    Parameters
    ----------
    state : RefineState
        With a roster.
    without : sequence of str
        Sites that take no part any more; at least three have to be left.
    """
    roster, known = state.roster, state.refinement
    if roster is None:
        raise MessageError(Error.ROSTER_MISSING)
    unknown = [site for site in without if site not in roster.keys]
    if unknown or not without:
        name = shown(unknown[0]) if unknown else "nobody"
        raise MessageError(Error.ROSTER_NOT_IN, site=name, names=", ".join(roster.sites))
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
    return replace(state, refinement=fresh, sites=sites, roster=left)


def _check(state: RefineState, request: RefineRequest, reply: MaskedReply) -> None:
    """Refuse a reply of somebody else, to something else, or of another size."""
    if request.roster is None:
        raise MessageError(Error.ROSTER_MISSING)
    if reply.site not in request.roster.keys:
        names = ", ".join(state.sites)
        raise MessageError(
            Error.REPLY_UNASKED, where=reply.name, site=shown(reply.site), sites=names
        )
    if (reply.round, reply.context) != (request.round, request.context):
        raise MessageError(
            Error.REPLY_CONTEXT, where=reply.name, round=request.round, site=shown(reply.site)
        )
    size = Layout.of(request).size
    if len(reply.numbers) != size:
        raise MessageError(
            Error.MASKED_SIZE,
            where=reply.name,
            length=len(reply.numbers),
            wanted=size,
            site=shown(reply.site),
        )


# -- which number is where -------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where the parts of an answer are in the list of numbers that is masked.

    Attributes
    ----------
    unit : ndarray of shape (P,)
        What each parameter is measured in, so that no unit of y spoils the numbers: powers of two,
        near the standard deviation of the expert for its coefficients.
    center, scale : ndarray of shape (d,)
        Of the features, as in the request.
    n_experts : int
    moments, sandwich : bool
        Whether these are asked for.
    """

    unit: Floats
    center: Floats
    scale: Floats
    n_experts: int
    moments: bool
    sandwich: bool

    @classmethod
    def of(cls, request: RefineRequest) -> Layout:
        """Return the layout of the answers to a request; the same at every site."""
        model, scaling, d = request.model, request.scaling, request.model.n_features
        center = np.zeros(d) if scaling.x_center is None else scaling.x_center
        scale = np.ones(d) if scaling.x_scale is None else scaling.x_scale
        sizes = model.n_experts, request.moments, request.sandwich
        return cls(_units(request), center, scale, *sizes)

    @property
    def sizes(self) -> list[int]:
        """How many numbers each part has; a check is before, between and behind them."""
        P = len(self.unit)
        triangle = P * (P + 1) // 2
        sums = [2, self.n_experts, P, triangle]
        more = [2 * len(self.scale)] if self.moments else []
        return [1, *sums, 1, *more, *([3, triangle] if self.sandwich else []), 1]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(self.sizes)

    @property
    def checks(self) -> Floats:
        """Places at which every site puts 1, so that their sum counts the sites."""
        return np.array([0, sum(self.sizes[:5]), self.size - 1])

    def packed(self, found: SiteInformation) -> Floats:
        """Return the numbers of an answer, (n,); all of them add up over sites."""
        sums, n, one = found.information, found.n_samples, [1.0]
        parts = [one, [n, sums.log_likelihood], sums.mass, sums.score * self.unit]
        parts += [self._triangle(sums.matrix), one]
        if self.moments:
            assert found.moments is not None  # they were asked for
            mean = (found.moments.mean - self.center) / self.scale
            parts.append(n * mean)
            parts.append(n * (found.moments.var / self.scale**2 + mean**2))
        if self.sandwich:
            scatter = found.scatter
            assert scatter is not None  # `masked` sees to it
            parts.append([scatter.n_rows, scatter.n_scores, scatter.n_groups is not None])
            parts.append(self._triangle(scatter.matrix))
        return np.concatenate([np.asarray(part, np.float64) for part in [*parts, one]])

    def unpacked(self, values: Floats, site: str) -> SiteInformation:
        """Return the answer that the sum of such numbers is."""
        parts = iter(np.split(values, np.cumsum(self.sizes)[:-1]))
        next(parts)
        (n, log_likelihood), mass = next(parts), next(parts)
        score, matrix = next(parts) / self.unit, self._matrix(next(parts))
        sums = Information(float(log_likelihood), score, matrix, np.maximum(mass, 0.0))
        next(parts)
        moments = scatter = None
        if self.moments:
            first, second = np.split(next(parts) / n, 2)
            var = second - first**2
            var = np.where(var > _CONSTANT * second, var, 0.0)
            moments = FeatureMoments(self.center + self.scale * first, self.scale**2 * var)
        if self.sandwich:
            rows, scores, grouped = map(round, next(parts).tolist())
            scatter = Scatter(self._matrix(next(parts)), rows, scores if grouped else None)
        return SiteInformation(site, sums, float(n), moments, scatter)

    def _triangle(self, matrix: Floats) -> Floats:
        scaled = matrix * np.outer(self.unit, self.unit)
        return scaled[np.triu_indices(len(self.unit))]

    def _matrix(self, triangle: Floats) -> Floats:
        scaled = symmetric(triangle.tolist(), len(self.unit))
        return scaled / np.outer(self.unit, self.unit)


def _units(request: RefineRequest) -> Floats:
    """Return what each free parameter is measured in, (P,)."""
    here = request.scaling.from_user(request.model)
    experts, K = here.experts, here.n_experts
    predictor = predictors_of(here)
    if experts.dispersion is None:
        return np.ones(len(predictor))
    linear = K * experts.n_linear
    expert = np.clip((predictor - (K - 1)) // experts.n_linear, 0, K - 1)
    is_coef = (predictor >= K - 1) & (predictor < K - 1 + linear)
    unit = np.exp2(np.rint(np.log2(np.sqrt(experts.dispersion))))
    return np.where(is_coef, unit[expert], 1.0)
