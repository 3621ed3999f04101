"""Replies with fewer digits: as many as their standard errors justify (docs/threats.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg

from otmoe.arrays.numerics import Floats, block_sum, to_numpy
from otmoe.federation.policy.rounding import rounded
from otmoe.likelihood.answers import SCORE_STEP, FeatureMoments, Rounding, SiteInformation
from otmoe.likelihood.grouped import Scatter
from otmoe.likelihood.information import Information
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE

_SINGULAR = 1e-9  # curvature over the largest that counts as none

COARSER = (1, 2, 5, 10, 20)
"""Times the digits of the policy to which a reply is rounded before it is refused."""


def rounded_reply(found: SiteInformation, model: MoE, rows: Rows, digits: float) -> SiteInformation:
    """Return what a site replies, with fewer digits.

    The score is rounded to half of the digits, in directions in which its entries are independent:
    so coefficients seldom move by more than the digits in standard errors, however features hang
    together.

    Parameters
    ----------
    found : SiteInformation
    model : MoE
        That is asked about, on the user's scale.
    rows : Rows
        On the user's scale.
    digits : float
        A fraction of a standard error; 0 for no rounding.
    """
    if not digits:
        return found
    sums, n = found.information, len(rows)
    unit = np.sqrt(np.abs(np.diagonal(sums.matrix)))
    unit = np.where(unit > 0, unit, 1.0)
    values, vectors = linalg.eigh(sums.matrix / np.outer(unit, unit))
    values = np.abs(values)
    some = values > _SINGULAR * values.max()
    entries = _step(values[some], len(unit), n, digits)
    likelihood = digits * _spread(model, rows) * np.sqrt(n)
    root = unit[:, None] * vectors[:, some] * np.sqrt(values[some])
    back = vectors[:, some] / unit[:, None] / np.sqrt(values[some])
    score = root @ rounded(back.T @ sums.score, np.array(SCORE_STEP * digits))
    information = Information(
        float(rounded(np.array(sums.log_likelihood), np.array(likelihood))),
        score,
        _rounded_matrix(sums.matrix, entries),
        _rounded_mass(sums.mass, found.n_samples, digits),
    )
    moments, scatter = found.moments, found.scatter
    if moments is not None:
        sd = np.sqrt(moments.var)
        moments = FeatureMoments(
            rounded(moments.mean, digits * sd / np.sqrt(n)),
            rounded(moments.var, digits * moments.var * np.sqrt(2 / n)),
        )
    if scatter is not None:
        scatter = _rounded_scatter(scatter, sums.score, score, entries)
    return replace(
        found,
        information=information,
        moments=moments,
        scatter=scatter,
        rounding=Rounding(digits, likelihood),
    )


def matrix_step(found: Information, rows: int, digits: float) -> float:
    """Return the step of the entries of information and scatter, over the roots of the diagonal.

    Parameters
    ----------
    found : Information
    rows : int
    digits : float
        As in :func:`rounded_reply`.
    """
    unit = np.sqrt(np.abs(np.diagonal(found.matrix)))
    unit = np.where(unit > 0, unit, 1.0)
    values = np.abs(linalg.eigvalsh(found.matrix / np.outer(unit, unit)))
    return _step(values[values > _SINGULAR * values.max()], len(unit), rows, digits)


def _step(values: Floats, size: int, rows: int, digits: float) -> float:
    """Return a step so small that no eigenvalue of the information changes by more than digits."""
    return float(digits * min(1 / np.sqrt(rows), values.min() / np.sqrt(size)))


def _spread(model: MoE, rows: Rows) -> float:
    """Return the standard deviation of the log-likelihood of a row."""
    shift: list[float] = []

    def block(some: slice) -> Floats:
        offset = None if rows.offset is None else rows.offset[some]
        value = to_numpy(model.log_density(rows.X[some, :], rows.y[some], offset))
        weight = 1.0 if rows.weight is None else to_numpy(rows.weight[some])
        value = (value - shift[0]) * weight
        return np.array([value.sum(), value @ value])

    first = next(iter(rows.slices()))
    offset = None if rows.offset is None else rows.offset[first]
    shift.append(
        float(np.mean(to_numpy(model.log_density(rows.X[first, :], rows.y[first], offset))))
    )
    one, two = block_sum(block, rows.slices(), rows.pool) / len(rows)
    return float(np.sqrt(max(two - one**2, 0.0)))


def _rounded_matrix(matrix: Floats, step: float) -> Floats:
    unit = np.sqrt(np.abs(np.diagonal(matrix)))
    return rounded(matrix, step * np.outer(unit, unit))


def _rounded_mass(mass: Floats, total: float, digits: float) -> Floats:
    """Return rows by expert that still add up; the largest takes what is left."""
    found = rounded(mass, digits * np.sqrt(np.maximum(mass, 0.0)))
    largest = int(np.argmax(mass))
    found[largest] = 0.0
    found[largest] = total - found.sum()
    return found


def _rounded_scatter(scatter: Scatter, before: Floats, after: Floats, step: float) -> Scatter:
    """Return a scatter that is still one of scores with this sum, which was rounded as well.

    What is rounded is the scatter about the mean score; its diagonal is rounded up.
    """
    G = scatter.n_scores
    matrix = scatter.matrix - np.outer(before, before) / G
    unit = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    matrix = rounded(matrix, step * np.outer(unit, unit))
    # An error of half a step in each of P entries of a row moves no eigenvalue by more than this.
    matrix[np.diag_indices_from(matrix)] += 0.5 * len(unit) * step * unit**2
    return replace(scatter, matrix=matrix + np.outer(after, after) / G)
