"""Local fits over shards, second chances for bad ones, and their aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from joblib import effective_n_jobs

from otmoe.aggregation import METHODS, Aggregation, merged
from otmoe.aggregation.disagreement import THRESHOLD, likelihood_deviations
from otmoe.aggregation.support import N_POINTS
from otmoe.arrays.numerics import Floats
from otmoe.data.shards import Shard
from otmoe.distributed.consensus import refit_from_consensus, second_chances, support_of
from otmoe.distributed.passes import em_shards
from otmoe.distributed.rounds import check_rounds, refine_shards
from otmoe.distributed.task import Task, fit_local, labels_of
from otmoe.documents.message import LocalModel
from otmoe.likelihood.fit import ALPHA
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.arguments import generator
from otmoe.text.errors import InvalidInput, ShardError
from otmoe.text.sentences import Error, Finding
from otmoe.workers.gather import Engine, Failure, Progress, TasksFailed, gather

METHODS_OF_SHARDS = (*METHODS, "em")
"""Ways to one model of shards: those of :func:`otmoe.aggregate`, and EM over all rows."""

_TOGETHER = 30  # EM passes over many shards that bring a model near a maximum of their rows


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
    improved : tuple of str
        Shards whose fit became likelier by a nat or more when they set out from the model that
        the others agree on.
    failures : tuple of Failure
        Shards that could not be fitted, and why.
    n_rows : int
        Rows fitted.
    dropped : int
        Rows left out because a value is missing.
    agreeing : float
        Seconds spent on what the shards agree on.
    """

    aggregation: Aggregation
    local_models: tuple[LocalModel, ...] = field(repr=False)
    seconds: Floats = field(repr=False)
    refitted: tuple[str, ...]
    improved: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    n_rows: int = 0
    dropped: int = 0
    agreeing: float = 0.0

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of the slowest local fit, of the aggregation, and of both: the learning time."""
        slowest = float(self.seconds.max())
        merging = self.agreeing + self.aggregation.timings["total"]
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
    refine: int | str = 0,
    random_state: Any = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> DistributedFit:
    """Fit every shard where its rows are, give bad fits a second chance, and aggregate.

    A shard in a wrong optimum is worse than none, and a small one ends there often. So the shards
    are offered the model that most of them agree on as a start, and keep what it leads to if that
    is likelier; if that helps many, the model comes from EM passes over some of them and is offered
    once more (:mod:`otmoe.distributed.consensus`). Shards whose log-likelihood per row stands out
    all the same (:mod:`otmoe.aggregation.disagreement`) are fitted again with more starts; those
    that still stand out are left out, and named in `aggregation.left_out`. The answer depends on
    the shards, their order and the seed alone: not on the engine, the number of its workers, or who
    finishes first.

    Parameters
    ----------
    shards : sequence of Shard
    n_experts : int
    method : str
        Of :func:`otmoe.aggregate`; or "em", which merges by the reduction and then runs EM itself
        over all shards, to the answer of pooled rows (:mod:`otmoe.distributed.passes`).
    feature_names : tuple of str, optional
        By default those of the shards' specification.
    classes : ndarray, optional
        Class labels, for classifiers.
    coded : bool
        Whether y holds class numbers already.
    n_support : int
        Rows of X at which local models are compared; each shard brings back its share.
    options : dict, optional
        Of :func:`otmoe.likelihood.fit.em`, such as the family.
    engine : Executor or callable, optional
        Runs the local fits: an executor, or a function that makes one, by which a broken one can be
        replaced. By default they run here, one after another.
    retries, timeout
        Of :func:`otmoe.workers.gather.gather`.
    on_error : {"raise", "skip"}
        What to do about shards that fail: raise :class:`~otmoe.workers.gather.TasksFailed`, or go
        on without them and name them in `failures`.
    refine : int or "auto"
        Rounds in which the merged model comes closer to the maximum-likelihood answer of all rows,
        one pass over them each (:mod:`otmoe.likelihood.rounds`); "auto" for as many as it takes.
    random_state : int, Generator or None
    n_jobs : int, optional
        Threads of the aggregation.
    progress : callable, optional
        Called as progress(shards done, shards in all, name).

    Returns
    -------
    DistributedFit
    """
    if method not in METHODS_OF_SHARDS:
        raise InvalidInput(
            Error.NOT_ONE_OF, name="method", value=method, choices=sorted(METHODS_OF_SHARDS)
        )
    if on_error not in ("raise", "skip"):
        raise InvalidInput(
            Error.NOT_ONE_OF, name="on_error", value=on_error, choices=["raise", "skip"]
        )
    if not len(shards):
        raise InvalidInput(Error.NO_SHARDS)
    check_rounds(refine)
    if method == "em" and refine:
        raise InvalidInput(Error.EM_AND_REFINE)
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

    # 2) second chances: from where the others are, then with more starts
    chosen = {"alpha": ALPHA, **(options or {})}
    travel: dict[str, Any] = {
        "classes": None if coded else classes,
        "alpha": chosen["alpha"],
        "engine": engine,
        "retries": retries,
        "timeout": timeout,
    }

    def together(shards: Sequence[Shard], start: MoE) -> tuple[MoE, float]:
        begin = perf_counter()
        try:
            start = em_shards(shards, start, max_iter=_TOGETHER, **travel).model
        except TasksFailed:  # of a shard that could be read before: what is known has to do
            pass
        seconds = perf_counter() - begin
        return start, seconds / (len(shards) if engine is None else 1)  # as if side by side

    own = np.random.default_rng(int(rng.integers(2**31)))  # so that later draws do not hang on it
    fits, improved, agreeing = refit_from_consensus(
        tasks, fits, n_experts, own, lambda again: run(again, None)[0], together
    )
    fits, refitted = second_chances(tasks, fits, lambda again: run(again, None)[0])
    messages = [fit.message for fit in fits]

    # 3) what stays bad is left out, by name
    left_out = {
        message.site: Finding.BAD_SHARD(deviations=-deviation)
        for message, deviation in zip(messages, likelihood_deviations(messages), strict=True)
        if deviation < -THRESHOLD
    }
    good = [fit for fit in fits if fit.message.site not in left_out]
    support = support_of(good, n_support, rng)
    aggregation = merged(
        [fit.message for fit in good],
        support,
        n_experts,
        "reduction" if method == "em" else method,
        random_state=rng,
        n_threads=effective_n_jobs(n_jobs),
    )

    # 4) towards the maximum-likelihood answer of all rows
    scaling = Scaling.of(support)
    if method == "em":  # of every shard that was read, also where its own fit is left out
        everywhere = [task.shard for task in tasks]
        bounds = {name: chosen[name] for name in ("max_iter", "tol") if name in chosen}
        exact = em_shards(everywhere, aggregation.model, **bounds, **travel)
        state = refine_shards(everywhere, exact.model, 1, scaling=scaling, **travel)
        aggregation = aggregation.maximised(exact, state)
    elif refine:
        rest = [task.shard for task in tasks if task.shard.name not in left_out]
        state = refine_shards(
            rest, aggregation.model, refine, scaling=scaling, on_error=on_error, **travel
        )
        aggregation = aggregation.refined(state, refine)
    return DistributedFit(
        replace(aggregation, left_out=left_out),
        tuple(messages),
        np.array([fit.seconds for fit in fits]),
        refitted,
        improved,
        tuple(failures),
        sum(fit.n_rows for fit in fits),
        sum(fit.dropped for fit in fits),
        agreeing,
    )


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
        raise ShardError(Error.SHARD_TWICE, where=twice)
