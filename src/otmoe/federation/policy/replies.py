"""Replies with fewer digits: as many as their standard errors justify (maths 21)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from otmoe.arrays.numerics import Floats, block_sum, to_numpy
from otmoe.federation.policy.rounding import rounded
from otmoe.likelihood.answers import FeatureMoments, Rounding, SiteInformation
from otmoe.likelihood.grouped import Scatter
from otmoe.likelihood.information import Information
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE

_SINGULAR = 1e-9  # curvature over the largest that counts as none


@dataclass(frozen=True)
class _Steps:
    """Steps to which a reply is rounded, in standard errors.

    Attributes
    ----------
    digits : float
        Of what is not solved for: log-likelihood, mass, moments.
    score : float
        Of the score: smaller by the root of the least curvature, so that no coefficient moves by
        more than `digits` in its own standard errors, however features hang together.
    matrix : float
        Of the information and the scatter, over the root of their diagonal.
    """

    digits: float
    score: float
    matrix: float


def steps_of(information: Information, n_rows: int, digits: float) -> _Steps:
    """Return how finely a reply has to be rounded to lose no more than `digits`.

    Parameters
    ----------
    information : Information
    n_rows : int
    digits : float
        A fraction of a standard error.
    """
    matrix = information.matrix
    unit = np.sqrt(np.abs(np.diagonal(matrix)))
    some = unit > 0
    scaled = matrix[np.ix_(some, some)] / np.outer(unit[some], unit[some])
    values = np.abs(linalg.eigvalsh(scaled)) if len(scaled) else np.ones(1)
    least = min(float(np.min(values, initial=1.0, where=values > _SINGULAR)), 1.0)
    entries = min(1 / np.sqrt(n_rows), least / np.sqrt(len(unit)))
    return _Steps(digits, digits * np.sqrt(least), digits * entries)


def noise_of(steps: _Steps) -> float:
    """Return the variance of the rounding of the score, over that of the score."""
    return steps.score**2 / 12


def rounded_reply(found: SiteInformation, model: MoE, rows: Rows, steps: _Steps) -> SiteInformation:
    """Return what a site replies, with fewer digits.

    Parameters
    ----------
    found : SiteInformation
    model : MoE
        That is asked about, on the user's scale.
    rows : Rows
        On the user's scale.
    steps : _Steps
    """
    sums, n = found.information, len(rows)
    unit = np.sqrt(np.abs(np.diagonal(sums.matrix)))
    likelihood = steps.digits * _spread(model, rows) * np.sqrt(n)
    information = Information(
        float(rounded(np.float64(sums.log_likelihood), np.float64(likelihood))),
        rounded(sums.score, steps.score * unit),
        _rounded_matrix(sums.matrix, steps.matrix),
        _rounded_mass(sums.mass, found.n_samples, steps.digits),
    )
    moments, scatter = found.moments, found.scatter
    if moments is not None:
        sd = np.sqrt(moments.var)
        moments = FeatureMoments(
            rounded(moments.mean, steps.digits * sd / np.sqrt(n)),
            np.maximum(rounded(moments.var, steps.digits * moments.var * np.sqrt(2 / n)), 0.0),
        )
    if scatter is not None:
        scatter = _rounded_scatter(scatter, information.score, steps.matrix)
    return replace(
        found,
        information=information,
        moments=moments,
        scatter=scatter,
        rounding=Rounding(steps.digits, likelihood),
    )


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


def _rounded_scatter(scatter: Scatter, score: Floats, step: float) -> Scatter:
    """Return a scatter that is still one of scores with this sum: its diagonal is rounded up."""
    unit = np.sqrt(np.diagonal(scatter.matrix))
    matrix = _rounded_matrix(scatter.matrix, step)
    # An error of half a step in each of P entries of a row moves no eigenvalue by more than this.
    matrix[np.diag_indices_from(matrix)] += 0.5 * len(unit) * step * unit**2
    return replace(scatter, matrix=matrix)
