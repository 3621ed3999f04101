"""The iterations of maximum likelihood: EM, one pass over the rows each, then Newton (maths 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import NewtonPoint, newton
from otmoe.arrays.numerics import (
    Floats,
    block_sum,
    namespace,
    scaled,
    weighted_gram,
    weighted_sum,
)
from otmoe.likelihood.information import Information, observed_information
from otmoe.likelihood.rows import Block, Rows
from otmoe.model.experts import FitStatistics
from otmoe.model.gate import GateStatistics
from otmoe.model.mixture import MoE

Report = Callable[[int, float], None]
"""Called as report(iteration, penalised log-likelihood)."""

VARIANCE_FLOOR = 1e-6
"""Smallest variance of an expert, as a fraction of that of y."""

EXPERT_RIDGE = 1e-5
"""Ridge on the coefficients of experts without a variance, on standardised X.

It is taken from the summed log-likelihood and moves nothing that the rows determine, but keeps
finite what separable rows would send to infinity.
"""


_NEWTON_LIMIT = 1500  # parameters above which the information is too large to factor each step


@dataclass(frozen=True)
class Statistics:
    """All that an EM iteration needs of the rows; sums over shards give the pooled iteration.

    Attributes
    ----------
    log_likelihood : float
    gate : GateStatistics
    experts : FitStatistics
    """

    log_likelihood: float
    gate: GateStatistics
    experts: FitStatistics

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            self.log_likelihood + other.log_likelihood,
            self.gate + other.gate,
            self.experts + other.experts,
        )


def e_step(model: MoE, rows: Rows) -> Statistics:
    """Return the log-likelihood and the M-step's statistics at a model, in one pass."""
    return block_sum(lambda s: _block_statistics(model, rows.block(s)), rows.slices(), rows.pool)


def _block_statistics(model: MoE, block: Block) -> Statistics:
    X, weight = block.X, block.weight
    xp = namespace(X)
    gate, experts = model.gate, model.experts
    response = experts.observe(block.y)
    posterior = model.posterior(X, response, block.offset)
    r = scaled(posterior.responsibilities, weight)
    linear, quadratic, constant = experts.fit_weights(posterior.eta, response, r)
    pairs = gate.pair_weights(posterior.gate_prob, weight)
    residual = r - scaled(posterior.gate_prob, weight)
    if gate.columns is None:  # one sweep over x_i x_j for experts and gate together
        split = quadratic.shape[1]
        grams = weighted_gram(X, xp.concat([quadratic.T, pairs.T]).T)
        gram, gate_gram = grams[:split, :, :], grams[split:, :, :]
    else:
        gram, gate_gram = weighted_gram(X, quadratic), weighted_gram(gate.design(X), pairs)
    return Statistics(
        float(xp.sum(scaled(posterior.log_density, weight))),
        gate.assemble(weighted_sum(gate.design(X), residual), gate_gram),
        experts.assemble(
            xp.sum(r, axis=0), weighted_sum(X, linear), gram, xp.sum(constant, axis=0)
        ),
    )


def m_step(model: MoE, statistics: Statistics, alpha: float) -> MoE:
    """Return the model after one step of the experts and one Newton step of the gate."""
    return MoE(
        model.gate.step(statistics.gate, alpha),
        model.experts.step(statistics.experts, floor=VARIANCE_FLOOR, ridge=EXPERT_RIDGE),
    )


def penalty_matrix(model: MoE, alpha: float) -> Floats:
    """Return the matrix P of the penalty theta' P theta / 2 on the free parameters, (P, P)."""
    return linalg.block_diag(
        model.gate.penalty_matrix(alpha), model.experts.penalty_matrix(EXPERT_RIDGE)
    )


