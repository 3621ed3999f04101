"""What the scatter of scores in a reply reveals about one row or group (docs/threats.md).

A scatter B is the sum of u u' over rows or groups, u being their scores. Of all that can be made of
it, two things are measured: the share of one u in any v'Bv, at most u' B^-1 u; and what diagonals
of this scatter and of earlier ones tell together about one squared residual.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats
from otmoe.documents.request import RefineRequest
from otmoe.federation.policy.ledger import Answer
from otmoe.federation.policy.replies import matrix_step
from otmoe.federation.policy.rules import Measure, Policy, Rule
from otmoe.federation.policy.shares import Told, quadratic
from otmoe.likelihood.answers import SiteInformation
from otmoe.likelihood.grouped import group_scores
from otmoe.likelihood.information import score_sums
from otmoe.likelihood.rows import Rows

ONE = "the share of one row or group in it"
TOGETHER = "the share of one squared residual that all scatters reveal"


def judged_scatter(
    policy: Policy,
    asked: RefineRequest,
    found: SiteInformation,
    rows: Rows,
    groups: Floats | None,
    earlier: Sequence[Answer],
    digits: float,
) -> list[Measure]:
    """Check the scatter of a reply against a policy, with those of earlier replies.

    Parameters
    ----------
    policy : Policy
    asked : RefineRequest
    found : SiteInformation
        The reply, not rounded.
    rows : Rows
        On the user's scale.
    groups : ndarray of shape (n,), optional
        Labels of the groups whose scores are in the scatter; by default every row is one.
    earlier : sequence of Answer
        With the same features and family.
    digits : float
        Fraction of a standard error to which the reply is rounded.
    """
    if found.scatter is None or policy.leverage is None:
        return []
    step, limit = matrix_step(found.information, len(rows), digits), policy.leverage
    codes = None if groups is None else np.unique(groups, return_inverse=True)[1]
    past = [(a.model, _noise(a.scatter)) for a in earlier if a.scatter is not None]
    told = Told.of(asked.model, rows, past, squares=True, groups=codes)
    shares = {ONE: _largest(asked, found, rows, groups, step), TOGETHER: told.share(_noise(step))}
    return [
        Measure(Rule.SCATTER, share, limit, "pass" if share <= limit else "refuse", where)
        for where, share in shares.items()
    ]


def _noise(step: float) -> float:
    """Return the variance of the rounding of a sum of squares, over its square.

    The square of a normal residual varies by twice the square of its variance.
    """
    return step**2 / 24


def _largest(
    asked: RefineRequest, found: SiteInformation, rows: Rows, groups: Floats | None, step: float
) -> float:
    """Return the largest u' (B + E)^-1 u, E what rounding adds to v'Bv, one standard deviation."""
    assert found.scatter is not None  # the caller has looked
    matrix = found.scatter.matrix
    unit = np.sqrt(np.diagonal(matrix))
    unit = np.where(unit > 0, unit, 1.0)
    scaled = matrix / np.outer(unit, unit) + np.eye(len(unit)) * step / np.sqrt(6)
    values, vectors = linalg.eigh(scaled)
    some = values > RANK_TOLERANCE * values[-1]
    root = vectors[:, some] / np.sqrt(values[some]) / unit[:, None]
    return max(float(np.max(quadratic(u, root))) for u in _scores(asked, rows, groups))


def _scores(asked: RefineRequest, rows: Rows, groups: Floats | None) -> Iterator[Floats]:
    """Yield the scores of rows, or of groups, (G, P) in parts."""
    here, there = asked.scaling.from_user(asked.model), replace(rows, scaling=asked.scaling)
    if groups is not None:
        yield group_scores(here, there, groups).sums
        return
    for some in there.slices():
        part = there.take(np.arange(some.start, some.stop))
        yield score_sums(here, part, np.arange(len(part)), len(part))
