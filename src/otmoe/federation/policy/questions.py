"""Questions are suspects: what a refine request may ask of a site's rows (docs/threats.md).

A reply has sums over rows, weighted by the responsibilities of the model that is asked about. Who
chooses the model chooses the weights: an expert with a gate like a thin slab gets one row. So the
site looks at the weights before it replies, and at those of its earlier replies with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats, block_sum, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.federation.policy.ledger import Answer
from otmoe.federation.policy.replies import COARSER, noise_of
from otmoe.federation.policy.rules import Measure, Policy, Rule
from otmoe.likelihood.rows import Block, Moments, Rows
from otmoe.model.mixture import MoE, Posterior

# Honest rounds stay far below all three: `python -m benchmarks.questions` has the figures.
STEP = 3.0
"""Nats per row by which the model that is asked about may fit worse than the site's own."""

STEEPER = 10.0
"""Times as steep as in the site's own model that the gate may be."""

NARROW = 10
"""Rows that lie, along a line, where a gate passes from one expert to another, at least."""


def judged_question(
    policy: Policy,
    model: MoE,
    features: FeatureSpec | None,
    rows: Rows,
    answers: Sequence[Answer],
) -> tuple[list[Measure], float]:
    """Hold a question against what was agreed, and against what was told before.

    Parameters
    ----------
    policy : Policy
    model : MoE
        That is asked about, on the user's scale.
    features : FeatureSpec, optional
    rows : Rows
        On the user's scale.
    answers : sequence of Answer
        What the site has sent in this study.

    Returns
    -------
    list of Measure
    float
        Digits to which a reply has to be rounded: those of the policy, or coarser where one row
        would show.
    """
    digits = policy.digits or 0.0
    if policy.leverage is None:
        return [], digits
    agreed = [a for a in answers if a.kind == "message"] or list(answers)
    alike = [a for a in agreed if _alike(a.model, a.features, model, features)]
    if agreed and not alike:
        return [_most(1, 0, "the number of models with other features or another family")], digits
    found = []
    if alike:
        other = min(abs(a.model.n_experts - model.n_experts) for a in alike)
        found.append(_most(other, 0, "the difference in the number of experts"))
        loss = max(_fit(a.model, rows) for a in alike) - _fit(model, rows)
        found.append(_most(loss, STEP, "the loss of log-likelihood per row"))
    moments = rows.moments()
    steep = max((steepness(a.model, moments) for a in alike), default=0.0)
    bound = max(STEEPER * steep, len(rows) / NARROW)
    found.append(_most(steepness(model, moments), bound, "the steepness of the gate"))
    past = [a for a in answers if a.sums and _alike(a.model, a.features, model, features)]
    told = Told.of(model, rows, [(a.model, noise_of(a.digits)) for a in past])
    for times in COARSER:
        share = told.share(noise_of(times * digits))
        if share <= policy.leverage or not digits:
            break
    found.append(_most(share, policy.leverage, "the share of one row's y that replies tell"))
    return found, times * digits


def _alike(one: MoE, features: FeatureSpec | None, other: MoE, others: FeatureSpec | None) -> bool:
    labels = [() if m.classes is None else tuple(np.asarray(m.classes)) for m in (one, other)]
    return (
        features == others
        and one.terms == other.terms
        and one.experts.family == other.experts.family
        and labels[0] == labels[1]
    )


def _most(figure: float, limit: float, where: str) -> Measure:
    broken = not figure <= limit  # NaN is no answer
    return Measure(Rule.QUESTION, figure, limit, "refuse" if broken else "pass", where)


def _fit(model: MoE, rows: Rows) -> float:
    """Return the mean log-likelihood of a row, up to the base measure."""

    def block(some: slice) -> float:
        found = _posterior(model, rows.block(some)).log_density
        weight = rows.weight
        return float(np.sum(to_numpy(found) * (1.0 if weight is None else to_numpy(weight[some]))))

    return block_sum(block, rows.slices(), rows.pool) / rows.total_weight


def _posterior(model: MoE, block: Block) -> Posterior:
    return model.posterior(block.X, model.experts.observe(block.y), block.offset)


