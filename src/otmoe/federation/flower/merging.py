"""What nodes sent, merged; without those that cannot be, where that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from warnings import catch_warnings, simplefilter

import numpy as np

from otmoe.aggregation import Aggregation, aggregate
from otmoe.arrays.numerics import Floats
from otmoe.documents.message import LocalModel
from otmoe.federation.flower.nodes import log, refusal_of
from otmoe.federation.requests import Plan, Request
from otmoe.workers.failures import Failure, TasksFailed


@dataclass(frozen=True)
class Reply:
    """What a node sent.

    Attributes
    ----------
    node : str
        Its number, and the name under which it was registered.
    text : bytes
        As it came.
    message : LocalModel
    number : int
        Of the node.
    """

    node: str
    text: bytes
    message: LocalModel
    number: int


def merged(
    request: Request,
    plan: Plan,
    replies: list[Reply],
    support: Floats | int,
    failures: list[Failure],
) -> tuple[list[Reply], list[Failure], Aggregation]:
    """Merge messages, as the plan says; without those that cannot be merged, if it allows that."""
    try:
        return replies, failures, _merge(request, plan, replies, support)
    except Exception:
        if plan.on_error == "raise" or len(replies) < 2:
            raise
    kept: list[Reply] = []
    for reply in replies:  # one by one: which of them cannot even be merged by itself?
        try:
            _merge(request, plan, [reply], support)
            kept.append(reply)
        except Exception as error:
            failures = [*failures, Failure(reply.node, refusal_of(error, reply.node))]
            log.error("otmoe: %s", failures[-1])
    if not kept:
        raise TasksFailed(failures)
    return kept, failures, _merge(request, plan, kept, support)


def _merge(
    request: Request, plan: Plan, replies: Sequence[Reply], support: Floats | int
) -> Aggregation:
    weight = {"rows": None, "equal": np.ones(len(replies)), "covariate": "covariate"}
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # they are in the result, one by one
        return aggregate(
            [reply.message for reply in replies],
            support,
            method=plan.method,
            site_weight=weight[plan.site_weight],
            outliers=plan.outliers,
            random_state=request.seed,
        )
