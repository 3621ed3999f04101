"""Fewer digits: what is sent is rounded to what one row could change (docs/policy.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.data.sketch import Sketch
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Moments, Scaling
from otmoe.model.mixture import MoE

ONE_ROW = 2.0
"""One row changes a mean over n rows by about a standard error over the root of n: so many of these
are a step, at least."""

COUNTS = 5
"""Counts, and sums of products of dummies, are rounded to multiples of this."""

_DIGITS = 12  # significant, of what is computed from rounded numbers: enough to be the same number
_FEW_DIGITS = 1e-3  # of a parameter about which no row says anything

_NICE = np.array([1.0, 2.0, 5.0, 10.0])


def nice(value: Floats) -> Floats:
    """Return the largest of 1, 2, 5 times a power of ten that is not above each value.

    Examples
    --------
    >>> nice(np.array([0.034, 7.0, 1.0]))
    array([0.02, 5.  , 1.  ])
    """
    value = np.asarray(value, dtype=np.float64)
    power = 10.0 ** np.floor(np.log10(value) + 1e-12)
    digit = _NICE[np.searchsorted(_NICE, value / power * (1 + 1e-12), side="right") - 1]
    return np.asarray(digit * power)


def rounded(values: Floats, step: Floats) -> Floats:
    """Return values as multiples of steps; those of step 0 stay as they are."""
    step = np.broadcast_to(step, np.shape(values))
    unit = np.where(step > 0, step, 1.0)
    return np.where(step > 0, np.rint(values / unit) * unit, values)


def coarse_scaling(moments: Moments) -> Scaling:
    """Return a scale near mean 0 and variance 1 that tells next to nothing about the rows.

    Scales are 1, 2 or 5 times a power of ten, and centres are multiples of them.
    """
    center = moments.feature_mean
    sd = np.sqrt(np.maximum(np.diagonal(moments.feature_covariance), 0.0))
    constant = sd <= 1e-10 * np.abs(center)
    scale = nice(np.where(constant, np.maximum(np.abs(center), 1.0), sd))
    return Scaling(np.where(constant, 0.0, rounded(center, scale)), scale)


def steps(errors: Floats, digits: float, rows: Floats | float | None = None) -> Floats:
    """Return the steps to which estimates are rounded.

    Parameters
    ----------
    errors : ndarray
        Their standard errors.
    digits : float
        Fraction of a standard error.
    rows : ndarray or float, optional
        Rows behind each; a step is then no smaller than what one of them could change.

    Examples
    --------
    >>> steps(np.array([0.3]), 0.01), steps(np.array([0.3]), 0.01, rows=400)
    (array([0.002]), array([0.02]))
    """
    share = np.full(np.shape(errors), digits)
    if rows is not None:
        share = np.maximum(share, ONE_ROW / np.sqrt(np.maximum(rows, 1.0)))
    return nice(share * errors)


def rounded_model(
    model: MoE, scaling: Scaling, curvature: Floats, rows: int, expert_rows: Floats, digits: float
) -> MoE:
    """Return a model whose parameters are rounded, one by one, on a coarse scale of the features.

    There, the standard error of a parameter while the others are held is the root of one over its
    curvature, and errors of that size do no harm together: on the user's scale, slopes and
    intercepts may depend on each other to many digits.

    Parameters
    ----------
    model : MoE
        On the user's scale.
    scaling : Scaling
        The coarse scale.
    curvature : ndarray of shape (P,)
        Information about each parameter there.
    rows : int
    expert_rows : ndarray of shape (K,)
        Rows behind the gate, and behind every expert.
    digits : float
        Fraction of a standard error.
    """
    here, experts = scaling.from_user(model), model.experts
    theta = here.to_vector()
    behind = np.concatenate(
        [
            np.full(model.gate.n_parameters, float(rows)),
            np.repeat(expert_rows, experts.n_linear * experts.n_columns),
            np.tile(expert_rows, experts.n_constant),
        ]
    )
    known = curvature > 1e-12 * np.max(curvature, initial=0.0)
    errors = 1 / np.sqrt(np.where(known, curvature, 1.0))
    size = np.abs(theta)
    step = np.where(
        known,
        steps(errors, digits, behind),
        np.where(size > 0, nice(_FEW_DIGITS * np.where(size > 0, size, 1.0)), 0.0),
    )
    found = scaling.to_user(here.with_vector(rounded(theta, step)))
    found = found.tidied()
    return found.with_vector(_tidy(found.to_vector()))


def rounded_log_likelihood(value: float, rows: int, digits: float) -> float:
    """Return a log-likelihood to a whole number of nats: what one row could change, or more."""
    step = float(nice(np.array(max(digits * np.sqrt(rows), 1.0))))
    return float(np.rint(value / step) * step)


def rounded_sketch(sketch: Sketch, rows: int, digits: float) -> Sketch:
    """Return a sketch with rounded shares, means and covariances.

    Shares are rounded to five rows, so that single people do not count; moments as estimates are.

    Parameters
    ----------
    sketch : Sketch
    rows : int
        That it was made of.
    digits : float
        Fraction of a standard error.
    """
    share = min(COUNTS / rows, 0.5)
    weight = _shares(sketch.weight[None], share, least=share)[0]
    behind = (sketch.weight * rows)[:, None]
    var = np.einsum("gii->gi", sketch.cov)
    mean = rounded(sketch.mean, steps(np.sqrt(var / behind), digits, behind))
    errors = np.sqrt((var[:, :, None] * var[:, None, :] + sketch.cov**2) / behind[:, :, None])
    cov = _lifted(sketch.cov, steps(errors, digits, behind[:, :, None]))
    prob = tuple(_shares(p, share) for p in sketch.prob)
    return replace(sketch, weight=weight, mean=_tidy(mean), cov=_tidy(cov), prob=prob)


def rounded_grams(grams: Grams, scaling: Scaling, levels: Sequence[bool]) -> Grams:
    """Return Grams rounded on a coarse scale of the features: to five rows where they count.

    Parameters
    ----------
    grams : Grams
        On the user's scale.
    scaling : Scaling
        The coarse scale.
    levels : sequence of d bool
        Which features have two values.
    """
    p = len(levels) + 1
    Q = grams.matrices.shape[-1] // p
    T, back = (np.kron(np.eye(Q), t) for t in (scaling.transform, scaling.inverse))
    here = T @ grams.matrices @ T.T
    scale = np.ones(p - 1) if scaling.x_scale is None else scaling.x_scale
    unit = np.tile(np.append(1.0, np.where(levels, 1 / scale, 1.0)), Q)
    # a row's curvature in each predictor: responses have scales of their own
    intercepts = np.diagonal(here, axis1=1, axis2=2)[:, ::p]  # (K, Q)
    curvature = np.repeat(intercepts / np.maximum(grams.counts, 1e-300)[:, None], p, axis=1)
    root = np.sqrt(np.maximum(curvature, 0.0))
    size = COUNTS * np.outer(unit, unit) * root[:, :, None] * root[:, None, :]
    step = nice(np.where(size > 0, size, 1.0))
    matrices = back @ _lifted(here, step) @ back.T
    return replace(grams, matrices=_tidy((matrices + matrices.swapaxes(1, 2)) / 2))


def _shares(values: Floats, step: float, least: float = 0.0) -> Floats:
    """Return rows of shares (G, c) rounded to a step; the largest makes up for the others."""
    found = np.maximum(rounded(values, np.full(values.shape, step)), least)
    for row, before in zip(found, values, strict=True):
        largest = int(np.argmax(before))
        row[largest] = 0.0
        rest = row.sum()
        if rest >= 1.0:
            row /= rest / (1.0 - step)
        row[largest] = 1.0 - row.sum()
    return _tidy(found)


def _lifted(matrices: Floats, step: Floats) -> Floats:
    """Round symmetric matrices; their diagonals are raised until no eigenvalue is negative."""
    found = rounded(matrices, step)
    for matrix, unit in zip(found, step, strict=True):
        more = np.diag(np.diagonal(unit))
        for _ in range(200):
            scale = np.sqrt(np.maximum(np.diagonal(matrix), np.diagonal(unit)))
            if not len(scale) or np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0] > 1e-6:
                break
            matrix += more
    return found


def _tidy(values: Floats) -> Floats:
    """Return numbers without the last digits, which sums of rounded numbers leave behind."""
    size = np.abs(values)
    power = np.floor(np.log10(np.where(size > 0, size, 1.0)))
    unit = 10.0 ** (_DIGITS - 1 - power)
    return np.asarray(np.rint(values * unit) / unit)
