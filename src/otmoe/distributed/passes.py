"""EM and standard errors of pooled rows, by sums over an executor (maths 4, 15).

No rows are moved and nothing is approximated: every pass sends one model to every shard and returns
sums of fixed size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from otmoe.data.identifiers import ids_among
from otmoe.data.shards import Shard, grouped_by
from otmoe.data.shards.held import letting_go
from otmoe.distributed.task import read, rows_in, rows_of
from otmoe.inference import Inference, Kind, check_floor, check_kind, inference
from otmoe.likelihood.ascent import Ascent, Clock
from otmoe.likelihood.fit import MAX_ITER, TOL, Fit, finished
from otmoe.likelihood.grouped import GroupScores, Scatter, group_scores, score_scatter
from otmoe.likelihood.information import Information, observed_information
from otmoe.likelihood.iterations import Report
from otmoe.likelihood.rank import check_constants
from otmoe.likelihood.rows import Moments, Scaling
from otmoe.likelihood.statistics import Statistics, e_step
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.workers.failures import TasksFailed
from otmoe.workers.gather import HERE, Progress, Workers, gather


@dataclass(frozen=True)
class Count:
    """A shard asked for its moments; it travels to where the rows are.

    Attributes
    ----------
    shard : Shard
    model : MoE
        On the user's scale; its family says what the log-likelihood leaves out.
    target : Target
    """

    shard: Shard
    model: MoE
    target: Target


@dataclass(frozen=True)
class Counted:
    """What a shard answers to that; answers add up.

    Attributes
    ----------
    n_rows : int
    moments : Moments
    base : float
        What iterations leave out of the log-likelihood, but for the scale of y.
    """

    n_rows: int
    moments: Moments
    base: float

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            self.n_rows + other.n_rows, self.moments + other.moments, self.base + other.base
        )


def count_local(task: Count) -> Counted:
    """Read one shard and return its moments, where its rows are."""
    rows = rows_of(task.shard, task.target, keep=True)
    return Counted(len(rows), rows.moments(), rows.log_base(task.model.experts))


@dataclass(frozen=True)
class Pass:
    """A shard's part of one pass; it travels to where the rows are.

    Attributes
    ----------
    shard : Shard
    model : MoE
        Standardised by `scaling`.
    scaling : Scaling
    target : Target
    what : {"statistics", "information", "score", "scatter", "groups"}
        "score" is the information without its matrix, "scatter" that of the scores of rows,
        "groups" the scores summed by group, of a shard that reads its groups.
    """

    shard: Shard
    model: MoE
    scaling: Scaling
    target: Target
    what: str


def pass_local(task: Pass) -> Statistics | Information | Scatter | GroupScores:
    """Read one shard and return its part of the sums, where its rows are."""
    there = read(task.shard, keep=True)
    found = rows_in(there, task.target, task.shard.name)
    rows = replace(found, scaling=task.scaling)
    if task.what == "statistics":
        return e_step(task.model, rows)
    if task.what == "scatter":
        return score_scatter(task.model, rows)
    if task.what == "groups":
        return group_scores(task.model, rows, there.groups)
    return observed_information(task.model, rows, matrix=task.what == "information")


@dataclass(frozen=True)
class ShardPasses:
    """Passes over the rows of shards.

    Sums are formed in the order of the shards, whatever the order of arrival.

    Attributes
    ----------
    shards : sequence of Shard
    scaling : Scaling
    target : Target
    workers : Workers
    """

    shards: Sequence[Shard]
    scaling: Scaling
    target: Target
    workers: Workers = HERE

    def statistics(self, model: MoE) -> Statistics:
        """Return what an EM iteration needs, at a standardised model."""
        found: Statistics = self._summed(model, "statistics")
        return found

    def information(self, model: MoE, *, matrix: bool = True) -> Information:
        """Return log-likelihood, score and (if asked for) information there."""
        found: Information = self._summed(model, "information" if matrix else "score")
        return found

    def scatter(self, model: MoE) -> Scatter:
        """Return the scatter of the scores of rows there."""
        found: Scatter = self._summed(model, "scatter")
        return found

    def groups(self, model: MoE, column: str) -> GroupScores:
        """Return the scores there, summed by the labels in a column."""
        found: GroupScores = replace(
            self, shards=[grouped_by(shard, column) for shard in self.shards]
        )._summed(model, "groups")
        return found

    def _summed(self, model: MoE, what: str) -> Any:
        tasks = [Pass(shard, model, self.scaling, self.target, what) for shard in self.shards]
        return _gathered(pass_local, tasks, self.workers)


def em_shards(
    shards: Sequence[Shard],
    init: MoE,
    *,
    target: Target | None = None,
    ridge: Ridge | None = None,
    max_iter: int = MAX_ITER,
    tol: float = TOL,
    workers: Workers = HERE,
    progress: Progress | None = None,
) -> Fit:
    """Return what ``em(X, y, init=init)`` returns on the rows of all shards, without moving a row.

    Every shard is needed in every pass: one that fails for good raises
    :class:`~otmoe.workers.failures.TasksFailed`.

    Parameters
    ----------
    shards : sequence of Shard
    init : MoE
        Where to begin, on the user's scale.
    target : Target, optional
        What the shards' y is; by default the model's response.
    ridge : Ridge, optional
        By default that of the family.
    max_iter, tol
        Of :func:`otmoe.likelihood.fit.em`.
    workers : Workers
    progress : callable, optional
        Called as progress(iterations done, at most, penalised log-likelihood in words).

    Returns
    -------
    Fit
    """
    clock = Clock()
    target = Target.of(init) if target is None else target
    counted = _counted(shards, init, target, workers)
    scaling, correlation = counted.moments.standardisation(init.experts, init.structure)
    check_constants(init.structure, scaling.constant, init.feature_names)
    total = counted.moments.total_weight
    base = counted.base + total * scaling.log_jacobian
    clock.lap("starts")

    def report(stage: str) -> Report | None:
        if progress is None:
            return None
        return lambda i, value: progress(i, max_iter, f"{stage}: {value + base:.2f}")

    passes = ShardPasses(shards, scaling, target, workers)
    ridge = Ridge.of(init.experts) if ridge is None else ridge
    search = Ascent(passes, ridge, max_iter, tol, total, direct=True)
    run = search.run(scaling.from_user(init), report, clock)
    return finished(run, search, scaling, correlation, base, counted.n_rows, clock)


@letting_go()
def inference_shards(
    shards: Sequence[Shard],
    model: MoE,
    *,
    target: Target | None = None,
    ridge: Ridge | None = None,
    kind: Kind | None = None,
    groups: str | None = None,
    workers: Workers = HERE,
) -> Inference:
    """Return what ``observed_inference(model, X, y)`` returns for the rows of all shards.

    Two passes over the rows, three for a sandwich.

    Parameters
    ----------
    shards : sequence of Shard
        Those that were fitted.
    model : MoE
        On the user's scale, at the maximum of their likelihood.
    target : Target, optional
        What the shards' y is; by default the model's response.
    ridge : Ridge, optional
        By default that of the family.
    kind : {"information", "sandwich", "clustered"}, optional
        By default "clustered" with groups and "information" without.
    groups : str, optional
        Column with the label of the group of each row, as text or whole numbers. Labels are sent,
        each with the summed score of its rows in the shard, so that a group may have rows in
        several shards, unless rows of a group share their expert.
    workers : Workers

    Returns
    -------
    Inference
    """
    kind = check_kind(kind, groups is not None, model.expert_per)
    target = Target.of(model) if target is None else target
    if model.expert_per == "group" and groups is not None:  # they are part of the likelihood
        shards, groups = [grouped_by(shard, groups) for shard in shards], None
    counted = _counted(shards, model, target, workers)
    scaling, _ = counted.moments.standardisation(model.experts, model.structure)
    check_constants(model.structure, scaling.constant, model.feature_names)
    passes = ShardPasses(shards, scaling, target, workers)
    here, total = scaling.from_user(model), counted.moments.total_weight
    check_floor(here)
    information = passes.information(here)
    base = counted.base + total * scaling.log_jacobian
    scatter = None
    if groups is not None:
        scatter = passes.groups(here, groups).scatter
    elif kind != "information":
        scatter = passes.scatter(here)
    found = inference(
        model,
        information,
        total,
        penalty=(Ridge.of(model.experts) if ridge is None else ridge).matrix(here),
        scaling=scaling,
        scatter=scatter,
        log_likelihood=information.log_likelihood + base,
    )
    alone = groups is None and model.expert_per == "row"
    shared = ids_among(shards[0].features) if alone else ()
    return replace(found, warnings=(*found.warnings, *shared))


def _counted(shards: Sequence[Shard], model: MoE, target: Target, workers: Workers) -> Counted:
    tasks = [Count(shard, model, target) for shard in shards]
    found: Counted = _gathered(count_local, tasks, workers)
    return found


def _gathered(function: Any, tasks: Sequence[Any], workers: Workers) -> Any:
    """Return the sum of what all tasks return, in their order."""
    found, failures = gather(function, tasks, [task.shard.name for task in tasks], workers)
    if failures:
        raise TasksFailed(failures)
    return reduce(add, found)
