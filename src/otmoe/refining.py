"""Refine rounds over an executor: shards answer where their rows are (maths 14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from otmoe.em import ALPHA
from otmoe.futures import Engine, Progress, TasksFailed, gather
from otmoe.local import read
from otmoe.model import MoE
from otmoe.numerics import Floats, to_numpy
from otmoe.refinement import Answer, Refinement, advance, answer
from otmoe.rows import Rows, Scaling
from otmoe.shards import Shard
from otmoe.validation import class_codes


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
    classes : ndarray, optional
        Class labels, where y holds labels rather than class numbers.
    """

    shard: Shard
    model: MoE
    scaling: Scaling
    classes: Floats | None = None


def answer_local(question: Question) -> Answer:
    """Read one shard and answer, where its rows are."""
    found = read(question.shard)
    y = found.y
    if question.classes is not None:
        y = class_codes(to_numpy(y), question.classes)
    rows = Rows(found.X, y, found.weight, found.offset)
    return answer(question.shard.name, question.model, question.scaling, rows)


def check_rounds(rounds: Any) -> None:
    """Refuse what is neither a number of rounds nor "auto"."""
    if rounds != "auto" and (
        isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < 0
    ):
        raise ValueError(f"refine is {rounds!r}; give a number of rounds, or 'auto'.")


def refine_shards(
    shards: Sequence[Shard],
    model: MoE,
    rounds: int | str,
    *,
    scaling: Scaling,
    classes: Floats | None = None,
    alpha: float = ALPHA,
    engine: Engine | None = None,
    retries: int = 2,
    timeout: float | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
) -> Refinement:
    """Bring a model closer to the maximum-likelihood answer of all shards, one pass a round.

    Parameters
    ----------
    shards : sequence of Shard
    model : MoE
        Where to begin, on the user's scale.
    rounds : int or "auto"
        "auto" stops a thousandth of a standard error from the maximum.
    scaling : Scaling
        Some standardisation of the features, such as that of support points.
    classes : ndarray, optional
        Class labels, where y holds labels rather than class numbers.
    alpha : float
        As in :func:`otmoe.em.em`.
    engine, retries, timeout
        Of :func:`otmoe.futures.gather`.
    on_error : {"raise", "skip"}
        Whether a shard that does not answer stops everything, or the round goes on without it and
        names it in `missing`.
    progress : callable, optional
        Called as progress(rounds answered, rounds at most, status).
    """
    check_rounds(rounds)
    state = Refinement(model, scaling, alpha)
    names = [shard.name for shard in shards]
    while not state.is_done(rounds):
        questions = [Question(shard, state.model, scaling, classes) for shard in shards]
        found, failures = gather(
            answer_local, questions, names, engine, retries=retries, timeout=timeout
        )
        answers = [a for a in found if a is not None]
        if failures and (on_error == "raise" or not answers):
            raise TasksFailed(failures)
        state = advance(state, answers, names)
        if progress is not None:
            progress(state.rounds, state.rounds if rounds == "auto" else int(rounds), state.status)
    return state
