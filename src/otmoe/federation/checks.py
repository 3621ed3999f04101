"""Whether the replies of sites can be right: by themselves, and beside each other (maths 14).

No row is seen here. What a site replies has bounds all the same: its rows hold only so much
information, its log-likelihood bounds its residuals and these its score, and from one round to the
next likelihood, score and information have to agree with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.reply import RefineReply
from otmoe.documents.state import RefineState
from otmoe.inference.parameters import parameters
from otmoe.likelihood.answers import LastReply, SiteInformation
from otmoe.likelihood.information import predictors_of
from otmoe.likelihood.rounds import Refinement
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import MessageError
from otmoe.text.notices import Notice
from otmoe.text.records import LARGEST
from otmoe.text.sentences import Error, Finding
from otmoe.text.strict_json import shown

TIMES = 1e3
"""Times the median site's information per row that a site may have, where no bound is known."""

FAR = 100.0
"""Standard deviations from the centre that the features of a site may be on average."""

NATS = 1e3
"""Nats per row that the rows of a site may be less likely than those of the median site."""

PROMISE = 1e5
"""Nats per row that the score of a site may promise; times what the median site's does, if more."""

_OFF = 0.5  # of what is predicted, from which a reply contradicts the one before it:
_SHORT, _SHORTER = 3e-3, 3e-4  # where most are this close, in likelihood and in score
_ROUNDING = 1e-6  # relative: what writing and adding numbers may lose
_COMPARED = 3  # sites of which one can be the odd one


def last_replies(
    state: Refinement,
    after: Refinement,
    answers: Sequence[SiteInformation],
    known: Mapping[str, Any],
) -> dict[str, LastReply]:
    """Return what the next round is checked against: about the best model, site by site.

    Parameters
    ----------
    state, after : Refinement
        Before and after a round.
    answers : sequence of SiteInformation
        To it.
    known : dict of LastReply
        What was kept before it.
    """
    best = after.best
    assert best is not None  # a round has been answered
    here = state.scaling.from_user(state.model).to_vector()
    step = after.scaling.from_user(after.model).to_vector() - best.theta
    found = {}
    for answer in sorted(answers, key=lambda answer: answer.site):
        site, before = answer.site, known.get(answer.site)
        squares = _squares(answer, state.scaling, before)
        if np.array_equal(best.theta, here):
            score, turn = answer.information.score, answer.information.matrix @ step
            fits = np.all(np.abs(turn) <= LARGEST)  # a file holds no more
            found[site] = LastReply(squares, score, turn if fits else None)
        elif before is not None:  # the step was taken back, and another leads on from the best
            found[site] = LastReply(before.squares, before.score, None)
    return found


def _squares(answer: SiteInformation, scaling: Scaling, before: LastReply | None) -> Floats | None:
    """Return mean squares of a site's features on the scale of the questions, (d,), if known."""
    if answer.moments is None:
        return None if before is None else before.squares
    center = 0.0 if scaling.x_center is None else scaling.x_center
    scale = 1.0 if scaling.x_scale is None else scaling.x_scale
    found: Floats = (answer.moments.var + (answer.moments.mean - center) ** 2) / scale**2
    return found


def odd_replies(
    state: Refinement, answers: Sequence[SiteInformation], known: Mapping[str, LastReply]
) -> dict[str, Notice]:
    """Return the sites whose replies cannot be right, and why.

    Parameters
    ----------
    state : Refinement
        That was asked about.
    answers : sequence of SiteInformation
    known : dict of LastReply
        What was kept of the sites' last replies.

    Raises
    ------
    MessageError
        If two sites contradict each other and there is no third to tell which is wrong.
    """
    with np.errstate(all="ignore"):  # what is not finite is odd, or has no bound
        here = state.scaling.from_user(state.model)
        asked = [_Asked.of(state, here, answer, known.get(answer.site)) for answer in answers]
        odd = {reply.site: why for reply in asked if (why := reply.impossible()) is not None}
        asked = [reply for reply in asked if reply.site not in odd]
        apart = _apart(here, asked)
    if apart and len(asked) < _COMPARED:
        (site, why), other = next(iter(apart.items())), [r.site for r in asked]
        raise MessageError(
            Error.REPLIES_CONTRADICT, sites=" and ".join(sorted(other)), site=site, why=why
        )
    asked = [reply for reply in asked if reply.site not in apart]
    return odd | apart | _inconsistent(state, here, asked)


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


