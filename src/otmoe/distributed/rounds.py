"""Refine rounds over workers: shards answer where their rows are (maths 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from otmoe.data.shards import ArrayShard, RowsShard, Shard
from otmoe.distributed.task import check_unchanged, read, rows_in, rows_of
from otmoe.likelihood.answers import (
    SiteInformation,
    joint_information,
    site_information,
)
from otmoe.likelihood.rounds import Refinement, advance, judged
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error
from otmoe.workers.failures import Failure, TasksFailed
from otmoe.workers.gather import HERE, Progress, Workers, gather

_BATCH = 8192  # rows of shards that are asked together (`python -m benchmarks refine`)


@dataclass(frozen=True)
class Question:
    """What a shard is asked in a round; it travels to where the rows are.

    Attributes
    ----------
    shard : Shard
    model : MoE
        On the user's scale.
    scaling : Scaling
        Of the parameters in which the answer is expressed.
    target : Target
    moments : bool
        Whether to add the moments of the features: once is enough.
    scatter : bool
        Whether to add the scatter of the scores: of groups, where the shard reads them.
    seen : tuple of float
        Fingerprint of the rows when they were fitted; empty if it was not computed.
    matrix : bool
        Whether information is asked for, or the log-likelihood alone.
    """

    shard: Shard
    model: MoE
    scaling: Scaling
    target: Target
    moments: bool = False
    scatter: bool = False
    seen: tuple[float, ...] = ()
    matrix: bool = True


def information_local(question: Question) -> SiteInformation:
    """Read one shard and return what it says about the model, where its rows are."""
    found, name = read(question.shard, keep=True), question.shard.name
    rows = rows_in(found, question.target, name)
    check_unchanged(rows, question.seen, name)
    if not question.matrix:
        return joint_information({name: rows}, question.model, question.scaling, matrix=False)
    return site_information(
        name,
        question.model,
        question.scaling,
        rows,
        moments=question.moments,
        scatter=question.scatter,
        groups=found.groups,
    )


def joint_local(questions: Sequence[Question]) -> SiteInformation:
    """Read shards of few rows and return what they say together, where their rows are."""
    if len(questions) == 1:
        return information_local(questions[0])
    first, parts = questions[0], {}
    for question in questions:
        rows = rows_of(question.shard, question.target, keep=True)
        check_unchanged(rows, question.seen, question.shard.name)
        parts[question.shard.name] = rows
    return joint_information(
        parts, first.model, first.scaling, moments=first.moments, matrix=first.matrix
    )


def batched(questions: Sequence[Question]) -> list[tuple[Question, ...]]:
    """Return questions to be asked together: neighbours whose shards have few rows.

    Batches depend only on the shards, so that sums do not depend on the workers. A shard whose rows
    have not been counted, or are on a device, is asked separately.
    """
    batches: list[tuple[Question, ...]] = []
    room = 0.0
    for question in questions:
        rows = question.seen[0] if question.seen else np.inf
        if isinstance(question.shard, RowsShard | ArrayShard):
            rows = len(question.shard.y) if isinstance(question.shard.y, np.ndarray) else np.inf
        if rows <= room:
            batches[-1] += (question,)
            room -= rows
        else:
            batches.append((question,))
            room = _BATCH - rows
    return batches


def ask(
    questions: Sequence[Question],
    workers: Workers = HERE,
    on_error: Literal["raise", "skip"] = "raise",
) -> list[SiteInformation]:
    """Return what shards say, several of few rows in one answer.

    Parameters
    ----------
    questions : sequence of Question
        The same but for the shard.
    workers : Workers
    on_error : {"raise", "skip"}
        As in :func:`refine_shards`.
    """

    def told(tasks: Sequence[tuple[Question, ...]]) -> tuple[list[Any], list[Failure]]:
        return gather(joint_local, tasks, [task[0].shard.name for task in tasks], workers)

    tasks = batched(questions)
    found, failures = told(tasks)
    if failures:  # where one of a batch fails, each is asked by itself, and fails by its name
        pairs = zip(tasks, found, strict=True)
        alone = [(q,) for task, answer in pairs if answer is None for q in task if len(task) > 1]
        single = {task[0].shard.name for task in tasks if len(task) == 1}
        again, more = told(alone)
        failures = [failure for failure in failures if failure.name in single] + more
        found += again
    if failures and (on_error == "raise" or len(failures) == len(questions)):
        raise TasksFailed(failures)
    return [answer for answer in found if answer is not None]


def check_rounds(rounds: Any) -> None:
    """Refuse what is neither a number of rounds nor "auto"."""
    if rounds != "auto" and (
        isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < 0
    ):
        raise InvalidInput(Error.ROUNDS_WRONG, value=rounds)


def refine_shards(
    shards: Sequence[Shard],
    model: MoE,
    rounds: int | str,
    *,
    scaling: Scaling,
    target: Target | None = None,
    ridge: Ridge | None = None,
    workers: Workers = HERE,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
    seen: Mapping[str, tuple[float, ...]] | None = None,
) -> Refinement:
    """Refine a model towards the maximum-likelihood estimate of all shards, one pass per round.

    After a given number of rounds, the shards check the last step, which is undone if it lowered
    the likelihood.

    Parameters
    ----------
    shards : sequence of Shard
    model : MoE
        Where to begin, on the user's scale.
    rounds : int or "auto"
        "auto" stops within a thousandth of a standard error of the maximum.
    scaling : Scaling
        Some standardisation of the features, such as that of support points.
    target : Target, optional
        What the shards' y is; by default the model's response.
    ridge : Ridge, optional
        By default that of the family.
    workers : Workers
    on_error : {"raise", "skip"}
        Whether a shard that does not answer stops everything, or the round continues without it and
        names it in `missing`.
    progress : callable, optional
        Called as progress(rounds answered, rounds at most, status).
    seen : dict of tuple of float, optional
        Fingerprints of the shards when they were fitted: one whose rows have changed since fails.
    """
    check_rounds(rounds)
    target = Target.of(model) if target is None else target
    state = Refinement(model, scaling, Ridge.of(model.experts) if ridge is None else ridge)
    names, known = [shard.name for shard in shards], seen or {}

    def asked(**what: bool) -> list[SiteInformation]:
        return ask(
            [
                Question(s, state.model, scaling, target, seen=known.get(s.name, ()), **what)
                for s in shards
            ],
            workers,
            on_error,
        )

    while not state.is_done(rounds):
        state = advance(state, asked(moments=state.pooled is None), names)
        if progress is not None:
            total = state.rounds if rounds == "auto" else int(rounds)
            progress(state.rounds, total, str(state.status))
    if not state.is_unseen(rounds):
        return state
    # check the last step, which takes a quarter of a pass
    look = asked(matrix=False)
    return judged(state, {name: v for answer in look for name, v in answer.log_likelihoods.items()})
