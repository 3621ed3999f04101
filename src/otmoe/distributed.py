"""Local fits over shards, second chances for bad ones, and their aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
from joblib import effective_n_jobs

from otmoe.aggregation import Aggregation, merged
from otmoe.em import ALPHA
from otmoe.experts import FAMILIES
from otmoe.futures import Engine, Failure, Progress, TasksFailed, gather
from otmoe.local import LocalFit, Task, fit_local, labels_of
from otmoe.message import LocalModel
from otmoe.model import MoE
from otmoe.numerics import Floats
from otmoe.refining import check_rounds, refine_shards
from otmoe.rows import Scaling
from otmoe.screening import THRESHOLD, likelihood_deviations
from otmoe.shards import Shard, ShardError
from otmoe.starts import plan_for
from otmoe.support import N_POINTS, draw_support
from otmoe.validation import generator

_MORE_STARTS = 3  # times as many starts for a shard that stands out
_SMALL = 20_000  # rows up to which a fit from a given start costs little beside its own starts
_USUAL = 1.0  # deviations below the median up to which a fit may speak for the others
_DOUBTFUL = 2.0  # and from which it is doubted
_SAME = 0.01  # nats between two fits in one optimum
_ASKED = 64  # fits that are enough to say what the shards agree on


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
    is likelier. Shards whose log-likelihood per row stands out all the same
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
    refine : int or "auto"
        Rounds in which the merged model comes closer to the maximum-likelihood answer of all rows,
        one pass over them each (:mod:`otmoe.refinement`); "auto" for as many as it takes.
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
    check_rounds(refine)
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
    begin = perf_counter()
    own = np.random.default_rng(int(rng.integers(2**31)))  # so that later draws do not hang on it
    agreed = _agreed(fits, n_experts, own) if len(fits) > 1 else None
    agreeing = perf_counter() - begin
    fits, improved = _offered(tasks, fits, agreed, lambda again: run(again, None)[0])
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
    support = _support(good, n_support, rng)
    aggregation = merged(
        [fit.message for fit in good],
        support,
        n_experts,
        method,
        random_state=rng,
        n_threads=effective_n_jobs(n_jobs),
    )

    # 4) towards the maximum-likelihood answer of all rows
    if refine:
        rest = [task.shard for task in tasks if task.shard.name not in left_out]
        state = refine_shards(
            rest,
            aggregation.model,
            refine,
            scaling=Scaling.of(support),
            classes=None if coded else classes,
            alpha=(options or {}).get("alpha", ALPHA),
            engine=engine,
            retries=retries,
            timeout=timeout,
            on_error=on_error,
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


def _support(fits: Sequence[LocalFit], n_points: int, rng: np.random.Generator) -> Floats:
    """Draw support points from what the shards brought back, in proportion to their rows."""
    support = draw_support(
        [fit.points for fit in fits],
        n_points,
        site_weight=[fit.n_rows for fit in fits],
        random_state=rng,
    )
    columns = support.shape[1]
    if len(support) < columns:  # each point several times, which changes nothing
        support = np.tile(support, (-(-columns // len(support)), 1))
    return support


def _agreed(fits: Sequence[LocalFit], n_experts: int, rng: np.random.Generator) -> MoE:
    """Return what some of the fits that do not stand out are merged into."""
    deviations = likelihood_deviations([fit.message for fit in fits])
    usual = np.flatnonzero(deviations >= -_USUAL)
    if len(usual) > _ASKED:
        usual = np.sort(rng.choice(usual, _ASKED, replace=False))
    some = [fits[int(i)] for i in usual]
    support = _support(some, N_POINTS // 4, rng)
    return merged([fit.message for fit in some], support, n_experts, "reduction").model


def _offered(
    tasks: Sequence[Task],
    fits: Sequence[LocalFit],
    agreed: MoE | None,
    run: Callable[[Sequence[Task]], list[LocalFit | None]],
) -> tuple[list[LocalFit], tuple[str, ...]]:
    """Let small and doubtful shards set out from the model that others agree on."""
    if agreed is None:
        return list(fits), ()
    deviations = likelihood_deviations([fit.message for fit in fits])
    asked = [i for i, fit in enumerate(fits) if fit.n_rows <= _SMALL or deviations[i] < -_DOUBTFUL]
    again = [
        replace(tasks[i], n_points=0, options={**tasks[i].options, "init": agreed}) for i in asked
    ]
    better = dict(zip(asked, run(again), strict=True))
    fits, before = [_better(fit, better.get(i)) for i, fit in enumerate(fits)], fits
    gains = [
        fit.message.log_likelihood - first.message.log_likelihood
        for fit, first in zip(fits, before, strict=True)
    ]
    return fits, tuple(tasks[i].shard.name for i, gain in enumerate(gains) if gain >= 1)


def _better(first: LocalFit, again: LocalFit | None) -> LocalFit:
    """Return the likelier of two fits of the same rows, with the seconds of both."""
    if again is None:
        return first
    better = again.message.log_likelihood > first.message.log_likelihood + _SAME
    return replace(
        first,
        message=again.message if better else first.message,
        seconds=first.seconds + again.seconds,
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
        fits[i] = _better(fits[i], again)
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
