"""Estimates with standard errors, tests and intervals (maths 15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from otmoe.arrays.numerics import Floats
from otmoe.inference.parameters import Parameter
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

NOT_IDENTIFIED = "not identified"
FIXED = "fixed"


@dataclass(frozen=True)
class Estimate(Parameter):
    """An estimate with its uncertainty.

    Attributes
    ----------
    block : {"gate", "expert", "variance", "linear"}
    expert : int or None
    against : int or None
        The expert it is compared with: the gate's reference, or the other one of a contrast.
    label : object
        The class that the coefficient is about, in classifiers; else None.
    term : str
    estimate, se, z, p, low, high : float
        Standard error, test of zero, interval; NaN where the rows do not determine the number. z is
        the estimate over its standard error: Student's t where rows are in groups. A variance is
        not tested, and its interval is that of its logarithm, carried back.
    """

    estimate: float
    se: float
    z: float
    p: float
    low: float
    high: float

    @property
    def note(self) -> str:
        """What is to be said about it; empty if nothing."""
        if np.isnan(self.se):
            return NOT_IDENTIFIED
        return FIXED if self.se == 0 else ""


@dataclass(frozen=True)
class StandardErrors:
    """Standard errors, arranged as the parameters are; 0 for what is fixed, NaN if unknown.

    Attributes
    ----------
    gate : ndarray of shape (K, p)
        Of the coefficients relative to the last expert.
    coef : ndarray of shape (K, p), or (K, C, p) for C classes
    log_var : ndarray of shape (K,), or None
        Of the logarithms of the variances; times the variance, that of the variance itself.
    """

    gate: Floats
    coef: Floats
    log_var: Floats | None = None


@dataclass(frozen=True)
class WaldTest:
    """A test that several linear combinations of the parameters have given values.

    Attributes
    ----------
    statistic : float
        Chi-square, or Hotelling's T squared where rows are in groups; NaN where the rows do not
        determine the combinations.
    df : int
        Number of combinations, without repetitions.
    p : float
    """

    statistic: float
    df: int
    p: float


@dataclass(frozen=True)
class MeanInterval:
    """The mean of y at some rows, with intervals; y itself varies around it.

    Attributes
    ----------
    mean, se, low, high : ndarray of shape (n,), or (n, C) for probabilities of C classes
        NaN where the rows that were fitted do not determine it.
    """

    mean: Floats
    se: Floats
    low: Floats
    high: Floats


def degrees_of_freedom(n_groups: int | None) -> int | None:
    """Return the degrees of freedom of standard errors from groups of rows, G - 1 (maths 15).

    None for the normal distribution, where rows are not in groups or nobody knows in how many.

    Parameters
    ----------
    n_groups : int or None
    """
    return None if n_groups is None else n_groups - 1


def by_t(df: int | None) -> str:
    """Return in words by which distribution intervals are; empty for the normal one.

    Examples
    --------
    >>> by_t(29)
    't quantiles with 29 degrees of freedom'
    """
    if df is None:
        return ""
    return f"t quantiles with {df:,} degree{'' if df == 1 else 's'} of freedom"


def quantile(level: float, df: int | None = None) -> float:
    """Return the half width of an interval of this level, in standard errors.

    Parameters
    ----------
    level : float in (0, 1)
    df : int, optional
        Of Student's t; by default the quantile is that of the normal distribution.

    Examples
    --------
    >>> round(quantile(0.95), 2), round(quantile(0.95, df=29), 2)
    (1.96, 2.05)
    """
    if not 0 < level < 1:
        raise InvalidInput(Error.NOT_A_LEVEL, name="level", value=level)
    at = 0.5 + level / 2
    return float(stats.norm.ppf(at) if df is None else stats.t.ppf(at, df))


def estimates(
    about: Sequence[Parameter], value: Floats, se: Floats, level: float, df: int | None = None
) -> tuple[Estimate, ...]:
    """Return estimates, each with its test and interval; variances come as their logarithms.

    Parameters
    ----------
    about : sequence of m Parameter
    value, se : ndarray of shape (m,)
    level : float
    df : int, optional
        As in :func:`quantile`.
    """
    z = np.divide(value, se, out=np.full(value.shape, np.nan), where=se > 0)
    half = quantile(level, df) * se
    beyond = stats.norm.sf(np.abs(z)) if df is None else stats.t.sf(np.abs(z), df)
    columns = (value, se, z, 2 * beyond, value - half, value + half)
    return tuple(
        Estimate(what.block, what.expert, what.against, what.label, what.term, *map(float, numbers))
        for what, numbers in zip(about, np.transpose(columns), strict=True)
    )


def of_variance(log: Estimate) -> Estimate:
    """Return the estimate of a variance, given that of its logarithm."""
    value = float(np.exp(log.estimate))
    low, high = float(np.exp(log.low)), float(np.exp(log.high))
    return replace(log, estimate=value, se=value * log.se, z=np.nan, p=np.nan, low=low, high=high)