def steepness(model: MoE, moments: Moments) -> float:
    """Return the largest standard deviation of a difference of two gate predictors over rows.

    Parameters
    ----------
    model : MoE
    moments : Moments
        Of the rows.
    """
    mean = moments.gram[0, 1:-1] / moments.total_weight
    covariance = moments.gram[1:-1, 1:-1] / moments.total_weight - np.outer(mean, mean)
    slopes = np.asarray(model.gate.coef)[:, 1:]
    pairs = slopes[:, None] - slopes[None]  # (k, l, i)
    variance = np.einsum("kli,ij,klj->kl", pairs, covariance, pairs)
    return float(np.sqrt(np.max(variance, initial=0.0)))


@dataclass(frozen=True)
class Told:
    """What replies tell about the y of single rows.

    A reply at a model has the sums of r_ik x_ij y_i over the rows, for every expert k and feature
    j; an earlier one is taken to have those of r_ik y_i. Let Z be the matrix of these weights, a
    column for each sum, and N the variances of the rounding of the sums. Who knows x, and nothing
    of y beforehand but its variance, learns the share Z_i' (Z'Z + N)^-1 Z_i of that of y_i: 1 if
    some combination of the sums is y_i.

    Attributes
    ----------
    rows : Rows
        Standardised.
    model : MoE
        That is asked about, on their scale.
    past : tuple of MoE
        Those that were asked about before.
    noise : ndarray of shape (K T,)
        Variance of the rounding of each earlier sum, over its squared weights.
    gram : ndarray of shape (K p + K T, K p + K T)
        Z'Z.
    """

    rows: Rows
    model: MoE
    past: tuple[MoE, ...]
    noise: Floats
    gram: Floats

    @classmethod
    def of(cls, model: MoE, rows: Rows, past: Sequence[tuple[MoE, float]] = ()) -> Self:
        """Return what replies at a model, and at earlier ones, tell.

        Parameters
        ----------
        model : MoE
            On the user's scale.
        rows : Rows
            On the user's scale.
        past : sequence of (MoE, float)
            With the variance of the rounding of their sums.
        """
        scaling = replace(
            rows.moments().standardisation(model.experts)[0], y_center=0.0, y_scale=1.0
        )
        here, rows = scaling.from_user(model), replace(rows, scaling=scaling)
        before = tuple(scaling.from_user(m) for m, _ in past)
        noise = [np.full(m.n_experts, variance) for m, variance in past]

        def gram(some: slice) -> Floats:
            Z = _weights(rows.block(some), here, before)
            return Z.T @ Z

        total = block_sum(gram, rows.slices(), rows.pool)
        return cls(rows, here, before, np.concatenate([np.empty(0), *noise]), total)

    def share(self, noise: float = 0.0) -> float:
        """Return the largest share of the variance of one row's y that is told, from 0 to 1.

        Parameters
        ----------
        noise : float
            Variance of the rounding of a sum of the present reply, over its squared weights.
        """
        now = len(self.gram) - len(self.noise)
        added = np.append(np.full(now, noise), self.noise)
        unit = np.sqrt(np.diagonal(self.gram))
        unit = np.where(unit > 0, unit, 1.0)
        scaled = self.gram / np.outer(unit, unit) + np.diag(added)
        values, vectors = linalg.eigh(scaled)
        some = values > RANK_TOLERANCE * values[-1]
        root = vectors[:, some] / np.sqrt(values[some]) / unit[:, None]
        blocks = (_weights(self.rows.block(s), self.model, self.past) for s in self.rows.slices())
        return max(float(np.max(np.sum((Z @ root) ** 2, axis=1))) for Z in blocks)


def _weights(block: Block, model: MoE, past: Sequence[MoE]) -> Floats:
    """Return the weights that sums give to each row, (n, K p + K T)."""
    X = to_numpy(block.X)
    parts = [r[:, None] * X for r in to_numpy(_posterior(model, block).responsibilities).T]
    parts += [to_numpy(_posterior(other, block).responsibilities) for other in past]
    weight = 1.0 if block.weight is None else to_numpy(block.weight)[:, None]
    return weight * np.concatenate(parts, axis=1)
