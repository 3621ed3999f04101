"""What one EM iteration needs of the rows: sums that add up over blocks and shards (maths 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from otmoe.arrays.numerics import (
    block_sum,
    namespace,
    scaled,
    weighted_gram,
    weighted_sum,
)
from otmoe.likelihood.information import Information, observed_information
from otmoe.likelihood.rows import Block, Blocks
from otmoe.model.experts import FitStatistics
from otmoe.model.gate import GateStatistics
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
VARIANCE_FLOOR = 1e-6
"""Smallest variance of an expert, as a fraction of that of y."""


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


def e_step(model: MoE, rows: Blocks) -> Statistics:
    """Return the log-likelihood and the M-step's statistics at a model, in one pass."""
    return block_sum(lambda s: _block_statistics(model, rows.block(s)), rows.slices(), rows.pool)


def _block_statistics(model: MoE, block: Block) -> Statistics:
    X, weight = block.X, block.weight
    xp = namespace(X)
    gate, experts = model.gate, model.experts
    response = experts.observe(block.y)
    posterior = model.posterior(X, response, block.offset, block.copies)
    r = scaled(posterior.responsibilities, weight)
    linear, quadratic, constant = experts.fit_weights(posterior.eta, response, r)
    pairs = block.gathered(gate.pair_weights(posterior.gate_prob, weight))
    residual = block.gathered(r - scaled(posterior.gate_prob, weight))
    linear, quadratic = block.gathered(linear), block.gathered(quadratic)
    if gate.columns is None:  # one sweep over x_i x_j for experts and gate together
        split = quadratic.shape[1]
        grams = weighted_gram(X, xp.concat([quadratic.T, pairs.T]).T)
        gram, gate_gram = grams[:split, :, :], grams[split:, :, :]
        split = linear.shape[1]
        sums = weighted_sum(X, xp.concat([linear.T, residual.T]).T)
        experts_sum, gate_sum = sums[:split, :], sums[split:, :]
    else:
        gram, gate_gram = weighted_gram(X, quadratic), weighted_gram(gate.design(X), pairs)
        experts_sum, gate_sum = weighted_sum(X, linear), weighted_sum(gate.design(X), residual)
    return Statistics(
        float(xp.sum(scaled(posterior.log_density, weight))),
        gate.assemble(gate_sum, gate_gram),
        experts.assemble(xp.sum(r, axis=0), experts_sum, gram, xp.sum(constant, axis=0)),
    )


def m_step(model: MoE, statistics: Statistics, ridge: Ridge) -> MoE:
    """Return the model after one step of the experts and one Newton step of the gate."""
    experts, bounds = model.experts, {"floor": VARIANCE_FLOOR, "ridge": ridge.held}
    if model.structure is None:
        experts = experts.step(statistics.experts, **bounds)
    else:
        experts = model.structure.step(experts, statistics.experts, **bounds)
    return replace(model, gate=model.gate.step(statistics.gate, ridge.gate), experts=experts)


def on_floor(model: MoE) -> bool:
    """Say whether a variance stands at its floor; counts have no such end, only the Poisson's."""
    if model.experts.discrete:
        return False
    return model.experts.smallest_dispersion <= VARIANCE_FLOOR * (1 + 1e-6)


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
    """Passes over rows that come block by block.

    Attributes
    ----------
    rows : Blocks
    """

    rows: Blocks

    def statistics(self, model: MoE) -> Statistics:
        """Return what an EM iteration needs, at a standardised model."""
        return e_step(model, self.rows)

    def information(self, model: MoE, *, matrix: bool = True) -> Information:
        """Return log-likelihood, score and (if asked for) information there."""
        return observed_information(model, self.rows, matrix=matrix)
