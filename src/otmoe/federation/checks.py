"""Whether the replies of sites can be right: on their own, and compared with others (maths 14).

The rows are not available here, but replies are bounded nevertheless: the information that a number
of rows can provide is limited, the log-likelihood bounds the residuals and these the score, and
likelihood, score and information must be consistent from one round to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from otmoe.arrays.numerics import Floats
from otmoe.inference.parameters import parameters
from otmoe.likelihood.answers import LastReply, SiteInformation
from otmoe.likelihood.predictors import predictors_of
from otmoe.likelihood.rounds import Refinement
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import MessageError
from otmoe.text.notices import Notice
from otmoe.text.records import LARGEST
from otmoe.text.sentences import Error, Finding

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
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
        experts = model.experts
        digits, nats = self.coarse
        loose = _ROUNDING + 4 * digits / np.sqrt(n)  # relative, of sums over rows
        unsure = nats + loose * (n + abs(found.log_likelihood))
        square = experts.score_square_bound(found.log_likelihood - unsure, found.mass)  # (K,)
        if np.any(square < 0) or (experts.discrete and found.log_likelihood > 0):
            return Finding.TOO_LIKELY(value=found.log_likelihood, rows=n)
        sums = n * np.concatenate([[1.0], self.squares]) * (1 + loose) + 1e-9 * n  # (p,)
        curvature, rest = experts.curvature_bound, square / (2 * experts.curvature_bound)
        # 1) what all rows together can hold
        held = np.outer(curvature, sums), rest * (1 + loose) + loose * n
        most = _for_each(model, 0.25 * sums, *held) * (1 + loose)
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
        summed = np.sqrt(np.outer(square, sums)), rest + n
        reach = _for_each(model, np.sqrt(n * sums), *summed) * (1 + _ROUNDING) + 1e-9 * n
        if np.any(over := np.abs(found.score) > reach):
            j = int(np.argmax(np.where(over, np.abs(found.score) / reach, 0)))
            return Finding.TOO_STEEP(parameter=names[j], times=abs(found.score[j]) / reach[j])
        return None


def _apart(model: MoE, asked: Sequence[_Asked]) -> dict[str, Notice]:
    """Return the sites that have little in common with most of them, and why."""
    odd: dict[str, Notice] = {}
    if len(asked) < 2:
        return odd
    names = parameters(model)
    squares = np.array([reply.squares for reply in asked])
    level = np.maximum(_lower_median(np.where(np.isfinite(squares), squares, 0.0)), 1.0)
    usual = _usual_information(model, asked, squares, level)
    usual[:, model.held] = 1.0  # nobody has any
    # what a site alone would gain by its score, in nats per row
    n = np.array([reply.answer.n_samples for reply in asked])
    gain = np.array([reply.answer.information.score for reply in asked]) ** 2 / usual / n[:, None]
    gain[:, model.held] = 0.0  # no step goes there
    most = PROMISE * max(float(_lower_median(gain.max(axis=1))), 1.0)
    likely = np.array([reply.answer.information.log_likelihood for reply in asked]) / n
    below = -_lower_median(-likely) - likely
    for i, reply in enumerate(asked):
        why = None
        root = np.sqrt(usual[i])
        times = np.abs(reply.answer.information.matrix) / np.outer(root, root)
        if np.any(over := times > TIMES):
            at = np.unravel_index(np.argmax(np.where(over, times, 0)), over.shape)
            which = " and ".join(dict.fromkeys(str(names[j]) for j in at))
            why = Finding.MORE_INFORMED(parameter=which, times=times[at])
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


def _usual_information(
    model: MoE, asked: Sequence[_Asked], squares: Floats, level: Floats
) -> Floats:
    """Return the information that each site might have about each parameter, (M, P).

    What its rows can hold at most, where the family has a bound. Else as much as the median site
    has for each row of the expert: an expert may have all its rows at one site.
    Infinite where too few sites have any.

    Parameters
    ----------
    model : MoE
    asked : sequence of M _Asked
    squares : ndarray of shape (M, d)
        Mean squares of the features; infinite where they are not known.
    level : ndarray of shape (d,)
        The usual ones.
    """
    found = [reply.answer.information for reply in asked]
    own = np.abs([np.diagonal(one.matrix) for one in found])
    most, mass = np.empty(own.shape), np.empty(own.shape)
    for i, one in enumerate(found):
        far = np.where(np.isfinite(squares[i]), np.maximum(squares[i], level), level)
        x, none = np.concatenate([[1.0], far]), np.full(model.n_experts, np.inf)
        bound = np.outer(model.experts.curvature_bound, x)
        most[i] = asked[i].answer.n_samples * _for_each(model, 0.25 * x, bound, none)
        mass[i] = _for_each(model, np.ones(len(x)), np.outer(one.mass, np.ones(len(x))), one.mass)
    there = np.where(mass >= 1, own / np.maximum(mass, 1.0), np.inf)  # sorted behind the others
    count = np.sum(np.isfinite(there), axis=0)
    middle = np.sort(there, axis=0)[np.maximum(count - 1, 0) // 2, np.arange(len(count))]
    middle[count < min(len(asked), _COMPARED)] = np.inf
    owner = predictors_of(model)
    first = np.array([np.flatnonzero(owner == predictor)[0] for predictor in owner])
    middle = np.maximum(middle, middle[first])  # a feature may vary at one site alone
    return np.where(np.isfinite(most), most, middle * np.maximum(mass, 1.0))


def _for_each(model: MoE, gate: Floats, linear: Floats, rest: Floats) -> Floats:
    """Return a number for each free parameter, (P,).

    Parameters
    ----------
    model : MoE
    gate : ndarray of shape (p,)
        For the columns of the gate.
    linear : ndarray of shape (K, p)
        For those of the experts' predictors.
    rest : ndarray of shape (K,)
        For their dispersions.
    """
    columns = slice(None) if model.gate.columns is None else list(model.gate.columns)
    of_gate = np.tile(gate[columns], model.n_experts - 1)
    of_experts = np.repeat(linear, model.experts.n_linear, axis=0).ravel()
    return np.concatenate([of_gate, of_experts, np.tile(rest, model.experts.n_constant)])


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
        lengths = [float(linalg.norm(part / unit, check_finite=False)) for part in parts]
        missed = float(linalg.norm(sum(parts) / unit, check_finite=False))  # no square overflows
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
