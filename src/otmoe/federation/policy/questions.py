"""What a refine request may ask about a site's rows (docs/threats.md).

A reply has sums over rows, weighted by the responsibilities of the model in the request. The choice
of the model is a choice of weights: an expert with a gate like a thin slab gets a single row. So
the site checks the weights before it replies, together with those of its earlier replies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otmoe.arrays.numerics import block_sum, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.federation.policy.ledger import Answer
from otmoe.federation.policy.replies import COARSER
from otmoe.federation.policy.rules import Measure, Policy, Rule
from otmoe.federation.policy.shares import Told
from otmoe.likelihood.answers import noise_of
from otmoe.likelihood.rows import Moments, Rows
from otmoe.model.mixture import MoE

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
    """Check a question against what was agreed, and against what was disclosed before.

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
    near = alike(agreed, model, features)
    if agreed and not near:
        return [_most(1, 0, "the number of models with other features or another family")], digits
    found = []
    if near:
        other = min(abs(a.model.n_experts - model.n_experts) for a in near)
        found.append(_most(other, 0, "the difference in the number of experts"))
        loss = max(_fit(a.model, rows) for a in near) - _fit(model, rows)
        found.append(_most(loss, STEP, "the loss of log-likelihood per row"))
    moments = rows.moments()
    steep = max((steepness(a.model, moments) for a in near), default=0.0)
    bound = max(STEEPER * steep, len(rows) / NARROW)
    found.append(_most(steepness(model, moments), bound, "the steepness of the gate"))
    past = [(a.model, noise_of(a.digits)) for a in alike(answers, model, features) if a.sums]
    told = Told.of(model, rows, past)
    for times in COARSER:
        share = told.share(noise_of(times * digits))
        if share <= policy.leverage or not digits:
            break
    found.append(_most(share, policy.leverage, "the share of one row's y that replies reveal"))
    return found, times * digits


def alike(answers: Sequence[Answer], model: MoE, features: FeatureSpec | None) -> list[Answer]:
    """Return answers about models of the same features and family."""
    return [a for a in answers if _alike(a.model, a.features, model, features)]


def _alike(one: MoE, features: FeatureSpec | None, other: MoE, others: FeatureSpec | None) -> bool:
    labels = [() if m.classes is None else tuple(np.asarray(m.classes)) for m in (one, other)]
    return (
        features == others
        and one.terms == other.terms
        and one.experts.family == other.experts.family
        and labels[0] == labels[1]
    )


def _most(figure: float, limit: float, where: str) -> Measure:
    broken = not figure <= limit  # NaN does not pass
    return Measure(Rule.QUESTION, figure, limit, "refuse" if broken else "pass", where)


def _fit(model: MoE, rows: Rows) -> float:
    """Return the mean log-likelihood of a row, up to the base measure."""

    def block(some: slice) -> float:
        block = rows.block(some)
        found = model.posterior(block.X, model.experts.observe(block.y), block.offset).log_density
        weight = rows.weight
        return float(np.sum(to_numpy(found) * (1.0 if weight is None else to_numpy(weight[some]))))

    return block_sum(block, rows.slices(), rows.pool) / rows.total_weight


def steepness(model: MoE, moments: Moments) -> float:
    """Return the largest standard deviation of a difference of two gate predictors over rows.

    Parameters
    ----------
    model : MoE
    moments : Moments
        Of the rows.
    """
    covariance = moments.feature_covariance
    slopes = np.asarray(model.gate.coef)[:, 1:]
    pairs = slopes[:, None] - slopes[None]  # (k, l, i)
    variance = np.einsum("kli,ij,klj->kl", pairs, covariance, pairs)
    return float(np.sqrt(np.max(variance, initial=0.0)))
