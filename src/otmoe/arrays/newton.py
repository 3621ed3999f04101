"""Linear algebra on parameters: systems that may be singular, and one safeguarded Newton method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from otmoe.arrays.numerics import Floats, kernels

# Half and twice of it are the same (`python -m benchmarks constants`): a step squares what is left.
_NEAR = 0.01  # decrement at which the information hardly changes any more
_NOTHING = 1e-290  # information that counts as none: its reciprocal might overflow
_FLAT = 1e-4  # least curvature that is believed where others are negative
_SMALL = 48  # unknowns up to which Cholesky's method as it stands beats a call of LAPACK
_EXACT = 1e-16  # decrement at which another step changes nothing that can be seen

RANK_TOLERANCE = 1e-11
"""Eigenvalues below this fraction of the largest count as zero."""


def solve_psd(H: Floats, g: Floats) -> Floats:
    """Solve ``H d = g`` for symmetric positive semidefinite H; minimum norm where H is singular.

    Parameters
    ----------
    H : ndarray of shape (..., P, P)
    g : ndarray of shape (..., P)

    Returns
    -------
    ndarray of shape (..., P)

    Examples
    --------
    >>> solve_psd(np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([2.0, 2.0]))
    array([1., 1.])
    """
    if H.ndim > 2:
        return _solve_each(H, g)
    largest = np.max(np.diagonal(H), initial=0.0)
    if largest < _NOTHING and np.max(np.abs(H), initial=0.0) < _NOTHING:
        return np.zeros_like(g)
    solution = _solve_definite(H, g, RANK_TOLERANCE * largest)
    if solution is not None:
        return solution
    values, vectors = np.linalg.eigh(H)
    keep = values > RANK_TOLERANCE * np.max(values, initial=0.0)
    inverse = np.where(keep, 1 / np.where(keep, values, 1.0), 0.0)
    return vectors @ (inverse * (vectors.T @ g))


def _solve_each(H: Floats, g: Floats) -> Floats:
    """Do what :func:`solve_psd` does for stacked systems; small ones by one call of a kernel."""
    if kernels is None or H.ndim > 3 or H.shape[-1] > _SMALL:
        return np.stack([solve_psd(*pair) for pair in zip(H, g, strict=True)])
    out, solved = np.empty(g.shape), np.empty(len(g), dtype=bool)
    kernels.solve_definite(H, g, RANK_TOLERANCE, _NOTHING, out, solved)
    for k in np.flatnonzero(~solved):
        out[k] = solve_psd(H[k], g[k])
    return out


def _solve_definite(H: Floats, g: Floats, least: float) -> Floats | None:
    """Solve ``H d = g`` by Cholesky's method; None unless every squared pivot exceeds `least`."""
    if not len(H):
        return g
    factor, failed = linalg.lapack.dpotrf(H, lower=True)
    if failed or np.min(np.diagonal(factor)) ** 2 <= least:
        return None
    return np.asarray(linalg.lapack.dpotrs(factor, g, lower=True)[0])


@dataclass(frozen=True)
class NewtonPoint:
    """An objective to be maximised, at one point.

    Attributes
    ----------
    value : float
    score : ndarray of shape (P,)
        Gradient.
    information : ndarray of shape (P, P)
        Minus the Hessian, or an approximation of it.
    detail : object
        Whatever else the caller wants to find in the result.
    """

    value: float
    score: Floats
    information: Floats
    detail: Any = None

    @cached_property
    def convex(self) -> Convex:
        """The quadratic model of minus the objective, its negative eigenvalues by their size."""
        return _convex(self.score, self.information)


class Convex(NamedTuple):
    """A quadratic ``d' H d / 2 - b' d`` with H positive definite, its parameters in `units`."""

    units: Floats  # (P,)
    H: Floats  # (P, P)
    b: Floats  # (P,)
    d: Floats  # (P,), its minimum
    decrement: float  # infinite where the information is not positive definite


@dataclass(frozen=True)
class NewtonResult:
    """Where :func:`newton` stopped and why.

    Attributes
    ----------
    theta : ndarray of shape (P,)
    point : NewtonPoint
        The objective there.
    decrement : float
        ``g' I^-1 g``: the squared distance to the maximum, in standard errors, where the objective
        is a log-likelihood; infinite while the information is not positive definite.
    trace : tuple of float
        The objective at the start and after every accepted step.
    n_evaluations : int
    converged : bool
    """

    theta: Floats
    point: NewtonPoint
    decrement: float
    trace: tuple[float, ...]
    n_evaluations: int
    converged: bool


