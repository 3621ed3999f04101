"""The MM algorithm of the reduction: send every source to its nearest target, refit the targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otmoe.aggregation.sources import Look, Sources, look
from otmoe.experts import Experts
from otmoe.numerics import Floats

_EXACT = 1e-12  # nats
_LOST = 1e-12  # share of all mass below which a target counts as empty


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
    max_iter : int
    tol : float
        Relative to R_c. What is exact to 1e-12 nats is not improved further.
    """
    n = len(sources)
    floor = sources.experts.smallest_dispersion
    floor = floor if np.isfinite(floor) else 0.0

    def at(experts: Experts) -> tuple[Look, float]:
        seen = look(sources, experts, labels)
        return seen, float(seen.cost.sum()) / n

    here, value = at(experts)
    trace = [value]
    converged = value <= _EXACT
    while len(trace) <= max_iter and not converged:
        candidate = experts.step(here.statistics, floor=floor)
        if labels is None:
            candidate = _reseeded(candidate, here, sources, _EXACT * n)
        there, candidate_value = at(candidate)
        for _ in range(12):
            if candidate_value <= value:
                break
            candidate = _halfway(experts, candidate)
            there, candidate_value = at(candidate)
        gain = value - candidate_value
        converged = not gain > max(tol * candidate_value, _EXACT)
        if gain >= 0:  # else rounding is all that is left
            experts, here, value = candidate, there, candidate_value
            trace.append(value)
    return Descent(experts, tuple(trace), here.statistics.weight / n, converged)


def _halfway(a: Experts, b: Experts) -> Experts:
    return a.with_vector(0.5 * (a.to_vector() + b.to_vector()))


def _reseeded(experts: Experts, here: Look, sources: Sources, least: float) -> Experts:
    """Put targets without mass on the sources that cost most, if those cost more than `least`."""
    mass = here.statistics.weight
    empty = np.flatnonzero(mass <= _LOST * mass.sum())
    if not len(empty):
        return experts
    dearest = np.argsort(-here.cost, kind="stable")[: len(empty)]
    dearest = dearest[here.cost[dearest] > least]
    empty = empty[: len(dearest)]
    keep = np.delete(np.arange(experts.n_experts), empty)
    order = np.argsort(np.concatenate([keep, empty]))
    parts = [experts.take(keep), sources.experts.take(dearest)]
    return type(experts).concat(parts).take(order)
