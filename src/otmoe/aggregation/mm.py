"""The MM algorithm of the reduction: send every source to its nearest target, refit the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otmoe.aggregation.sources import Assignment, Sources, assign
from otmoe.arrays.numerics import FAR, Floats
from otmoe.model.experts import Experts
from otmoe.model.structure import Structure

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_LEAP = 5.0  # how far a Newton step may move an expert, in predictors at standardised x

EMPTY = 1e-12
"""Share of all mass below which a target counts as empty: what rounding leaves of none."""

_EXACT = 1e-12  # nats: what rounding leaves of R_c where all experts are the same
_ROUNDING = 1e-13  # rise of R_c, relative to 1 + R_c, at which the last step is taken all the same
_SLOWER = 0.01  # of a tolerance, where a step of coefficients and dispersion is not quite Newton's
_STUCK = 1e-6  # the same after all halvings, beyond which no step descends


@dataclass(frozen=True)
class Descent:
    """Iterations of MM, and where they ended.

    Attributes
    ----------
    experts : Experts
        The targets, on the standardised scale.
    trace : tuple of float
        R_c at the start and after every iteration; it never rises.
    mass : ndarray of shape (K,)
        Mean mass of each target.
    converged : bool
        The last step gained less than the tolerance; False also where no step could be found.
    """

    experts: Experts
    trace: tuple[float, ...]
    mass: Floats
    converged: bool

    @property
    def n_iter(self) -> int:
        """Number of accepted iterations."""
        return len(self.trace) - 1


def descend(
    sources: Sources,
    experts: Experts,
    labels: Floats | None = None,
    *,
    structure: Structure | None = None,
    max_iter: int = 200,
    tol: float = 1e-7,
) -> Descent:
    """Minimise R_c over the targets until an iteration gains less than `tol` (maths 11).

    With the plan fixed, R_c is majorised by a weighted fit of each target to what it receives: one
    step solves it for Gaussian experts, and one Newton step, halved where it overshoots, improves
    it for the others. A target that receives nothing is put where it saves most: on the source with
    the largest mass times cost.

    Parameters
    ----------
    sources : Sources
    experts : Experts
        Where to begin, on the standardised scale. Directions that the support does not span stay.
    labels : ndarray of int of shape (L,), optional
        Send source l to target ``labels[l]`` at every point instead of to the nearest.
    structure : Structure, optional
        Of the targets, on the standardised scale; those that begin without it are refitted first.
    max_iter : int
    tol : float
        Relative to R_c. What is exact to 1e-12 nats is not improved further.
    """
    n = len(sources)
    floor = sources.experts.smallest_dispersion
    floor = floor if np.isfinite(floor) else 0.0
    tol = tol if experts.by_moments else _SLOWER * tol

    def at(experts: Experts) -> tuple[Assignment, float]:
        seen = assign(sources, experts, labels)
        return seen, max(float(seen.cost.sum()) / n, 0.0)  # rounding may leave -1e-17

    def stepped(experts: Experts, seen: Assignment) -> Experts:
        if structure is None:
            return _no_leap(experts, experts.step(seen.statistics, floor=floor))
        whole = structure.step(experts, seen.statistics, floor=floor)
        return _no_leap(experts, whole, together=True)

    here, value = at(experts)
    if structure is not None:
        experts = structure.projected(stepped(experts, here))
        here, value = at(experts)
    trace = [value]
    converged = value <= _EXACT
    while len(trace) <= max_iter and not converged:
        candidate = stepped(experts, here)
        if labels is None:
            candidate = _reseeded(candidate, here, sources, _EXACT * n)
            if structure is not None:
                candidate = structure.projected(candidate)
        there, candidate_value = at(candidate)
        # R_c is flat at its minimum: a step whose gain is lost in rounding still doubles the right
        # digits of the parameters, so that they do not depend on the rounding.
        slack = _ROUNDING * (1 + value)
        for _ in range(12):
            if candidate_value <= value + slack:
                break
            candidate = _halfway(experts, candidate)
            there, candidate_value = at(candidate)
        gain = value - candidate_value
        if gain >= -slack:
            experts, here, value = candidate, there, min(value, candidate_value)
            trace.append(value)
        if not gain > max(tol * value, _EXACT):
            converged = gain > -_STUCK * (1 + value)
            break
    return Descent(experts, tuple(trace), here.statistics.weight / n, converged)


def _halfway(a: Experts, b: Experts) -> Experts:
    return a.with_vector(0.5 * (a.to_vector() + b.to_vector()))


def _no_leap(a: Experts, b: Experts, *, together: bool = False) -> Experts:
    """Shorten Newton steps from where there is hardly curvature, expert by expert or together.

    From log-odds of 40 the undamped step is of order 1e17, and one such expert would hold up all.
    """
    if a.n_constant:  # not a Newton step, but the exact answer
        return b
    move = np.clip(b.coef - a.coef, -FAR, FAR)
    length = np.sqrt(np.sum(move**2, axis=tuple(range(1, move.ndim)), keepdims=True))
    length = np.max(length, keepdims=True) if together else length
    return replace(a, coef=a.coef + move * (_LEAP / np.maximum(length, _LEAP)))


def _reseeded(experts: Experts, here: Assignment, sources: Sources, least: float) -> Experts:
    """Put targets without mass on the sources that cost most, if those cost more than `least`."""
    mass = here.statistics.weight
    empty = np.flatnonzero(mass <= EMPTY * mass.sum())
    if not len(empty):
        return experts
    dearest = np.argsort(-here.cost, kind="stable")[: len(empty)]
    dearest = dearest[here.cost[dearest] > least]
    empty = empty[: len(dearest)]
    keep = np.delete(np.arange(experts.n_experts), empty)
    order = np.argsort(np.concatenate([keep, empty]))
    parts = [experts.take(keep), sources.experts.take(dearest)]
    return type(experts).concat(parts).take(order)
