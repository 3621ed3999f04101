"""Refine rounds over an executor: shards answer where their rows are (maths 14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.data.shards import Shard
from otmoe.distributed.task import rows_of
from otmoe.likelihood.fit import ALPHA
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rounds import Refinement, SiteInformation, advance, judged, site_information
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error
from otmoe.workers.gather import Engine, Progress, TasksFailed, gather


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
    moments : bool
        Whether to add the moments of the features: once is enough.
    """

    shard: Shard
    model: MoE
    scaling: Scaling
    classes: Floats | None = None
    moments: bool = False


def answer_local(question: Question) -> SiteInformation:
    """Read one shard and answer, where its rows are."""
    rows = rows_of(question.shard, question.classes)
    return site_information(
        question.shard.name, question.model, question.scaling, rows, moments=question.moments
    )


def glance_local(question: Question) -> float:
    """Read one shard and return the log-likelihood alone, where its rows are."""
    rows = replace(rows_of(question.shard, question.classes), scaling=question.scaling)
    here = question.scaling.from_user(question.model)
    base = rows.log_base(question.model.experts)
    return observed_information(here, rows, matrix=False).log_likelihood + base


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
    classes: Floats | None = None,
    alpha: float = ALPHA,
    engine: Engine | None = None,
    retries: int = 2,
    timeout: float | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
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
    classes : ndarray, optional
        Class labels, where y holds labels rather than class numbers.
    alpha : float
        As in :func:`otmoe.likelihood.fit.em`.
    engine, retries, timeout
        Of :func:`otmoe.workers.gather.gather`.
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
        first = state.pooled is None
        questions = [Question(shard, state.model, scaling, classes, first) for shard in shards]
        found, failures = gather(
            answer_local, questions, names, engine, retries=retries, timeout=timeout
        )
        answers = [a for a in found if a is not None]
        if failures and (on_error == "raise" or not answers):
            raise TasksFailed(failures)
        state = advance(state, answers, names)
        if progress is not None:
            total = state.rounds if rounds == "auto" else int(rounds)
            progress(state.rounds, total, str(state.status))
    if state.best is None or state.converged:
        return state
    # nobody has seen the last step: one glance, a quarter of a pass
    questions = [Question(shard, state.model, scaling, classes) for shard in shards]
    found, failures = gather(
        glance_local, questions, names, engine, retries=retries, timeout=timeout
    )
    if failures and (on_error == "raise" or len(failures) == len(shards)):
        raise TasksFailed(failures)
    seen = zip(names, found, strict=True)
    return judged(state, {name: value for name, value in seen if value is not None})
