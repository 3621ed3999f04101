"""What one EM iteration needs of the rows: sums that add up over blocks and shards (maths 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from otmoe.arrays.numerics import (
    Array,
    block_sum,
    namespace,
    scaled,
    weighted_gram,
    weighted_sum,
    weighted_sums,
)
from otmoe.likelihood import fused
from otmoe.likelihood.information import Information, observed_information
from otmoe.likelihood.rows import Block, Blocks
from otmoe.model.experts import Experts, FitStatistics
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
    found = fused.fit_sums(model, block)
    if found is None:
        found = _summed(model, block.X, _weights(model, block))
    return Statistics(
        found.log_likelihood,
        model.gate.assemble(found.gate_linear, found.gate_gram),
        model.experts.assemble(found.mass, found.linear, found.gram, found.constant),
    )


class _Weights(NamedTuple):
    """What an EM iteration sums up, as the families have it."""

    log_likelihood: Array
    mass: Array
    constant: Array
    linear: Array  # (n, J): of the experts, then of the gate
    quadratic: Array


def _summed(model: MoE, X: Array, weights: _Weights) -> fused.Sums:
    """Return sums over the rows, given their weights."""
    gate, L, Q = model.gate, _count(model.experts, 1), _count(model.experts, 2)
    if gate.columns is None:  # one sweep over x_i x_j for experts and gate together
        grams, linear = weighted_sums(X, weights.quadratic, weights.linear)
        parts = linear[:L], linear[L:], grams[:Q], grams[Q:]
    else:
        Z = gate.design(X)
        parts = (
            weighted_sum(X, weights.linear[:, :L]),
            weighted_sum(Z, weights.linear[:, L:]),
            weighted_gram(X, weights.quadratic[:, :Q]),
            weighted_gram(Z, weights.quadratic[:, Q:]),
        )
    return fused.Sums(float(weights.log_likelihood), weights.mass, weights.constant, *parts)


def _count(experts: Experts, order: int) -> int:
    """Return how many weights experts have for x, or for x x'."""
    Q = experts.n_linear
    return experts.n_experts * (Q if order == 1 else Q * (Q + 1) // 2)


def _weights(model: MoE, block: Block) -> _Weights:
    """Return what is summed up over the rows, in the namespace of these."""
    weight, xp = block.weight, namespace(block.X)
    response = model.experts.observe(block.y)
    posterior = model.posterior(block.X, response, block.offset, block.copies, block.groups)
    r, once = scaled(posterior.responsibilities, weight), block.once
    linear, quadratic, constant = model.experts.fit_weights(posterior.eta, response, r)
    target = r if block.groups is None else scaled(posterior.responsibilities, once)
    residual = target - scaled(posterior.gate_prob, once)
    pairs = model.gate.pair_weights(posterior.gate_prob, once)
    return _Weights(
        xp.sum(scaled(posterior.log_density, once)),
        xp.sum(r, axis=0),
        xp.sum(constant, axis=0),
        block.gathered(xp.concat([linear.T, residual.T]).T),
        block.gathered(xp.concat([quadratic.T, pairs.T]).T),
    )


def m_step(model: MoE, statistics: Statistics, ridge: Ridge) -> MoE:
    """Return the model after one step of the experts and one Newton step of the gate."""
    experts, bounds = model.experts, {"floor": VARIANCE_FLOOR, "ridge": ridge.held}
    if model.structure is None:
        experts = experts.step(statistics.experts, **bounds)
    else:
        experts = model.structure.step(experts, statistics.experts, **bounds)
    return replace(model, gate=model.gate.step(statistics.gate, ridge.gate), experts=experts)


def on_floor(model: MoE, times: float = 1.0) -> bool:
    """Say whether a variance stands at its floor, or at a few times that.

    Counts have no such end, only the Poisson's.
    """
    if model.experts.discrete:
        return False
    return model.experts.smallest_dispersion <= times * VARIANCE_FLOOR * (1 + 1e-6)


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
