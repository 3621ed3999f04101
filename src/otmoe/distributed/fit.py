"""From shards to one model: a shared search, local fits, aggregation, refinement."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from otmoe.aggregation import Aggregation, merged
from otmoe.aggregation.covariates import MOST_COVARIATES
from otmoe.aggregation.disagreement import THRESHOLD, likelihood_deviations
from otmoe.aggregation.support import N_SUPPORT, Support, draw_support
from otmoe.data.shards import Shard
from otmoe.data.shards.held import letting_go
from otmoe.distributed.arguments import OnError, check_arguments, weights_by_name
from otmoe.distributed.passes import em_shards
from otmoe.distributed.result import DistributedFit
from otmoe.distributed.rounds import refine_shards
from otmoe.distributed.saved import SavedFits, Start, check_folder, contents_of
from otmoe.distributed.start import searched_again, shared_start
from otmoe.distributed.task import LocalFit, Task, check_apart, fit_local
from otmoe.likelihood.ascent import Clock
from otmoe.likelihood.rows import Scaling
from otmoe.model.experts import FAMILIES
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.text.arguments import generator
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Finding
from otmoe.workers.failures import Failure, TasksFailed
from otmoe.workers.gather import HERE, Progress, Workers, gather


@letting_go()
def fit_shards(
    shards: Sequence[Shard],
    n_experts: int,
    *,
    target: Target | None = None,
    method: str = "auto",
    refine: int | str = 0,
    site_weight: Any = None,
    feature_names: tuple[str, ...] | None = None,
    n_support: int = N_SUPPORT,
    options: Mapping[str, Any] | None = None,
    workers: Workers = HERE,
    on_error: OnError = "raise",
    random_state: Any = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    keep_fits: str | os.PathLike[str] | None = None,
) -> DistributedFit:
    """Fit every shard where its rows are, and merge the local models into one.

    A shard in a wrong optimum is worse than none, and a small one ends there often. So one search
    on rows drawn from many shards serves all of them: each starts from the maximum that it found
    (:mod:`otmoe.distributed.start`). A shard whose log-likelihood per row still stands out searches
    separately, and is left out and named if that does not help. The result depends only on the
    shards, their order and the seed, not on the executor, the number of workers, or their timing.

    Parameters
    ----------
    shards : sequence of Shard
    n_experts : int
    target : Target, optional
        What y is; by default a number.
    method : str
        Of :func:`otmoe.aggregate`; or "em", which merges by the reduction and then runs exact EM
        over all shards, to the fit of pooled rows (:mod:`otmoe.distributed.passes`).
    refine : int or "auto"
        Refine rounds, one pass over the rows each, towards the maximum-likelihood estimate from all
        rows (:mod:`otmoe.likelihood.rounds`); "auto" for as many as needed.
    site_weight : sequence or mapping of float, or "covariate", optional
        How much a shard counts in the merging, as in :func:`otmoe.aggregate`; by default by its
        rows.
    feature_names : tuple of str, optional
        By default those of the shards' specification.
    n_support : int
        Rows of X at which experts are compared; each shard brings back its share, and as many as
        it takes to speak for itself where densities are merged (maths 17).
    options : dict, optional
        Of :func:`otmoe.likelihood.fit.em`, such as `alpha`.
    workers : Workers
        Where the local fits run; by default here, one after another.
    on_error : {"raise", "skip"}
        What to do about shards that fail: raise :class:`~otmoe.workers.failures.TasksFailed`, or go
        on without them and name them in `failures`.
    random_state : int, Generator or None
    n_jobs : int, optional
        Threads of the aggregation.
    progress : callable, optional
        Called as progress(shards done, shards in all, name).
    keep_fits : path, optional
        Folder that keeps the local fits (:mod:`otmoe.distributed.saved`). Where it holds some, of
        the same rows by the same options, these are not done again: a run that was interrupted
        goes on, and one with more shards fits the new ones, from where the others began.

    Returns
    -------
    DistributedFit
    """
    check_arguments(shards, method, refine, on_error)
    weight = weights_by_name(site_weight, shards)
    clock, rng = Clock(), generator(random_state)
    again = bool(refine) or method == "em"
    plan = _Plan(n_experts, target or Target(), options or {}, workers, on_error, again=again)
    if keep_fits is not None:
        check_folder(Path(keep_fits))
        seed = rng.bit_generator.state["state"]
        plan = replace(
            plan, saved=SavedFits(Path(keep_fits), contents_of(shards, workers), (seed,))
        )
    if plan.target.expert_per == "group":
        check_apart(shards, workers)
    tasks = _tasks(plan, shards, method, site_weight, feature_names, rng)

    # 1) where the maximum is
    own = np.random.default_rng(int(rng.integers(2**31)))  # so that later draws do not depend on it
    start, n_shards, agreement = plan.start(shards, own)
    ridge = plan.ridge.shared(n_shards)
    local = {"init": start, "alpha": ridge.gate, "expert_alpha": ridge.experts}
    share = _share(method, n_support, n_shards)
    tasks = [
        replace(t, options={**t.options, **local}, n_support=share, again=again) for t in tasks
    ]
    clock.lap("search")
    # 2) every shard from there; then what stands out, by a search of its own
    tasks, fits, failures, empty = _fit_once(plan, tasks, progress)
    fits, refitted = searched_again(tasks, fits, plan.run)
    left_out = _left_out(fits)
    clock.lap("fits")
    # 3) one model of those that agree
    good = [fit for fit in fits if fit.message.site not in left_out]
    support = support_of(good, n_support, rng)
    aggregation = merged(
        [fit.message for fit in good],
        support,
        n_experts,
        "reduction" if method == "em" else method,
        {fit.message.site: weight[fit.message.site] for fit in good}
        if isinstance(weight, Mapping)
        else weight,
        random_state=rng,
        n_jobs=n_jobs,
        outliers="flag",
    )
    clock.lap("aggregation")
    # 4) towards the maximum-likelihood answer of all rows
    shards = [task.shard for task in tasks]
    plan = replace(plan, seen={fit.message.site: fit.fingerprint for fit in fits})
    if method == "em":  # of every shard that was read, also where its own fit is left out
        aggregation = _maximised(plan, shards, aggregation)
    elif refine:
        rest = [shard for shard in shards if shard.name not in left_out]
        aggregation = _refined(plan, rest, aggregation, refine)
    clock.lap("refine")
    return DistributedFit(
        replace(aggregation, left_out=left_out, brought=sum(len(fit.support) for fit in fits)),
        tuple(fit.message for fit in fits),
        np.array([fit.seconds for fit in fits]),
        start,
        refitted,
        tuple(failures),
        sum(fit.n_rows for fit in fits),
        sum(fit.dropped for fit in fits),
        {**clock.laps, "total": sum(clock.laps.values())},
        sum((Counter(fit.missing) for fit in fits), Counter()),
        empty,
        agreement,
        tuple(fit.message.site for fit in fits if fit.reused),
        support,
    )


def support_of(fits: Sequence[LocalFit], n_support: int, rng: np.random.Generator) -> Support:
    """Draw support points from what the shards returned, in proportion to their rows."""
    support = draw_support(
        {fit.message.site: fit.support for fit in fits},
        n_support,
        site_weight=[fit.n_rows for fit in fits],
        random_state=rng,
    )
    times = -(-support.shape[1] // len(support))
    if times == 1:
        return support
    # fewer points than columns: each several times, which changes nothing
    return replace(support, rows=np.tile(support.rows, (times, 1)), site=support.site * times)


@dataclass(frozen=True)
class _Plan:
    """What every stage needs to know."""

    n_experts: int
    target: Target
    options: Mapping[str, Any]
    workers: Workers
    on_error: OnError
    seen: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # fingerprints
    saved: SavedFits | None = None
    again: bool = False  # whether passes over all rows follow the fits

    @property
    def ridge(self) -> Ridge:
        options = self.options
        family = FAMILIES[self.target.family]
        return Ridge.of(family, options.get("alpha"), options.get("expert_alpha"))

    def gather(
        self, tasks: Sequence[Task], progress: Progress | None = None
    ) -> tuple[list[Any], list[Failure]]:
        if self.saved is not None:
            return self.saved.gather(tasks, self.workers, progress)
        names = [task.shard.name for task in tasks]
        return gather(fit_local, tasks, names, self.workers, progress=progress)

    def run(self, tasks: Sequence[Task]) -> list[LocalFit | None]:
        return self.gather(tasks)[0]

    def start(self, shards: Sequence[Shard], rng: np.random.Generator) -> Start:
        if self.options.get("init") is not None:
            return Start(self.options["init"], len(shards))
        here = self.n_experts, self.target, self.options

        def search() -> Start:
            fit = shared_start(shards, *here, self.workers, rng, self.again)
            found = (None, None) if fit is None else (fit.model, fit.agreement)
            return Start(found[0], len(shards), found[1])

        if self.saved is None:
            return search()
        return self.saved.start(len(shards), (*here, shards[0].features), search)

    def maximised(self, shards: Sequence[Shard], start: MoE, **bounds: Any) -> Any:
        how: dict[str, Any] = {"target": self.target, "ridge": self.ridge, "workers": self.workers}
        return em_shards(shards, start, **how, **bounds)


def _tasks(
    plan: _Plan,
    shards: Sequence[Shard],
    method: str,
    site_weight: Any,
    feature_names: tuple[str, ...] | None,
    rng: np.random.Generator,
) -> list[Task]:
    return [
        Task(
            shard,
            int(rng.integers(2**31)),
            plan.n_experts,
            plan.target,
            feature_names,
            options=plan.options,
            grams=method in ("gram", "auto"),
            sketch=isinstance(site_weight, str),
        )
        for shard in shards
    ]


def _share(method: str, n_support: int, n_shards: int) -> int:
    """Return how many support points each shard brings: enough to draw from, whatever its size."""
    share = max(-(-4 * n_support // n_shards), 50)
    return max(share, MOST_COVARIATES // n_shards) if method in ("auto", "kl") else share


def _fit_once(
    plan: _Plan, tasks: Sequence[Task], progress: Progress | None
) -> tuple[list[Task], list[LocalFit], list[Failure], tuple[str, ...]]:
    """Return the fits that were done with their tasks, those that failed, those without rows."""
    found, failures = plan.gather(tasks, progress)
    empty = tuple(f.name for f in failures if f.cause.code == Error.NO_ROWS.code)
    if len(empty) < len(tasks):
        failures = [failure for failure in failures if failure.name not in empty]
    done = [(task, fit) for task, fit in zip(tasks, found, strict=True) if fit is not None]
    if failures and (plan.on_error == "raise" or not done):
        raise TasksFailed(failures)
    return [task for task, _ in done], [fit for _, fit in done], failures, empty


def _left_out(fits: Sequence[LocalFit]) -> dict[str, Notice]:
    """Return the shards that stand out after all attempts, and by how much."""
    messages = [fit.message for fit in fits]
    pairs = zip(messages, likelihood_deviations(messages), strict=True)
    return {
        message.site: Finding.BAD_SHARD(deviations=-deviation)
        for message, deviation in pairs
        if deviation < -THRESHOLD
    }


def _refined(
    plan: _Plan, shards: Sequence[Shard], aggregation: Aggregation, rounds: int | str
) -> Aggregation:
    """Return the aggregation after refine rounds over shards."""
    state = _rounds(plan, shards, aggregation, aggregation.model, rounds)
    return aggregation.refined(state, rounds)


def _maximised(plan: _Plan, shards: Sequence[Shard], aggregation: Aggregation) -> Aggregation:
    """Return the aggregation after EM over the rows of all shards."""
    bounds = {name: plan.options[name] for name in ("max_iter", "tol") if name in plan.options}
    exact = plan.maximised(shards, aggregation.model, **bounds)
    strict = replace(plan, on_error="raise")
    return aggregation.maximised(exact, _rounds(strict, shards, aggregation, exact.model, 1))


def _rounds(
    plan: _Plan, shards: Sequence[Shard], aggregation: Aggregation, model: MoE, rounds: int | str
) -> Any:
    return refine_shards(
        shards,
        model,
        rounds,
        scaling=Scaling.of(aggregation.support),
        target=plan.target,
        ridge=plan.ridge,
        workers=plan.workers,
        on_error=plan.on_error,
        seen=plan.seen,
    )
