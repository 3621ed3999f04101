"""Iterations to a maximum: EM, one pass over the rows each, then Newton's method (maths 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otmoe.arrays.newton import NewtonPoint, newton
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.information import Information
from otmoe.likelihood.statistics import (
    VARIANCE_FLOOR,
    Passes,
    Statistics,
    m_step,
    on_floor,
)
from otmoe.model.free import Free
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

Report = Callable[[int, float], None]
"""Called as report(iteration, penalised log-likelihood)."""

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
NEGLIGIBLE = 0.1
"""Nats on which no ranking of starts depends."""

_NEWTON_LIMIT = 1500  # parameters above which the information is too large to factor each step


def newton_serves(model: MoE) -> bool:
    """Say whether Newton's method can finish: no variance at its floor, not too many parameters."""
    return model.n_parameters <= _NEWTON_LIMIT and not on_floor(model)


def midpoint(a: MoE, b: MoE) -> MoE:
    """Return the model halfway between two in their free parameters."""
    return a.with_vector(0.5 * (a.to_vector() + b.to_vector()))


@dataclass(frozen=True)
class Run:
    """Iterations on standardised rows, and where they ended.

    Attributes
    ----------
    model : MoE
    log_likelihood : float
        Unpenalised, at `model`.
    mass : ndarray of shape (K,)
        Summed responsibilities there.
    trace : tuple of float
        Penalised log-likelihood at the start and after every accepted iteration; it never falls.
    converged : bool
    decrement : float
        Squared distance to the maximum in standard errors; NaN where it was not measured.
    information : Information, optional
        At `model`, unpenalised; its matrix is that of the last step, a tenth of a standard error
        away at most. None where the run did not end in Newton steps.
    """

    model: MoE
    log_likelihood: float
    mass: Floats
    trace: tuple[float, ...]
    converged: bool
    decrement: float = np.nan
    information: Information | None = field(default=None, repr=False)

    @property
    def n_iter(self) -> int:
        """Number of accepted iterations."""
        return len(self.trace) - 1

    def then(self, later: Run) -> Run:
        """Return this run and one that set out from where it ended, as one."""
        return replace(later, trace=self.trace + later.trace[1:])


def run_em(
    passes: Passes,
    model: MoE,
    *,
    ridge: Ridge,
    max_iter: int,
    tol: float = 0.0,
    report: Report | None = None,
) -> Run:
    """Run EM until an iteration gains less than `tol`.

    The pass over the rows that judges a step also collects the statistics of the next one. A step
    that lowers the penalised log-likelihood (the gate's Newton step may overshoot) is halved.
    """
    penalty = ridge.matrix(model)

    def at(model: MoE) -> tuple[Statistics, float]:
        statistics = passes.statistics(model)
        theta = model.to_vector()
        return statistics, statistics.log_likelihood - 0.5 * float(theta @ penalty @ theta)

    statistics, value = at(model)
    trace = [value]
    converged = False
    while len(trace) <= max_iter and not converged:
        candidate = m_step(model, statistics, ridge)
        found, candidate_value = at(candidate)
        for _ in range(10):
            if candidate_value >= value:
                break
            candidate = midpoint(model, candidate)
            found, candidate_value = at(candidate)
        gain = candidate_value - value
        converged = not gain >= tol
        if gain >= 0:  # else rounding is all that is left
            model, statistics, value = candidate, found, candidate_value
            trace.append(value)
            if report is not None:
                report(len(trace) - 1, value)
    mass = statistics.experts.weight
    return Run(model, statistics.log_likelihood, mass, tuple(trace), converged)


def run_newton(
    passes: Passes,
    model: MoE,
    *,
    ridge: Ridge,
    max_iter: int,
    tol: float,
    report: Report | None = None,
    known: Floats | Information | None = None,
) -> Run:
    """Maximise the penalised log-likelihood by damped Newton steps, one pass over the rows each.

    Where the information is about `known`, first steps need the score alone: a fifth of a pass. It
    may be that of the start itself, with the score there, which saves a pass.
    Under a structure, theta = C psi, steps are in psi (maths 21).
    """
    penalty, free = ridge.matrix(model), Free.of(model)
    floor = min(VARIANCE_FLOOR, model.experts.smallest_dispersion) * (1 - 1e-9)
    floor = 0.0 if model.experts.discrete else floor
    matrix = known.matrix if isinstance(known, Information) else known

    def evaluate(psi: Floats, near: NewtonPoint | None = None) -> NewtonPoint:
        theta = free.point(psi)
        with np.errstate(over="ignore"):  # a variance that overflows is refused
            at = model.with_vector(theta)
        if not (at.experts.smallest_dispersion >= floor and np.all(np.isfinite(at.to_vector()))):
            return NewtonPoint(-np.inf, psi, free.matrix(penalty))
        first = near is not None and near.detail is None
        if first and isinstance(known, Information):
            found = known
        else:
            found = passes.information(at, matrix=near is None)
        if near is not None:  # that of a point close by, or what is known
            borrowed: Any = matrix if first else near.detail.matrix
            found = replace(found, matrix=borrowed)
        return NewtonPoint(
            found.log_likelihood - 0.5 * float(theta @ penalty @ theta),
            free.score(found.score - penalty @ theta),
            free.matrix(found.matrix + penalty) if near is None else near.information,
            found,
        )

    end = newton(
        evaluate,
        free.psi(model.to_vector()),
        tol=tol,
        max_iter=max_iter,
        report=report,
        glance=evaluate,
        known=None if matrix is None else free.matrix(matrix + penalty),
    )
    at_end: Information = end.point.detail
    return Run(
        model.with_vector(free.point(end.theta)),
        at_end.log_likelihood,
        at_end.mass,
        end.trace,
        end.converged,
        end.decrement,
        at_end,
    )
