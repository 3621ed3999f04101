"""Refine rounds over workers: shards answer where their rows are (maths 14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from otmoe.data.shards import Shard
from otmoe.distributed.task import check_unchanged, read, rows_in, rows_of
from otmoe.likelihood.answers import SiteInformation, site_information, site_log_likelihood
from otmoe.likelihood.rounds import Refinement, advance, judged
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error
from otmoe.workers.gather import HERE, Progress, TasksFailed, Workers, gather


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
        Fingerprint of the rows when they were fitted; empty where nobody took it.
    """

    shard: Shard
    model: MoE
    scaling: Scaling
    target: Target
    moments: bool = False
    scatter: bool = False
    seen: tuple[float, ...] = ()


def information_local(question: Question) -> SiteInformation:
    """Read one shard and return what it says about the model, where its rows are."""
    found, name = read(question.shard), question.shard.name
    rows = rows_in(found, question.target, name)
    check_unchanged(rows, question.seen, name)
    return site_information(
        name,
        question.model,
        question.scaling,
        rows,
        moments=question.moments,
        scatter=question.scatter,
        groups=found.groups,
    )


def likelihood_local(question: Question) -> float:
    """Read one shard and return the log-likelihood alone, where its rows are."""
    rows = rows_of(question.shard, question.target)
    check_unchanged(rows, question.seen, question.shard.name)
    return site_log_likelihood(question.model, question.scaling, rows)


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
    """Bring a model closer to the maximum-likelihood answer of all shards, one pass a round.

    After a given number of rounds, the shards say whether the last step was a good one; if not,
    it is taken back.

    Parameters
    ----------
    shards : sequence of Shard
    model : MoE
        Where to begin, on the user's scale.
    rounds : int or "auto"
        "auto" stops a thousandth of a standard error from the maximum.
    scaling : Scaling
        Some standardisation of the features, such as that of support points.
    target : Target, optional
        What the shards' y is; by default the model's response.
    ridge : Ridge, optional
        By default that of the family.
    workers : Workers
    on_error : {"raise", "skip"}
        Whether a shard that does not answer stops everything, or the round goes on without it and
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

    def asked(function: Callable[[Question], Any], moments: bool = False) -> list[Any]:
        questions = [
            Question(shard, state.model, scaling, target, moments, seen=known.get(shard.name, ()))
            for shard in shards
        ]
        found, failures = gather(function, questions, names, workers)
        if failures and (on_error == "raise" or len(failures) == len(shards)):
            raise TasksFailed(failures)
        return found

    while not state.is_done(rounds):
        found = asked(information_local, moments=state.pooled is None)
        state = advance(state, [reply for reply in found if reply is not None], names)
        if progress is not None:
            total = state.rounds if rounds == "auto" else int(rounds)
            progress(state.rounds, total, str(state.status))
    if not state.is_unseen(rounds):
        return state
    # nobody has seen the last step: one look, a quarter of a pass
    told = zip(names, asked(likelihood_local), strict=True)
    return judged(state, {name: value for name, value in told if value is not None})
