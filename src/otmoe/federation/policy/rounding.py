"""Fewer digits: what is sent is rounded to what one row could change, or to less (maths 21)."""

from __future__ import annotations

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.rows import Moments, Scaling

ONE_ROW = 2.0
"""Steps are at least this many standard errors over the root of the rows behind them."""

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
    mean = moments.gram[0, 1:-1] / moments.gram[0, 0]
    variance = np.diagonal(moments.gram)[1:-1] / moments.gram[0, 0] - mean**2
    center = moments.shift[:-1] + mean
    sd = np.sqrt(np.maximum(variance, 0.0))
    constant = sd <= 1e-10 * np.abs(center)
    scale = nice(np.where(constant, np.maximum(np.abs(center), 1.0), sd))
    return Scaling(np.where(constant, 0.0, rounded(center, scale)), scale)
