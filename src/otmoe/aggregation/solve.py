"""One merging: checks, screening, one of the methods, and what the sites expect to lose by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from otmoe.aggregation.choice import auto, expected_losses
from otmoe.aggregation.contribution import Outcome
from otmoe.aggregation.densities import kl
from otmoe.aggregation.gram import gram
from otmoe.aggregation.messages import remaining
from otmoe.aggregation.methods import (
    aligned_average,
    ensemble,
    greedy,
    middle,
    reduction,
    weighted_average,
)
from otmoe.aggregation.problem import Problem, prepare
from otmoe.aggregation.robust import ROBUST
from otmoe.aggregation.screening import Screening, screened
from otmoe.arrays.numerics import Array, Floats, design, to_numpy
from otmoe.documents.message import LocalModel
from otmoe.documents.model import ModelRecord, check_model, model_document
from otmoe.model.ensemble import Ensemble
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput, MessageError
from otmoe.text.records import typed
from otmoe.text.sentences import Error

Method = Callable[[Problem, np.random.Generator], Outcome]

METHODS: dict[str, Method] = {
    "auto": auto,
    "reduction": reduction,
    "kl": kl,
    "gram": gram,
    "middle": middle,
    "weighted_average": weighted_average,
    "aligned_average": aligned_average,
    "greedy": greedy,
    **ROBUST,
    "ensemble": ensemble,
}


@dataclass(frozen=True)
class Solved:
    """What has come of a merging.

    Attributes
    ----------
    problem : Problem
        Without the sites that were left out.
    screening : Screening
    outcome : Outcome
    lost : ndarray of shape (U,)
        Nats per row that each distinct model is expected to lose.
    timings : dict of float
        Seconds by stage.
    """

    problem: Problem
    screening: Screening
    outcome: Outcome
    lost: Floats = field(repr=False)
    timings: Mapping[str, float] = field(repr=False)


def solved(
    messages: Iterable[LocalModel],
    support: Any,
    n_experts: int | None,
    method: str,
    site_weight: Any,
    rng: np.random.Generator,
    pool: Executor | None = None,
    outliers: str | None = None,
    keep: Sequence[str] = (),
    max_weight: float | None = None,
) -> Solved:
    """Check, screen and merge; arguments are those of :func:`otmoe.aggregate`."""
    begin = perf_counter()
    problem = prepare(messages, support, n_experts, site_weight, pool, rng)
    prepared = perf_counter()
    _check_names(keep, problem.messages)
    screening = screened(problem, outliers, keep, max_weight)
    if screening.left_out or screening.counted:
        kept, weight = remaining(problem.messages, site_weight, screening.left_out)
        problem = prepare(kept, support, n_experts, weight, pool, rng, counted=screening.counted)
    problem = replace(problem, suspects=screening.suspects(problem))
    known = perf_counter()
    with merging(problem):
        outcome = METHODS[method](problem, rng)
        if not isinstance(outcome.model, Ensemble):
            per = problem.models[0].expert_per
            outcome = replace(outcome, model=replace(outcome.model.tidied(), expert_per=per))
        _check_saveable(outcome.model)
        done = perf_counter()
        lost = expected_losses(problem, outcome.model) if outcome.lost is None else outcome.lost
    timings = {
        "checks": prepared - begin,
        "screening": known - prepared,
        **outcome.timings,
        "method": done - known,
    }
    return Solved(problem, screening, outcome, lost, timings)


def _check_names(keep: Sequence[str], messages: Sequence[LocalModel]) -> None:
    names = [message.site for message in messages]
    unknown = sorted(set(keep) - set(names))
    if unknown:
        raise InvalidInput(Error.KEEP_UNKNOWN, names=unknown, sites=names)


@contextmanager
def merging(problem: Problem) -> Iterator[None]:
    """Say whose model it is where numbers end: a merging fails with a sentence, or not at all."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
    except (ArithmeticError, MessageError, np.linalg.LinAlgError, ValueError) as error:
        if isinstance(error, InvalidInput) and not isinstance(error, MessageError):
            raise
        size = [largest_prediction(model, problem.sources.X) for model in problem.models]
        name = problem.name(int(np.argmax(size)))
        raise InvalidInput(Error.NOT_MERGED, site=name, problem=str(error)) from error


def largest_prediction(model: MoE, X: Array) -> float:
    """Return the largest linear predictor of a model at some points, or its largest variance."""
    few = np.asarray(to_numpy(X[:100, :]), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(model.experts.predictor(design(few))).max(initial=0.0)
        size = max(size, np.abs(model.experts.to_vector()).max(initial=0.0))
    return float(np.nan_to_num(size, nan=np.inf))


def _check_saveable(model: MoE) -> None:
    """Refuse a merged model that no file could hold: numbers too large, variances too small."""
    if not isinstance(model, Ensemble):
        record = typed(ModelRecord, model_document(model), "merged model")
        check_model(record, None, "merged model", None)
