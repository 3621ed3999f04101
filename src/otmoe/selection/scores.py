"""Scores of candidates, computed where the rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, block_sum, namespace, scaled
from otmoe.data.shards import Shard
from otmoe.distributed.task import rows_of
from otmoe.estimators import MoEClassifier, MoERegressor
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE
from otmoe.model.target import Target
from otmoe.selection.candidate import Score


def candidate_scores(
    models: Sequence[MoE],
    X: Any,
    y: Any,
    sample_weight: Any = None,
    offset: Any = None,
    groups: Any = None,
) -> tuple[Score, ...]:
    """Return the scores of some models on the rows of a site: three numbers each.

    Parameters
    ----------
    models : sequence of MoE
    X : array-like of shape (n, d)
    y : array-like of shape (n,)
        Class labels for classifiers.
    sample_weight, offset, groups : array-like of shape (n,), optional

    Returns
    -------
    tuple of Score
    """
    scores = []
    for model in models:
        rows = estimator_of(model)._rows(X, y, sample_weight, offset, groups)
        scores.append(score(model, rows))
    return tuple(scores)


@dataclass(frozen=True)
class ScoreTask:
    """Models to be scored on a shard; it travels to where the rows are."""

    shard: Shard
    models: tuple[MoE, ...]
    target: Target


def score_local(task: ScoreTask) -> tuple[Score, ...]:
    """Read one shard and score every model, where its rows are."""
    rows = rows_of(task.shard, task.target)
    return tuple(score(model, rows) for model in task.models)


def score(model: MoE, rows: Rows) -> Score:
    """Return log-likelihood and entropy of encoded rows, in one pass."""

    def part(some: slice) -> Floats:
        block = rows.block(some)
        xp = namespace(block.X)
        response = model.experts.observe(block.y)
        at = model.posterior(block.X, response, block.offset, groups=block.groups)
        r = at.responsibilities
        entropy = -xp.sum(r * xp.log(xp.where(r > 0, r, xp.ones_like(r))), axis=1)
        return np.array([float(xp.sum(scaled(a, block.once))) for a in (at.log_density, entropy)])

    log_likelihood, entropy = block_sum(part, rows.slices(), rows.pool)
    base = rows.log_base(model.experts)
    return Score(float(log_likelihood) + base, float(entropy), rows.total_weight)


def estimator_of(model: MoE) -> Any:
    """Return a model as a fitted estimator."""
    kind = MoERegressor if model.classes is None else MoEClassifier
    return kind.from_model(model)