@dataclass(frozen=True)
class _Asked:
    """What a site says about a model, and what bounds it."""

    answer: SiteInformation
    model: MoE
    before: LastReply | None
    squares: Floats  # (d,)

    @classmethod
    def of(
        cls, state: Refinement, here: MoE, answer: SiteInformation, before: LastReply | None
    ) -> _Asked:
        squares = _squares(answer, state.scaling, before)
        unknown = np.full(here.n_features, np.inf)
        return cls(answer, here, before, unknown if squares is None else squares)

    @property
    def site(self) -> str:
        return self.answer.site

    @property
    def coarse(self) -> tuple[float, float]:
        """How coarse the answer says it is: in standard errors, and in nats; within reason."""
        found = self.answer.rounding
        if found is None:
            return 0.0, 0.0
        return min(found.digits, 1.0), min(found.log_likelihood, np.sqrt(self.answer.n_samples))

    def impossible(self) -> Notice | None:
        """Return why no rows at all could have led to this reply, or None."""
        found, n, model = self.answer.information, self.answer.n_samples, self.model
        experts, K = model.experts, model.n_experts
        digits, nats = self.coarse
        loose = _ROUNDING + 4 * digits / np.sqrt(n)  # relative, of sums over rows
        unsure = nats + loose * (n + abs(found.log_likelihood))
        square = experts.score_square_bound(found.log_likelihood - unsure, found.mass)  # (K,)
        if np.any(square < 0):
            return Finding.TOO_LIKELY(value=found.log_likelihood, rows=n)
        sums = n * np.concatenate([[1.0], self.squares]) * (1 + loose) + 1e-9 * n  # (p,)
        columns = slice(None) if model.gate.columns is None else list(model.gate.columns)
        gate, Q = sums[columns], experts.n_linear
        curvature, rest = experts.curvature_bound, square / (2 * experts.curvature_bound)
        E = experts.n_constant
        # 1) what all rows together can hold
        most = np.concatenate(
            [
                np.tile(0.25 * gate, K - 1),
                np.outer(np.repeat(curvature, Q), sums).ravel(),
                np.tile(rest * (1 + loose) + loose * n, E),
            ]
        ) * (1 + loose)
        own = np.diagonal(found.matrix)
        names = parameters(model)
        if np.any(over := own > most):
            j = int(np.argmax(np.where(over, own / most, 0)))
            return Finding.TOO_INFORMED(parameter=names[j], times=own[j] / most[j], rows=n)
        spread = np.sqrt(most)
        missing = np.sqrt(np.maximum(most - own, 0.0))
        limit = 2 * (np.outer(spread, spread) + np.outer(missing, missing))
        if np.any(over := np.abs(found.matrix) > limit):
            i, j = np.argwhere(over)[0]
            times = abs(found.matrix[i, j]) / limit[i, j]
            return Finding.TOO_INFORMED(parameter=f"{names[i]} and {names[j]}", times=times, rows=n)
        # 2) what these residuals can sum up to; by Cauchy and Schwarz
        reach = (
            np.concatenate(
                [
                    np.tile(np.sqrt(n * gate), K - 1),
                    np.sqrt(np.outer(np.repeat(square, Q), sums)).ravel(),
                    np.tile(rest + n, E),
                ]
            )
            * (1 + _ROUNDING)
            + 1e-9 * n
        )
        if np.any(over := np.abs(found.score) > reach):
            j = int(np.argmax(np.where(over, np.abs(found.score) / reach, 0)))
            return Finding.TOO_STEEP(parameter=names[j], times=abs(found.score[j]) / reach[j])
        return None


