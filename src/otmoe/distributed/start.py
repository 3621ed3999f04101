"""Where the local fits begin: one search on rows of many shards serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from otmoe.aggregation.disagreement import THRESHOLD, likelihood_deviations
from otmoe.data.shards import RowsShard, Shard
from otmoe.distributed.task import LocalFit, Task, rows_of
from otmoe.likelihood.fit import Fit, em
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.stage import some_groups
from otmoe.likelihood.starts import plan_for
from otmoe.model.target import Target
from otmoe.workers.gather import Workers, gather

_SHARDS = 64  # that are asked for rows, at most

Run = Callable[[Sequence[Task]], list[LocalFit | None]]


@dataclass(frozen=True)
class Sample:
    """Some rows of a shard that are asked for; it travels to where they are.

    Attributes
    ----------
    shard : Shard
    target : Target
    n_rows : int
        At most.
    seed : int
    again : bool
        Whether passes over the same rows follow, as in :class:`~otmoe.distributed.task.Task`.
    """

    shard: Shard
    target: Target
    n_rows: int
    seed: int
    again: bool = False


def sample_local(task: Sample) -> Rows:
    """Return some rows of a shard, with weights that stand for all."""
    shard, rng = task.shard, np.random.default_rng(task.seed)
    if type(shard) is RowsShard and task.target.expert_per == "row" and shard.n_rows > task.n_rows:
        n = shard.n_rows  # in memory: no others need be copied
        index = np.sort(rng.choice(n, task.n_rows, replace=False))
        place = index if shard.index is None else shard.index[index]
        some = rows_of(replace(shard, index=place), task.target)
    else:
        rows = rows_of(shard, task.target, keep=task.again)
        n = len(rows)
        index = np.arange(n)
        if rows.groups is not None:
            index = some_groups(rows.groups, index, task.n_rows, rng)
        elif n > task.n_rows:
            index = np.sort(rng.choice(n, task.n_rows, replace=False))
        some = rows.take(index)
    weight = np.ones(len(index)) if some.weight is None else np.asarray(some.weight)
    return replace(some, weight=weight * (n / len(index)))


def shared_start(
    shards: Sequence[Shard],
    n_experts: int,
    target: Target,
    options: Mapping[str, Any],
    workers: Workers,
    rng: np.random.Generator,
    again: bool = False,
) -> Fit | None:
    """Return the fit of rows drawn from the shards; none where they hold too few.

    Parameters
    ----------
    shards : sequence of Shard
        At most 64 of them are asked, chosen at random.
    n_experts : int
    target : Target
    options : dict
        Of :func:`otmoe.likelihood.fit.em`.
    workers : Workers
    rng : Generator
    again : bool
        Whether there will be several passes over all rows.
    """
    some = list(shards)
    if len(some) > _SHARDS:
        some = [some[i] for i in np.sort(rng.choice(len(some), _SHARDS, replace=False))]
    wanted = -(-plan_for(target.kind).some // len(some))
    tasks = [Sample(shard, target, wanted, int(rng.integers(2**31)), again) for shard in some]
    found, _ = gather(sample_local, tasks, [shard.name for shard in some], workers)
    parts = [part for part in found if part is not None]
    if sum(len(part) for part in parts) < n_experts:
        return None
    rows = Rows.joined(parts)
    weight = np.asarray(rows.weight)
    return em(
        rows.X,
        rows.y,
        n_experts,
        family=target.kind,
        n_classes=target.n_classes,
        sample_weight=weight / weight.mean(),
        offset=rows.offset,
        random_state=rng,
        groups=rows.groups,
        **options,
    )


def searched_again(
    tasks: Sequence[Task], fits: Sequence[LocalFit], run: Run
) -> tuple[list[LocalFit], tuple[str, ...]]:
    """Let shards that stand out search for themselves, and keep the likelier of the two fits."""
    fits = list(fits)
    deviations = likelihood_deviations([fit.message for fit in fits])
    bad = np.flatnonzero(deviations < -THRESHOLD).tolist()
    alone = [replace(tasks[i], options={**tasks[i].options, "init": None}) for i in bad]
    for i, again in zip(bad, run(alone), strict=True):
        if again is not None:
            gain = again.message.log_likelihood - fits[i].message.log_likelihood
            seconds = fits[i].seconds + again.seconds
            fits[i] = replace(again if gain > 0 else fits[i], seconds=seconds)
    return fits, tuple(tasks[i].shard.name for i in bad)
