"""Local fits over shards, second chances for bad ones, and their aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from otmoe.aggregation import Aggregation, aggregate
from otmoe.em import em
from otmoe.experts import FAMILIES
from otmoe.message import LocalModel
from otmoe.numerics import Array, Floats
from otmoe.screening import THRESHOLD, likelihood_deviations
from otmoe.starts import plan_for

ROWS_PER_PARAMETER = 3
"""Rows per parameter that a shard has at least."""

_MORE_STARTS = 3  # times as many starts for a shard that stands out


@dataclass(frozen=True)
class Task:
    """A local fit to be done.

    Attributes
    ----------
    site : str
    X : array of shape (n, d)
    y : array of shape (n,)
    seed : int
    n_experts : int
    weight, offset : array of shape (n,), optional
    feature_names : tuple of str, optional
    classes : ndarray, optional
    options : dict
        Of :func:`otmoe.em.em`.
    """

    site: str
    X: Array = field(repr=False)
    y: Array = field(repr=False)
    seed: int
    n_experts: int
    weight: Array | None = field(default=None, repr=False)
    offset: Array | None = field(default=None, repr=False)
    feature_names: tuple[str, ...] | None = None
    classes: Floats | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalFit:
    """A local fit that was done, and the seconds it took."""

    message: LocalModel
    seconds: float


@dataclass(frozen=True)
class DistributedFit:
    """Local models, what they were merged into, and how long it took.

    Attributes
    ----------
    aggregation : Aggregation
    local_models : tuple of LocalModel
        All of them, those left out too.
    seconds : ndarray of shape (M,)
        Of each local fit, second chances included.
    refitted : tuple of str
        Shards that stood out and were fitted again with more starts.
    """

    aggregation: Aggregation
    local_models: tuple[LocalModel, ...] = field(repr=False)
    seconds: Floats = field(repr=False)
    refitted: tuple[str, ...]

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of the slowest local fit, of the aggregation, and of both: the learning time."""
        slowest, merging = float(self.seconds.max()), self.aggregation.timings["total"]
        return {"local": slowest, "aggregation": merging, "learning": slowest + merging}


def fit_local(task: Task) -> LocalFit:
    """Fit one shard where its rows are."""
    begin = perf_counter()
    fit = em(
        task.X,
        task.y,
        task.n_experts,
        sample_weight=task.weight,
        offset=task.offset,
        random_state=task.seed,
        **task.options,
    )
    message = LocalModel.from_fit(fit, task.site, task.feature_names, task.classes)
    return LocalFit(message, perf_counter() - begin)


def split(n_rows: int, n_shards: int, n_parameters: int, rng: np.random.Generator) -> list[Floats]:
    """Cut rows at random into shards of equal size, fewer where rows are few.

    Returns
    -------
    list of ndarray of int
        Row numbers of each shard, sorted.
    """
    n_shards = max(min(n_shards, n_rows // (ROWS_PER_PARAMETER * n_parameters)), 1)
    if n_shards == 1:
        return [np.arange(n_rows)]
    return [np.sort(part) for part in np.array_split(rng.permutation(n_rows), n_shards)]


def fit_tasks(
    tasks: Sequence[Task],
    support: Array,
    *,
    method: str = "reduction",
    executor: Executor | None = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> DistributedFit:
    """Fit every shard, give those that stand out a second chance, and aggregate.

    A shard in a wrong optimum is worse than none. Shards whose log-likelihood per row stands out
    (:mod:`otmoe.screening`) are fitted again with more starts; those that still stand out are left
    out, and named in `aggregation.left_out`.

    Parameters
    ----------
    tasks : sequence of Task
    support : array of shape (S, d)
    method : str
        Of :func:`otmoe.aggregate`.
    executor : Executor, optional
        Runs the local fits; by default one after another, here.
    random_state, n_jobs
        Of :func:`otmoe.aggregate`.
    progress : callable, optional
        Called with the number of shards done.
    """
    fits = _run(tasks, executor, progress)
    seconds = np.array([fit.seconds for fit in fits])
    messages = [fit.message for fit in fits]

    # 1) second chances
    bad = np.flatnonzero(likelihood_deviations(messages) < -THRESHOLD).tolist()
    again = [_with_more_starts(tasks[i]) for i in bad]
    for i, fit in zip(bad, _run(again, executor, None), strict=True):
        seconds[i] += fit.seconds
        if fit.message.log_likelihood > messages[i].log_likelihood:
            messages[i] = fit.message

    # 2) what stays bad is left out, by name
    deviations = likelihood_deviations(messages)
    left_out = {
        message.site: (
            f"its mean log-likelihood per row is {-deviation:.0f} deviations below the median, "
            "also after a fit with more starts"
        )
        for message, deviation in zip(messages, deviations, strict=True)
        if deviation < -THRESHOLD
    }
    kept = [message for message in messages if message.site not in left_out]
    aggregation = aggregate(
        kept,
        support,
        n_experts=tasks[0].n_experts,
        method=method,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    return DistributedFit(
        replace(aggregation, left_out=left_out),
        tuple(messages),
        seconds,
        tuple(tasks[i].site for i in bad),
    )


def _with_more_starts(task: Task) -> Task:
    options = dict(task.options)
    if options.get("n_init") is None:
        family = FAMILIES[options.get("family", "gaussian")]
        options["n_init"] = plan_for(family).n_init
    options["n_init"] *= _MORE_STARTS
    return replace(task, seed=task.seed + 1, options=options)


def _run(
    tasks: Sequence[Task], executor: Executor | None, progress: Callable[[int], None] | None
) -> list[LocalFit]:
    """Do the tasks; the results are in the order of the tasks, whoever finishes first."""
    fits = []
    if executor is None:
        for done, task in enumerate(tasks):
            fits.append(fit_local(task))
            if progress is not None:
                progress(done + 1)
        return fits
    futures = [executor.submit(fit_local, task) for task in tasks]
    for done, _ in enumerate(as_completed(futures)):
        if progress is not None:
            progress(done + 1)
    return [future.result() for future in futures]
