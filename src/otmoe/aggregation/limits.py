"""How much a site may weigh by the rows that it claims (maths 12)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from otmoe.aggregation.disagreement import LEAST_SITES
from otmoe.aggregation.problem import Problem
from otmoe.arrays.numerics import Floats
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Warn

# Tried by `python -m benchmarks attacks`, halved and doubled by `python -m benchmarks constants`.
_APART = 2.0  # times what chance explains, from which a site is limited

HALF = 0.5
"""Share of the weight that a site may have whose predictions differ from the others'."""


def limited(
    problem: Problem,
    group: Floats,
    ratio: Floats,
    out: Collection[str],
    outliers: str,
    max_weight: float | None,
) -> tuple[dict[str, float], list[Notice]]:
    """Return the rows that sites count as, where their claims are limited, and warnings.

    Parameters
    ----------
    problem : Problem
    group : ndarray of int of shape (U,)
        Near-copies of each distinct model have the same number.
    ratio : ndarray of shape (G,)
        Disagreement of each group, as a multiple of what chance explains.
    out : collection of str
        Sites that are left out.
    outliers, max_weight
        Of :func:`otmoe.aggregate`.
    """
    stays = np.array([message.site not in out for message in problem.messages])
    of_message = np.where((problem.which >= 0) & stays, group[problem.which], -1)
    rows = np.array([problem.rows[of_message == g].sum() for g in range(len(ratio))])
    if max_weight is None and len(rows[rows > 0]) < LEAST_SITES:
        return {}, []
    most = HALF if max_weight is None else max_weight
    limit = _largest(rows, most)
    heavy = np.flatnonzero(rows > limit * (1 + 1e-9))
    counted: dict[str, float] = {}
    told: list[Notice] = []
    for g in heavy:
        differs = ratio[g] > _APART
        if max_weight is None and not differs:
            continue
        names = [m.site for m, h in zip(problem.messages, of_message, strict=True) if h == g]
        share = float(rows[g] / rows.sum())
        if max_weight is None and outliers == "flag":
            told.append(Warn.SITE_DOMINATES(sites=tuple(names), name=listed(names), share=share))
            continue
        told.append(
            Warn.WEIGHT_LIMITED(sites=tuple(names), names=listed(names), most=most, share=share)
        )
        for m in np.flatnonzero(of_message == g):
            counted[problem.messages[m].site] = float(problem.rows[m] * limit / rows[g])
    return counted, told


def _largest(rows: Floats, share: float) -> float:
    """Return the number of rows to which all are limited, so that none has more than a share."""
    order = np.sort(rows[rows > 0])[::-1]
    if order[0] <= share * order.sum():
        return float(order[0])
    for n in range(1, len(order)):  # the n largest are limited
        rest = order[n:].sum()
        if n * share < 1:
            limit = share * rest / (1 - n * share)
            if limit >= order[n]:
                return float(limit)
    return float(order[-1])  # so small a share that all have to be equal