def on_floor(model: MoE) -> bool:
    """Say whether a variance stands at its floor."""
    return model.experts.smallest_dispersion <= VARIANCE_FLOOR * (1 + 1e-6)


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
    """

    model: MoE
    log_likelihood: float
    mass: Floats
    trace: tuple[float, ...]
    converged: bool
    decrement: float = np.nan

    @property
    def n_iter(self) -> int:
        """Number of accepted iterations."""
        return len(self.trace) - 1

    def then(self, later: Run) -> Run:
        """Return this run and one that set out from where it ended, as one."""
        return replace(later, trace=self.trace + later.trace[1:])


class Passes(Protocol):
    """Sums over all rows, wherever they are; each call is one pass over them."""

    def statistics(self, model: MoE) -> Statistics:
        """Return what an EM iteration needs, at a standardised model."""
        ...

    def information(self, model: MoE, *, matrix: bool = True) -> Information:
        """Return log-likelihood, score and (if asked for) information there."""
        ...


@dataclass(frozen=True)
class RowPasses:
    """Passes over rows in memory.

    Attributes
    ----------
    rows : Rows
    """

    rows: Rows

    def statistics(self, model: MoE) -> Statistics:
        """Return what an EM iteration needs, at a standardised model."""
        return e_step(model, self.rows)

    def information(self, model: MoE, *, matrix: bool = True) -> Information:
        """Return log-likelihood, score and (if asked for) information there."""
        return observed_information(model, self.rows, matrix=matrix)


def climb(
    passes: Passes,
    model: MoE,
    *,
    alpha: float,
    max_iter: int,
    tol: float = 0.0,
    report: Report | None = None,
) -> Run:
    """Run EM until an iteration gains less than `tol`.

    The pass over the rows that judges a step also collects the statistics of the next one. A step
    that lowers the penalised log-likelihood (the gate's Newton step may overshoot) is halved.
    """
    penalty = penalty_matrix(model, alpha)

    def look(model: MoE) -> tuple[Statistics, float]:
        statistics = passes.statistics(model)
        theta = model.to_vector()
        return statistics, statistics.log_likelihood - 0.5 * float(theta @ penalty @ theta)

    statistics, value = look(model)
    trace = [value]
    converged = False
    while len(trace) <= max_iter and not converged:
        candidate = m_step(model, statistics, alpha)
        found, candidate_value = look(candidate)
        for _ in range(10):
            if candidate_value >= value:
                break
            candidate = midpoint(model, candidate)
            found, candidate_value = look(candidate)
        gain = candidate_value - value
        converged = not gain >= tol
        if gain >= 0:  # else rounding is all that is left
            model, statistics, value = candidate, found, candidate_value
            trace.append(value)
            if report is not None:
                report(len(trace) - 1, value)
    mass = statistics.experts.weight
    return Run(model, statistics.log_likelihood, mass, tuple(trace), converged)


def polish(
    passes: Passes,
    model: MoE,
    *,
    alpha: float,
    max_iter: int,
    tol: float,
    report: Report | None = None,
) -> Run:
    """Maximise the penalised log-likelihood by damped Newton steps, one pass over the rows each."""
    penalty = penalty_matrix(model, alpha)
    floor = min(VARIANCE_FLOOR, model.experts.smallest_dispersion) * (1 - 1e-9)

    def evaluate(theta: Floats, near: NewtonPoint | None = None) -> NewtonPoint:
        at = model.with_vector(theta)
        if not at.experts.smallest_dispersion >= floor:
            return NewtonPoint(-np.inf, theta, penalty)
        found = passes.information(at, matrix=near is None)
        return NewtonPoint(
            found.log_likelihood - 0.5 * float(theta @ penalty @ theta),
            found.score - penalty @ theta,
            found.matrix + penalty if near is None else near.information,
            found,
        )

    end = newton(
        evaluate, model.to_vector(), tol=tol, max_iter=max_iter, report=report, glance=evaluate
    )
    at_end: Information = end.point.detail
    return Run(
        model.with_vector(end.theta),
        at_end.log_likelihood,
        at_end.mass,
        end.trace,
        end.converged,
        end.decrement,
    )
