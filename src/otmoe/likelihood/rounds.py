"""Refine rounds: the server's side of Newton's method on the likelihood of all sites (maths 14).

Every round the server asks about one model, each site answers with its log-likelihood, score and
information there, and the server takes a safeguarded step. Nothing here knows how questions and
answers travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from otmoe.arrays.bounded import bounded_step, length
from otmoe.arrays.newton import NewtonPoint
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.answers import SiteInformation, noise_of, pooled_scaling
from otmoe.likelihood.grouped import Scatter
from otmoe.likelihood.information import Information
from otmoe.likelihood.predictors import change_of_scale, free_predictors
from otmoe.likelihood.rows import Scaling
from otmoe.model.free import Free
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Status, Warn

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
TOL = 1e-6
"""Squared distance to the maximum, in standard errors, below which "auto" stops."""

MOST_ROUNDS = 50
"""Rounds after which "auto" gives up."""

_TELLING = 0.03  # standard errors of doubt about the maximum from which on it is told
_WIDE = 0.03  # first bound where the information is no guide, in standard errors of a single row
_MISSED = 0.5  # share of its promise that a step of the right length may miss
_MOST = 2.0  # times as long as the last step that the next may be
_LEAST, _BACK = 0.1, 0.5  # the same at least; and at most where the last was taken back


@dataclass(frozen=True)
class Best:
    """The best model so far, and what the sites said about it.

    Attributes
    ----------
    theta : ndarray of shape (P,)
        Its parameters, on the scale of the questions.
    information : Information
        Summed over the sites that answered, without the penalty.
    log_likelihood : dict of float
        Of each of these sites.
    n_samples : float
        Sum of their weights.
    scatter : Scatter, optional
        Summed over these sites, where all were asked for it and have sent it.
    unscattered : tuple of str
        Those of these sites that were asked for it and have not.
    """

    theta: Floats = field(repr=False)
    information: Information = field(repr=False)
    log_likelihood: Mapping[str, float] = field(repr=False)
    n_samples: float
    scatter: Scatter | None = field(default=None, repr=False)
    unscattered: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refinement:
    """Refine rounds, as far as they have come.

    Attributes
    ----------
    model : MoE
        What the sites are asked about next, on the user's scale; the answer, once it is done.
    scaling : Scaling
        Of the parameters in which sites answer.
    ridge : Ridge
        On features standardised over all sites.
    rounds : int
        Rounds that have been answered.
    best : Best, optional
    pooled : Scaling, optional
        Standardisation of the features over all sites.
    radius : float
        Bound on the next step, in standard errors (:func:`otmoe.arrays.newton.length`, a block for
        each predictor); infinite for none.
    decrement : float
        Squared distance from the best model to the maximum in standard errors, as its Newton step
        sees it; infinite where the information is not positive definite.
    trace : tuple of float
        Penalised log-likelihood at the start and after every step that was accepted.
    missing : tuple of (int, str)
        Rounds, and the sites that did not answer them.
    sandwich : bool
        Whether sites are asked for their scatter, for the sandwich.
    kept : bool, optional
        Whether the last step was kept once sites had looked at it (:func:`judged`), or taken back;
        none before they have, and where it is too short to matter.
    digits : float
        Step to which sites have rounded the last scores, in standard errors of all rows; 0 for not
        at all.
    slack : float
        What rounding leaves unsure of the log-likelihood of all sites, in nats.
    """

    model: MoE
    scaling: Scaling
    ridge: Ridge
    rounds: int = 0
    best: Best | None = None
    pooled: Scaling | None = None
    radius: float = np.inf
    decrement: float = np.inf
    trace: tuple[float, ...] = ()
    missing: tuple[tuple[int, str], ...] = ()
    sandwich: bool = False
    kept: bool | None = None
    digits: float = 0.0
    slack: float = 0.0

    @property
    def converged(self) -> bool:
        """Whether the best model is a thousandth of a standard error from the maximum, or less.

        Where sites round their scores, a step is about :attr:`unsure` long at the maximum itself:
        the bound is then four times as much.
        """
        return self.decrement < max(TOL, (4 * self.unsure) ** 2)

    @property
    def unsure(self) -> float:
        """Standard errors by which rounded scores leave the model off the maximum (maths 14).

        The root of the expected square; 0 where sites do not round.
        """
        return float(np.sqrt(self.model.n_free * noise_of(self.digits)))

    def is_done(self, rounds: int | str) -> bool:
        """Say whether as many rounds have been answered as were asked for, or enough."""
        if rounds == "auto":
            return self.converged or self.rounds >= MOST_ROUNDS
        return self.rounds >= int(rounds)

    def is_unseen(self, rounds: int | str) -> bool:
        """Say whether that was the end, and nobody has looked at the last step (:func:`judged`)."""
        known = self.best is not None and not self.converged
        return known and self.is_done(rounds) and self.kept is None

    def warnings(self, rounds: int | str, apart: Sequence[str] = ()) -> tuple[Notice, ...]:
        """Return what has to be said about the end.

        Parameters
        ----------
        rounds : int or "auto"
            As asked for.
        apart : sequence of str
            Sites that are known to differ from the others.
        """
        if self.best is None or self.converged:
            return ()
        if rounds == "auto":
            names = f" ({', '.join(apart)})" if apart else ""
            facts = {"rounds": self.rounds, "status": self.status, "names": names}
            return (Warn.ROUNDS_ENDED(sites=tuple(apart), **facts),)
        return (Warn.STEP_TAKEN_BACK(rounds=self.rounds),) if self.kept is False else ()

    @property
    def penalty(self) -> Floats:
        """The matrix of the ridge in the parameters of `scaling`, (P, P)."""
        if self.pooled is None:
            raise InvalidInput(Error.NO_ROUND_YET)
        here = self.scaling.from_user(self.model)
        return _penalty(here, self.scaling, self.pooled, self.ridge)

    @property
    def status(self) -> Notice:
        """What happened."""
        if self.best is None:
            return Status.NO_ROUNDS()
        rounds = f"{self.rounds} refine round{'s' if self.rounds > 1 else ''}"
        if self.kept is False:
            return Status.STEP_TAKEN_BACK(rounds=rounds)
        if not np.isfinite(self.decrement):
            return Status.INDEFINITE(rounds=rounds)
        distance = np.sqrt(max(self.decrement, 0.0))
        if not self.converged:
            return Status.NOT_AT_MAXIMUM(rounds=rounds, distance=distance)
        gone = dict.fromkeys(s for _, s in self.missing if s not in self.best.log_likelihood)
        but = f" but those of {', '.join(gone)}" if gone else ""
        facts = {"sites": tuple(gone), "rounds": rounds, "distance": distance, "but": but}
        if self.unsure > _TELLING:
            return Status.AT_ROUNDED_MAXIMUM(unsure=self.unsure, **facts)
        return Status.AT_MAXIMUM(**facts)


def advance(
    state: Refinement, answers: Sequence[SiteInformation], expected: Sequence[str] = ()
) -> Refinement:
    """Return the rounds after one more has been answered.

    A model that is less likely than the best so far, at the sites that answered about both, is
    given up and a shorter step tried (a trust region, maths 14).

    Parameters
    ----------
    state : Refinement
    answers : sequence of SiteInformation
        About `state.model`; their order does not matter.
    expected : sequence of str
        Sites that were asked.
    """
    answers = sorted(answers, key=lambda a: a.site)
    here = state.scaling.from_user(state.model)
    found = Best(
        here.to_vector(),
        sum((a.information for a in answers[1:]), start=answers[0].information),
        {site: value for a in answers for site, value in a.log_likelihoods.items()},
        sum(a.n_samples for a in answers),
        *(_scatter(answers) if state.sandwich else ()),
    )
    pooled = state.pooled or pooled_scaling(answers)
    penalty = replace(state, pooled=pooled).penalty
    best, radius, trace = state.best, state.radius, state.trace
    coarse = [(a.n_samples, a.rounding) for a in answers if a.rounding is not None]
    state = replace(
        state,
        digits=float(np.sqrt(sum(n * r.digits**2 for n, r in coarse) / found.n_samples)),
        slack=max(state.slack, sum(r.log_likelihood for _, r in coarse)),
    )
    free = Free.of(here)
    blocks = free_predictors(here, free)
    if best is None:
        best = found
    else:
        before, step = _point(best, penalty, free), free.psi(found.theta - best.theta)
        gain = _gain(best, found.theta, found.log_likelihood, penalty)
        promise = float(before.score @ step - 0.5 * step @ before.information @ step)
        slack = _slack(state, best)
        taken = gain >= -slack
        if not taken or promise > 100 * slack:  # else rounding is all there is to see
            times = _times(gain, promise, taken)
            long = times * length(before.information, step, blocks)
            radius = max(radius, long) if taken and times > 1 else long
        best = found if taken else best
    if best is found:
        trace = (*trace, found.information.log_likelihood - _charge(found.theta, penalty))
    wide = _WIDE * np.sqrt(found.n_samples)
    step, decrement = bounded_step(_point(best, penalty, free), radius, wide, blocks)
    if radius == decrement == np.inf:
        radius = wide
    names = found.log_likelihood
    return replace(
        state,
        model=state.scaling.to_user(here.with_vector(best.theta + free.theta(step))).tidied(),
        rounds=state.rounds + 1,
        best=best,
        pooled=pooled,
        radius=radius,
        decrement=decrement,
        trace=trace,
        kept=None,
        missing=(
            *state.missing,
            *((state.rounds + 1, site) for site in expected if site not in names),
        ),
    )


def _times(gain: float, promise: float, taken: bool) -> float:
    """Return how many times as long as the last step the next may be (maths 14).

    What a quadratic misses grows as the cube of the step, and what it promises as the step.
    """
    missed = abs(promise - gain)
    times = np.sqrt(_MISSED * max(promise, 0.0) / max(missed, 1e-300))
    if not taken:
        times = min(times, _BACK) if np.isfinite(missed) else _LEAST
    return float(np.clip(times, _LEAST, _MOST))


def judged(state: Refinement, log_likelihood: Mapping[str, float]) -> Refinement:
    """Return the rounds with the last step taken back, if sites find it less likely.

    After a given number of rounds nobody has seen the last step; where the start was far off, it
    may be a bad one.

    Parameters
    ----------
    state : Refinement
        One round has been answered at least.
    log_likelihood : dict of float
        Of `state.model`, site by site.
    """
    if state.best is None:
        raise InvalidInput(Error.NO_ROUND_YET)
    here = state.scaling.from_user(state.model)
    gain = _gain(state.best, here.to_vector(), log_likelihood, state.penalty)
    if gain >= -_slack(state, state.best):
        return replace(state, kept=True)
    return replace(
        state, kept=False, model=state.scaling.to_user(here.with_vector(state.best.theta)).tidied()
    )


def _gain(best: Best, theta: Floats, log_likelihood: Mapping[str, float], penalty: Floats) -> float:
    """Return what the penalised log-likelihood gains, at the sites that answered about both."""
    both = sorted(set(best.log_likelihood) & set(log_likelihood))
    gain = sum(log_likelihood[site] - best.log_likelihood[site] for site in both)
    return gain - _charge(theta, penalty) + _charge(best.theta, penalty)


def _slack(state: Refinement, best: Best) -> float:
    """Return what rounding leaves of a log-likelihood: that of computers, and that of sites."""
    return state.slack + 1e-12 * (1 + abs(best.information.log_likelihood))


def _point(best: Best, penalty: Floats, free: Free) -> NewtonPoint:
    return NewtonPoint(
        0.0,
        free.score(best.information.score - penalty @ best.theta),
        free.matrix(best.information.matrix + penalty),
    )


def _charge(theta: Floats, penalty: Floats) -> float:
    return 0.5 * float(theta @ penalty @ theta)


def _scatter(answers: Sequence[SiteInformation]) -> tuple[Scatter | None, tuple[str, ...]]:
    """Return the scatter of all sites, if all have sent theirs; and those that have not."""
    sent = [a.scatter for a in answers if a.scatter is not None]
    if len(sent) < len(answers):
        return None, tuple(a.site for a in answers if a.scatter is None)
    return sum(sent[1:], start=sent[0]), ()


def _penalty(model: MoE, scaling: Scaling, pooled: Scaling, ridge: Ridge) -> Floats:
    """Return the penalty on features standardised by `pooled`, in parameters of `scaling`.

    The map from one standardisation to another is linear in the coefficients.
    """
    L = change_of_scale(model, scaling, pooled)
    return L.T @ ridge.matrix(model) @ L
