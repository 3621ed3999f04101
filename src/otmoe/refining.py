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
from otmoe.refinefile import RefineReply, RefineRequest
from otmoe.refinement import Answer, Refinement, advance, answer
from otmoe.refinerounds import reply_to
from otmoe.rows import Rows, Scaling
from otmoe.shards import Shard, ShardError, ShardRows
from otmoe.validation import check_counts, class_codes


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
    rows = _coded(question.shard.name, read(question.shard), question.model, question.classes)
    return answer(question.shard.name, question.model, question.scaling, rows)


def reply_from(request: RefineRequest, shard: Shard) -> tuple[RefineReply, ShardRows]:
    """Return what a site replies, and the rows that it has read for it.

    Parameters
    ----------
    request : RefineRequest
    shard : Shard
        The site's rows, under its name; class labels are those of the model.
    """
    found = read(shard)
    rows = _coded(shard.name, found, request.model, request.model.classes)
    return reply_to(request, rows, shard.name), found


def _coded(name: str, found: ShardRows, model: MoE, classes: Floats | None) -> Rows:
    """Return rows whose y are what the model's experts take."""
    y = found.y
    if not found.X.shape[0]:
        raise ShardError(f"{name}: it has no rows; leave it out.")
    try:
        if classes is not None:
            y = class_codes(to_numpy(y), classes)
        elif isinstance(y, np.ndarray) and y.dtype.kind == "U":
            raise ValueError("the target holds text, and the model is about numbers.")
        elif model.experts.family == "poisson":
            check_counts(to_numpy(y))
    except ValueError as error:
        raise ShardError(f"{name}: {error}") from error
    return Rows(found.X, y, found.weight, found.offset)


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