def _apart(model: MoE, asked: Sequence[_Asked]) -> dict[str, Notice]:
    """Return the sites that have little in common with most of them, and why."""
    odd: dict[str, Notice] = {}
    if len(asked) < 2:
        return odd
    n = np.array([reply.answer.n_samples for reply in asked])
    found = [reply.answer.information for reply in asked]
    names, owner = parameters(model), predictors_of(model)
    # 1) information per row; that of the predictor's first column where most sites have none
    each = np.array([np.abs(np.diagonal(one.matrix)) for one in found]) / n[:, None]
    usual = _lower_median(each)
    first = np.array([np.flatnonzero(owner == predictor)[0] for predictor in owner])
    usual = np.maximum(usual, usual[first])
    # 2) what a site alone would gain by its score
    gain = (np.array([one.score for one in found]) / n[:, None]) ** 2 / usual
    most = PROMISE * max(float(_lower_median(gain.max(axis=1))), 1.0)
    # 3) features, and log-likelihood
    squares = np.array([reply.squares for reply in asked])
    level = np.maximum(_lower_median(np.where(np.isfinite(squares), squares, 0.0)), 1.0)
    likely = np.array([one.log_likelihood for one in found]) / n
    below = -_lower_median(-likely) - likely
    for i, reply in enumerate(asked):
        why = None
        if np.any(over := each[i] > TIMES * usual):
            j = int(np.argmax(np.where(over, each[i] / usual, 0)))
            why = Finding.MORE_INFORMED(parameter=names[j], times=each[i, j] / usual[j])
        elif np.any(np.isfinite(squares[i]) & (squares[i] > FAR**2 * level)):
            j = int(np.argmax(squares[i] / level))
            why = Finding.FAR_FEATURES(
                feature=model.terms[j + 1], deviations=np.sqrt(squares[i, j] / level[j])
            )
        elif below[i] > NATS:
            why = Finding.LESS_LIKELY_REPLY(nats=below[i])
        elif np.any(over := gain[i] > most):
            j = int(np.argmax(np.where(over, gain[i], 0)))
            why = Finding.STEEPER(parameter=names[j], nats=gain[i, j])
        if why is not None:
            odd[reply.site] = why
    return odd


def _inconsistent(state: Refinement, here: MoE, asked: Sequence[_Asked]) -> dict[str, Notice]:
    """Return the sites whose replies contradict their last ones, and why.

    Between two points, the log-likelihood changes by the mean of the scores there times the step,
    and the score by the mean of the informations times the step, but for what grows as the cube.
    Where that holds for most sites, the step is short enough to hold for all.
    """
    best, odd = state.best, dict[str, Notice]()
    asked = [r for r in asked if r.before and best and r.site in best.log_likelihood]
    if best is None or not asked:
        return odd
    step = here.to_vector() - best.theta
    unit = np.sqrt(
        _lower_median(np.array([np.abs(np.diagonal(r.answer.information.matrix)) for r in asked]))
    )
    unit = np.where(unit > 0, unit, 1.0)
    off, bent, changes = [], [], []
    for reply in asked:
        found, before = reply.answer.information, reply.before
        assert before is not None
        turn = found.matrix @ step
        change = found.log_likelihood - best.log_likelihood[reply.site]
        promised = 0.5 * float((before.score + found.score) @ step)
        size = abs(before.score @ step) + abs(found.score @ step) + abs(step @ turn)
        digits, nats = reply.coarse
        noise = 1e-9 * (abs(found.log_likelihood) + reply.answer.n_samples) + 2 * nats
        noise += digits * len(step) * np.sqrt(abs(step @ turn))
        off.append(abs(change - promised) / (size + noise))
        changes.append((change, promised))
        if before.turn is None:
            bent.append(np.nan)
            continue
        parts = (found.score - before.score, 0.5 * before.turn, 0.5 * turn)
        lengths = [float(np.linalg.norm(part / unit)) for part in parts]
        missed = float(np.linalg.norm(sum(parts) / unit))
        unseen = 1e-6 * np.sqrt(reply.answer.n_samples) + 2 * digits * len(step)
        bent.append(missed / (sum(lengths) + unseen))
    for i, reply in enumerate(asked):
        if _lower_median(np.array(off)) < _SHORT and not off[i] <= _OFF:
            change, promised = changes[i]
            odd[reply.site] = Finding.LIKELIHOOD_CONTRADICTS(change=change, promised=promised)
        elif _lower_median(np.array(bent)) < _SHORTER and bent[i] > _OFF:
            odd[reply.site] = Finding.SCORE_CONTRADICTS()
    return odd


def _lower_median(values: Floats) -> Any:
    """Return the median over the first axis, of an even number the lower of both."""
    return np.sort(values, axis=0)[(len(values) - 1) // 2]
