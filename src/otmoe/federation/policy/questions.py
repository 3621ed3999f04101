"""Questions are suspects: what a refine request may ask of a site's rows (maths 21).

A reply has sums over rows, weighted by the responsibilities of the model that is asked about. Who
chooses the model chooses the weights: an expert with a gate like a thin slab gets one row. So the
site looks at the weights before it replies, and at those of its earlier replies with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats, block_sum, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.federation.policy.ledger import Answer
from otmoe.federation.policy.rules import Measure, Policy, Rule
from otmoe.likelihood.rows import Block, Moments, Rows
from otmoe.model.mixture import MoE, Posterior

# Honest rounds stay far below all three; `python -m benchmarks questions` has the figures.
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
    noise: float = 0.0,
) -> list[Measure]:
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
    noise : float
        Variance of the rounding of a sum, over the sum of the squared weights.
    """
    if policy.leverage is None:
        return []
    agreed = [a for a in answers if a.kind == "message"] or list(answers)
    alike = [a for a in agreed if _alike(a.model, a.features, model, features)]
    if agreed and not alike:
        return [_most(1, 0, "the number of models with other features or another family")]
    found = []
    if alike:
        other = min(abs(a.model.n_experts - model.n_experts) for a in alike)
        found.append(_most(other, 0, "the difference in the number of experts"))
        own = max(_fit(a.model, rows) for a in alike)
        loss = own - _fit(model, rows)
        found.append(_most(loss, STEP, "the loss of log-likelihood per row"))
    moments = rows.moments()
    steep = max((steepness(a.model, moments) for a in alike), default=0.0)
    bound = max(STEEPER * steep, len(rows) / NARROW)
    found.append(_most(steepness(model, moments), bound, "the steepness of the gate"))
    past = [a.model for a in answers if a.sums and _alike(a.model, a.features, model, features)]
    share = told_share(model, rows, past, noise)
    return [*found, _most(share, policy.leverage, "the share of one row's y that replies tell")]


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


def told_share(model: MoE, rows: Rows, past: Sequence[MoE] = (), noise: float = 0.0) -> float:
    """Return the largest share of the variance of one row's y that replies tell, from 0 to 1.

    A reply at a model has the sums of r_ik x_ij y_i over the rows, for every expert k and feature
    j; an earlier one is taken to have those of r_ik y_i. Let Z be the matrix of these weights, a
    column for each sum. Who knows x, and nothing of y beforehand but its variance, learns the share
    Z_i' (Z'Z + noise diag(Z'Z))^-1 Z_i of that of y_i: 1 if some combination of the sums is y_i.

    Parameters
    ----------
    model : MoE
        That is asked about.
    rows : Rows
    past : sequence of MoE
        Those that were asked about before, with the same features.
    noise : float
        Variance of the rounding of a sum, over the sum of the squared weights.
    """
    moments = rows.moments()
    scaling, _ = moments.standardisation(model.experts)
    scaling = replace(scaling, y_center=0.0, y_scale=1.0)
    here, there = replace(rows, scaling=scaling), scaling.from_user(model)
    before = [scaling.from_user(m) for m in past]

    def weights(some: slice) -> Floats:
        return np.concatenate(list(_weights(here.block(some), there, before)), axis=1)

    def gram(some: slice) -> Floats:
        Z = weights(some)
        return Z.T @ Z

    found = block_sum(gram, here.slices(), rows.pool)
    unit = np.sqrt(np.diagonal(found))
    unit = np.where(unit > 0, unit, 1.0)
    values, vectors = linalg.eigh(found / np.outer(unit, unit))
    some = values > RANK_TOLERANCE * values[-1]
    values = np.where(some, values, 0.0)
    root = vectors * np.where(some, 1 / np.sqrt(np.where(some, values + noise, 1.0)), 0.0)
    root = root / unit[:, None]
    return max(float(np.max(np.sum((weights(s) @ root) ** 2, axis=1))) for s in here.slices())


def _weights(block: Block, model: MoE, past: Sequence[MoE]) -> Iterator[Floats]:
    """Return the weights that sums over rows give to each, parts of shape (n, p) and (n, K)."""
    X = to_numpy(block.X)
    weight = 1.0 if block.weight is None else to_numpy(block.weight)[:, None]
    for r in to_numpy(_posterior(model, block).responsibilities).T:
        yield weight * r[:, None] * X
    for other in past:
        yield weight * to_numpy(_posterior(other, block).responsibilities)
