"""Local models merged to several numbers of experts, and what these are expected to lose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from otmoe.aggregation import merged
from otmoe.aggregation.messages import check_messages
from otmoe.aggregation.problem import Problem, prepare
from otmoe.documents.message import LocalModel
from otmoe.model.ensemble import Ensemble
from otmoe.model.mixture import MoE
from otmoe.selection.candidate import Candidate, Expectation
from otmoe.selection.scores import estimator_of
from otmoe.text.arguments import generator
from otmoe.text.sentences import Warn

_OF_EVERY_NUMBER = (Warn.SUPPORT_SHORT.code, Warn.SITES_DIFFER.code)  # with too few they do differ


def merged_to(
    messages: Iterable[LocalModel],
    support: Any,
    numbers: Iterable[int],
    method: str,
    site_weight: Any,
    random_state: Any,
    n_jobs: int | None,
) -> tuple[Candidate, ...]:
    """Merge local models to each number of experts.

    Parameters
    ----------
    messages, support, site_weight, random_state, n_jobs
        As in :func:`otmoe.aggregate`.
    numbers : iterable of int
    method : str
        As there; but "auto" is "kl", since one expert is one of the numbers, unless rows of a group
        share their expert.
    """
    messages = check_messages(messages)
    numbers = sorted(numbers)
    by_row = messages[0].model.expert_per == "row"
    method = "kl" if method == "auto" and by_row else method
    seed = int(generator(random_state).integers(2**31))  # the same points for every number
    # All numbers are judged at the same covariates, and none of these serve to merge: of the places
    # that are drawn, the largest number takes the most.
    judge = prepare(messages, support, numbers[-1], site_weight, None, generator(seed))
    found = []
    for K in numbers:
        result = merged(messages, support, K, method, site_weight, seed, n_jobs)
        found.append(
            Candidate(
                K,
                result.model,
                None,
                result.cost,
                result.timings["total"],
                tuple(w for w in result.warnings if w.code not in _OF_EVERY_NUMBER),
                estimator_of(result.model),
                result,
                _expectation(judge, result.model) if by_row else None,
            )
        )
    return tuple(found)


def _expectation(problem: Problem, model: MoE) -> Expectation:
    """Return what the sites' own models expect of a merged one."""
    if isinstance(model, Ensemble):
        return Expectation(np.nan, np.nan, problem.n_rows)
    rows, n_sites = problem.fresh_rows, len(problem.models)
    lost, apart = rows.losses(model, n_sites), rows.distances(model, n_sites)
    return Expectation(problem.mean(lost), problem.mean(apart), problem.n_rows)
