"""Small checks of what the paper states, each a few lines and a number.

They are counterexamples, made as simple as they can be; `python -m paper docs` writes their
numbers into docs/differences.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import integrate, stats

from otmoe import MoE, simulate
from otmoe.arrays.numerics import design
from otmoe.model.divergence import relaxed_divergence
from otmoe.model.experts import GaussianExperts
from otmoe.model.gate import SoftmaxGate
from paper.mmash import PUBLISHED

TEST_SIZES = {100_000: 50_000, 500_000: 125_000, 1_000_000: 500_000}
"""Rows of a test set, as the paper states them, by N."""


def bent_gate() -> float:
    """Return how far the log-odds of an averaged gate are from any straight line in x.

    Two sites with one feature and log-odds 4x + 2 and 4x - 2; the line is the best one, and the
    distance the largest, between x = -2 and 2.
    """
    Z = design(np.linspace(-2, 2, 401)[:, None])
    gates = [SoftmaxGate(np.array([[shift, 4.0], [0.0, 0.0]])) for shift in (2.0, -2.0)]
    first = np.mean([gate.prob(Z)[:, 0] for gate in gates], axis=0)
    odds = np.log(first / (1 - first))
    line = Z @ np.linalg.lstsq(Z, odds, rcond=None)[0]
    return float(np.max(np.abs(odds - line)))


def two_experts() -> MoE:
    """Return experts with means 0 and 4 and variance 1, whatever x is, under an even gate."""
    experts = GaussianExperts(np.array([[0.0, 0.0], [4.0, 0.0]]), np.ones(2))
    return MoE(SoftmaxGate.blank(2, 2), experts)


def between() -> tuple[float, float, float]:
    """Return R_c of a model, of the same renumbered, and of the one half-way between.

    A convex function would be at most the mean of the first two at the third.
    """
    model, X = two_experts(), np.zeros((1, 1))
    other = replace(model, experts=model.experts.take(np.array([1, 0])))
    middle = replace(
        model.experts,
        coef=(model.experts.coef + other.experts.coef) / 2,
        var=(model.experts.var + other.experts.var) / 2,
    )
    models = (model, other, replace(model, experts=middle))
    a, b, c = (relaxed_divergence(model, g, X) for g in models)
    return a, b, c


def between_densities() -> float:
    """Return R_c half-way when the densities of the experts, not their parameters, are averaged."""
    first, second = stats.norm(0, 1), stats.norm(4, 1)

    def inside(y: float) -> float:
        half = (first.pdf(y) + second.pdf(y)) / 2
        return first.pdf(y) * (first.logpdf(y) - np.log(half))

    return float(integrate.quad(inside, -12, 16)[0])


def without_gate() -> tuple[float, float]:
    """Return R_c from a truth to itself with its gate erased, and the nats a row that this costs.

    R_c is zero although the density is another one, so the truth is not its only minimiser.
    """
    data = simulate(20_000, 4, 20, random_state=0)
    blank = SoftmaxGate.blank(4, 21)
    erased = replace(data.truth, gate=blank)
    lost = data.truth.log_density(data.X, data.y) - erased.log_density(data.X, data.y)
    return relaxed_divergence(data.truth, erased, data.X), float(lost.mean())


def heart_rates() -> dict[str, tuple[float, float]]:
    """Return root mean square and mean of the heart rate, as the paper's table implies them.

    RPE is RMSE squared over the mean square of y, SI is RMSE over the mean of y, and a mean is
    never above the root mean square.
    """
    return {
        f"{method}, M = {M}" if M != "1" else "G": (rmse / rpe**0.5, rmse / si)
        for (M, method), (rpe, rmse, si, _) in PUBLISHED.items()
    }


def shares_of_tests() -> dict[int, float]:
    """Return the share of test rows in all rows, N of them for training."""
    return {n: test / (n + test) for n, test in TEST_SIZES.items()}
