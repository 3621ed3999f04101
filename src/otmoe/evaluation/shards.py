"""How good a model is on rows that lie in shards, measured where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from otmoe.data.shards import Shard
from otmoe.distributed.task import read
from otmoe.evaluation.scores import Score, score_rows
from otmoe.model.mixture import MoE
from otmoe.workers.gather import HERE, TasksFailed, Workers, gather


@dataclass(frozen=True)
class Scoring:
    """A shard that is asked about a model; it travels to where the rows are.

    Attributes
    ----------
    shard : Shard
    model : MoE
    """

    shard: Shard
    model: MoE


def score_local(task: Scoring) -> Score:
    """Read one shard and return what its rows say about the model."""
    rows = read(task.shard)
    return score_rows(task.model, rows.X, rows.y, rows.weight, rows.offset)


def score_shards(model: MoE, shards: Sequence[Shard], workers: Workers = HERE) -> Score:
    """Return what the rows of all shards say about a model, in one pass; no row moves.

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
