"""Evaluation on shards, where their rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from otmoe.data.shards import Shard
from otmoe.distributed.task import read
from otmoe.evaluation.scores import Score, score_rows
from otmoe.model.mixture import MoE
from otmoe.workers.failures import TasksFailed
from otmoe.workers.gather import HERE, Workers, gather


@dataclass(frozen=True)
class Scoring:
    """A shard and the model to score on it; sent to where the rows are.

    Attributes
    ----------
    shard : Shard
    model : MoE
    """

    shard: Shard
    model: MoE


def score_local(task: Scoring) -> Score:
    """Read one shard and return the score of the model on its rows."""
    rows = read(task.shard)
    return score_rows(task.model, rows.X, rows.y, rows.weight, rows.offset, rows.groups)


def score_shards(model: MoE, shards: Sequence[Shard], workers: Workers = HERE) -> Score:
    """Return the score of a model on all shards, in one pass; rows stay where they are.

    Parameters
    ----------
    model : MoE
    shards : sequence of Shard
    workers : Workers

    Returns
    -------
    Score
    """
    tasks = [Scoring(shard, model) for shard in shards]
    found, failures = gather(score_local, tasks, [shard.name for shard in shards], workers)
    if failures:
        raise TasksFailed(failures)
    return reduce(add, found)