def newton(
    evaluate: Callable[[Floats], NewtonPoint],
    start: Floats,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
    report: Callable[[int, float], None] | None = None,
    glance: Callable[[Floats, NewtonPoint], NewtonPoint] | None = None,
    known: Floats | None = None,
) -> NewtonResult:
    """Maximise by Newton's method with Levenberg-Marquardt damping.

    With score g and information I at theta, a step d solves ``(I + mu |diag I|) d = g``. It is
    taken if the objective does not fall; otherwise mu grows eightfold and the step is tried again.
    The iteration ends one step after the decrement ``g' I^-1 g`` has fallen below `tol` (that step
    squares what is left), or when no step can raise the objective any more.

    Parameters
    ----------
    evaluate : callable, theta -> NewtonPoint
    start : ndarray of shape (P,)
    tol : float
        Bound on the decrement, in units of the objective.
    max_iter : int
        Bound on the number of evaluations after the first.
    report : callable, optional
        Called as report(number of accepted steps, objective).
    glance : callable, (theta, NewtonPoint) -> NewtonPoint, optional
        A cheaper `evaluate` that takes the information from a point close by. It serves once the
        decrement is small, for as long as every step makes it ten thousand times smaller, and says
        whether a step is taken where the information is not positive definite.
    known : ndarray of shape (P, P), optional
        About what the information is near the start, such as that of a sample: `glance` goes with
        it, and with what steps tell of it, for as long as every step makes the decrement a few
        times smaller, until that is small.

    Returns
    -------
    NewtonResult
    """

    def near(theta: Floats, point: NewtonPoint) -> NewtonPoint:
        return evaluate(theta) if glance is None else glance(theta, point)

    theta = np.asarray(start, dtype=np.float64)
    foreign = known is not None and glance is not None
    point = evaluate(theta) if known is None else near(theta, NewtonPoint(0.0, theta, known))
    trace = [point.value]
    n_evaluations = 0
    damping = 0.0
    borrowed, before = False, np.inf  # is the information that of a point close by?
    while True:
        # 1) the step at the present damping, and the undamped decrement
        step, decrement, damping = damped_step(point, damping)
        if foreign and not 0.5 * _NEAR < decrement < 0.3 * before:
            point, foreign, damping, before = evaluate(theta), False, 0.0, np.inf
            continue
        if borrowed and decrement >= max(tol, 1e-4 * before):
            point, borrowed = evaluate(theta), False
            n_evaluations += 1
            continue
        before = decrement
        # 2) stop where the quadratic model promises less than tol, one exact step further on
        if decrement < tol:
            more = decrement > _EXACT and n_evaluations < max_iter
            last = near(theta + step, point) if more else point
            if more and last.value >= point.value - 1e-12 * (1.0 + abs(point.value)):
                theta, point = theta + step, last
                trace.append(point.value)
                decrement = damped_step(point, 0.0)[1]
                if report is not None:
                    report(len(trace) - 1, point.value)
            return NewtonResult(theta, point, decrement, tuple(trace), n_evaluations + 1, True)
        if n_evaluations >= max_iter or not np.all(np.isfinite(step)):
            return NewtonResult(theta, point, decrement, tuple(trace), n_evaluations, False)
        # 3) try it; 4) take it and trust the model more, or damp
        close = decrement < _NEAR
        doubtful = glance is not None and np.isinf(decrement)  # half of such steps are refused
        cheap = close or foreign or doubtful
        candidate = near(theta + step, point) if cheap else evaluate(theta + step)
        n_evaluations += 1
        if candidate.value >= point.value:
            if doubtful:
                candidate = evaluate(theta + step)
            if foreign:
                candidate = learned(candidate, step, point)
            theta, point = theta + step, candidate
            borrowed = close and glance is not None
            trace.append(point.value)
            if report is not None:
                report(len(trace) - 1, point.value)
            damping = 0.0 if damping < 1e-4 else damping / 8
        elif point.score @ step < 1e-11 * (1.0 + abs(point.value)):
            # The promised gain is lost in the rounding of the objective: this is the maximum.
            done = decrement < 1e3 * tol
            return NewtonResult(theta, point, decrement, tuple(trace), n_evaluations, done)
        elif foreign:
            point, foreign, before = evaluate(theta), False, np.inf
        else:
            damping = max(8 * damping, 1e-3)


def learned(point: NewtonPoint, step: Floats, before: NewtonPoint) -> NewtonPoint:
    """Return a point whose information explains how the score changed in the step that led there.

    That is the update of Broyden, Fletcher, Goldfarb and Shanno; it stays positive definite.
    """
    change, expected = before.score - point.score, point.information @ step
    if not (change @ step > 0 and expected @ step > 0):  # then no such information does
        return point
    information = (
        point.information
        - np.outer(expected, expected / (expected @ step))
        + np.outer(change, change / (change @ step))
    )
    return replace(point, information=information)


def damped_step(point: NewtonPoint, damping: float) -> tuple[Floats, float, float]:
    """Return the step, the undamped decrement and the damping.

    Where the information is not positive definite, its eigenvalues count by their size: the step
    leaves a saddle or a minimum as fast as it approaches a maximum.
    """
    units, H, b, d, decrement = point.convex
    if damping:
        d = solve_psd(H + damping * np.eye(len(H)), b)
    return units * d, decrement, damping


def _convex(score: Floats, information: Floats) -> Convex:
    """Return a quadratic model that has a minimum, on a scale on which H has a unit diagonal.

    Only eigenvalues that are negative or next to 0 are changed, so that only they are sought.
    """
    units = units_of(information)
    H, b = information * units[:, None] * units, score * units
    dead = RANK_TOLERANCE * len(H)
    d = _solve_definite(H, b, dead)
    if d is not None:
        return Convex(units, H, b, d, float(b @ d))
    values, vectors = linalg.eigh(H, subset_by_value=(-np.inf, _FLAT), driver="evr")
    unseen = np.abs(values) <= dead  # no step is made in these directions
    concave = bool(np.any(values < -dead))
    sizes = np.where(unseen, 1.0, np.maximum(np.abs(values), _FLAT) if concave else values)
    H = H + (vectors * (sizes - values)) @ vectors.T
    b = b - vectors[:, unseen] @ (vectors[:, unseen].T @ b)
    d = solve_psd(H, b)
    return Convex(units, H, b, d, np.inf if concave else float(b @ d))


def units_of(information: Floats) -> Floats:
    """Return the standard errors of the single parameters, (P,)."""
    diagonal = np.abs(np.diagonal(information))
    least = 1e-14 * np.max(diagonal, initial=1e-300)  # no leaps where there is hardly curvature
    return np.asarray(1 / np.sqrt(np.maximum(diagonal, least)))
