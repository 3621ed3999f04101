"""Local fits over shards, second chances for bad ones, and their aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from joblib import effective_n_jobs

from otmoe.aggregation import Aggregation, merged
from otmoe.experts import FAMILIES
from otmoe.futures import Engine, Failure, Progress, TasksFailed, gather
from otmoe.local import LocalFit, Task, fit_local, labels_of
from otmoe.message import LocalModel
from otmoe.numerics import Floats
from otmoe.screening import THRESHOLD, likelihood_deviations
from otmoe.shards import Shard, ShardError
from otmoe.starts import plan_for
from otmoe.support import N_POINTS, draw_support
from otmoe.validation import generator

_MORE_STARTS = 3  # times as many starts for a shard that stands out


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
    failures : tuple of Failure
        Shards that could not be fitted, and why.
    n_rows : int
        Rows fitted.
    dropped : int
        Rows left out because a value is missing.
    """

    aggregation: Aggregation
    local_models: tuple[LocalModel, ...] = field(repr=False)
    seconds: Floats = field(repr=False)
    refitted: tuple[str, ...]
    failures: tuple[Failure, ...] = ()
    n_rows: int = 0
    dropped: int = 0

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of the slowest local fit, of the aggregation, and of both: the learning time."""
        slowest, merging = float(self.seconds.max()), self.aggregation.timings["total"]
        return {"local": slowest, "aggregation": merging, "learning": slowest + merging}


def fit_shards(
    shards: Sequence[Shard],
    n_experts: int,
    *,
    method: str = "reduction",
    feature_names: tuple[str, ...] | None = None,
    classes: Floats | None = None,
    coded: bool = False,
    n_support: int = N_POINTS,
    options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    retries: int = 2,
    timeout: float | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    random_state: Any = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> DistributedFit:
    """Fit every shard where its rows are, give bad fits a second chance, and aggregate.

    A shard in a wrong optimum is worse than none. Shards whose log-likelihood per row stands out
    (:mod:`otmoe.screening`) are fitted again with more starts; those that still stand out are left
    out, and named in `aggregation.left_out`. The answer depends on the shards, their order and the
    seed alone: not on the engine, the number of its workers, or who finishes first.

    Parameters
    ----------
    shards : sequence of Shard
    n_experts : int
    method : str
        Of :func:`otmoe.aggregate`.
    feature_names : tuple of str, optional
        By default those of the shards' specification.
    classes : ndarray, optional
        Class labels, for classifiers.
    coded : bool
        Whether y holds class numbers already.
    n_support : int
        Rows of X at which local models are compared; each shard brings back its share.
    options : dict, optional
        Of :func:`otmoe.em.em`, such as the family.
    engine : Executor or callable, optional
        Runs the local fits: an executor, or a function that makes one, by which a broken one can be
        replaced. By default they run here, one after another.
    retries, timeout
        Of :func:`otmoe.futures.gather`.
    on_error : {"raise", "skip"}
        What to do about shards that fail: raise :class:`~otmoe.futures.TasksFailed`, or go on
        without them and name them in `failures`.
    random_state : int, Generator or None
    n_jobs : int, optional
        Threads of the aggregation.
    progress : callable, optional
        Called as progress(shards done, shards in all, name).

    Returns
    -------
    DistributedFit
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}; choose 'raise' or 'skip'.")
    if not len(shards):
        raise ValueError("there is no shard to fit: give at least one.")
    _check_names(shards)
    rng = generator(random_state)
    n_points = max(-(-4 * n_support // len(shards)), 50)
    tasks = [
        Task(
            shard,
            int(rng.integers(2**31)),
            n_experts,
            feature_names,
            classes,
            coded,
            n_points,
            options or {},
            grams=method == "gram",
        )
        for shard in shards
    ]

    def run(tasks: Sequence[Task], progress: Progress | None) -> tuple[list[Any], list[Failure]]:
        names = [task.shard.name for task in tasks]
        return gather(
            fit_local, tasks, names, engine, retries=retries, timeout=timeout, progress=progress
        )

    # 1) every shard once
    found, failures = run(tasks, progress)
    kept = [i for i, fit in enumerate(found) if fit is not None]
    if failures and (on_error == "raise" or not kept):
        raise TasksFailed(failures)
    tasks, fits = [tasks[i] for i in kept], [found[i] for i in kept]

    # 2) second chances
    fits, refitted = _second_chances(tasks, fits, lambda again: run(again, None)[0])
    messages = [fit.message for fit in fits]

    # 3) what stays bad is left out, by name
    left_out = {
        message.site: (
            f"its mean log-likelihood per row is {-deviation:.0f} deviations below the median, "
            "also after a fit with more starts"
        )
        for message, deviation in zip(messages, likelihood_deviations(messages), strict=True)
        if deviation < -THRESHOLD
    }
    good = [fit for fit in fits if fit.message.site not in left_out]
    support = draw_support(
        [fit.points for fit in good],
        n_support,
        site_weight=[fit.n_rows for fit in good],
        random_state=rng,
    )
    columns = support.shape[1]
    if len(support) < columns:  # each point several times, which changes nothing
        support = np.tile(support, (-(-columns // len(support)), 1))
    aggregation = merged(
        [fit.message for fit in good],
        support,
        n_experts,
        method,
        random_state=rng,
        n_threads=effective_n_jobs(n_jobs),
    )
    return DistributedFit(
        replace(aggregation, left_out=left_out),
        tuple(messages),
        np.array([fit.seconds for fit in fits]),
        refitted,
        tuple(failures),
        sum(fit.n_rows for fit in fits),
        sum(fit.dropped for fit in fits),
    )


def _second_chances(
    tasks: Sequence[Task],
    fits: list[LocalFit],
    run: Callable[[Sequence[Task]], list[LocalFit | None]],
) -> tuple[list[LocalFit], tuple[str, ...]]:
    """Fit again what stands out, and keep the better of the two fits."""
    fits = list(fits)
    deviations = likelihood_deviations([fit.message for fit in fits])
    bad = np.flatnonzero(deviations < -THRESHOLD).tolist()
    for i, again in zip(bad, run([_with_more_starts(tasks[i]) for i in bad]), strict=True):
        if again is None:
            continue
        first = fits[i]
        better = again.message.log_likelihood > first.message.log_likelihood
        fits[i] = replace(
            first,
            message=again.message if better else first.message,
            seconds=first.seconds + again.seconds,
        )
    return fits, tuple(tasks[i].shard.name for i in bad)


def _with_more_starts(task: Task) -> Task:
    options = dict(task.options)
    if options.get("n_init") is None:
        options["n_init"] = plan_for(FAMILIES[options.get("family", "gaussian")]).n_init
    options["n_init"] *= _MORE_STARTS
    return replace(task, seed=task.seed + 1, options=options)


def classes_of(
    shards: Sequence[Shard],
    engine: Engine | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> Floats:
    """Return the class labels that occur in any shard, sorted; reads all of them."""
    names = [shard.name for shard in shards]
    found, failures = gather(labels_of, shards, names, engine)
    seen = [labels for labels in found if labels is not None]
    if failures and (on_error == "raise" or not seen):
        raise TasksFailed(failures)
    return np.unique(np.concatenate(seen))


def _check_names(shards: Sequence[Shard]) -> None:
    names = [shard.name for shard in shards]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ShardError(f"{twice}: two shards have this name; give each rows of its own.")
