"""Rows that follow each other in time: how much more a site's score varies than groups say.

The scatter takes the scores of groups for independent. If neighbours are alike, sums of 2, 4, 8 and
more successive scores vary more than that, and a site's whole score more still. There is only one
such score for each site, so its variance is extrapolated along the measured growth (maths 18).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.grouped import Growth

_LENGTHS = 3  # the longest ones, from which the growth is read
_STEEPEST = 0.95  # exponent, 1 if a site's rows are all the same
_CLEARLY = 2.0  # standard errors

# Seconds of people in a row (subsets 0 to 2 of `python -m benchmarks personal`) have exponents of
# 0.28 to 0.52, the hours of stations over three years 0.17.
_ENDS = 0.25  # exponent above which dependence does not end within the rows of a site


def inflation(growths: Sequence[Growth]) -> float:
    """Return the variance of a site's score over that of independent groups, at least 1.

    The variance of sums of L successive scores is taken to grow as L to the power 1 + c at the
    longest lengths that are measured, as with long memory; c is 0 if dependence ends before. If
    neighbours are not clearly alike, groups are taken for independent.

    Parameters
    ----------
    growths : sequence of Growth
        One for each site.

    Examples
    --------
    >>> independent = Growth(64, np.ones(5))
    >>> inflation([independent, independent])
    1.0
    """
    level, c, groups = _power(growths)
    return max(1.0, float(np.exp(level + c * np.log(groups))))


def ended(growths: Sequence[Growth]) -> bool:
    """Say whether dependence ends within the rows of a site (maths 18).

    If it does not, what changes more slowly than all rows of a site is taken for lasting there.

    Parameters
    ----------
    growths : sequence of Growth
        One for each site.

    Examples
    --------
    >>> ended([Growth(64, np.array([1.0, 1.6, 1.8, 1.8, 1.7]))] * 2)
    True
    >>> ended([Growth(64, np.array([1.0, 1.6, 2.4, 3.6, 5.2]))] * 2)
    False
    """
    return _power(growths)[1] <= _ENDS


def _power(growths: Sequence[Growth]) -> tuple[float, float, float]:
    """Return log a, c and the groups of an average site: variance is a L^c at length L.

    Groups that are independent have log a and c of 0.
    """
    size = np.array([found.n_groups for found in growths], dtype=float)
    depth = np.array([len(found.ratios) for found in growths])
    total = size.sum()
    if not _neighbours_alike(growths, size, depth):
        return 0.0, 0.0, 1.0
    # 1) a length counts if sites with half of all groups have measured it
    lengths = [j for j in range(max(depth, default=0)) if size[depth > j].sum() >= total / 2]
    lengths = lengths[-_LENGTHS:]
    if len(lengths) < 2:
        return 0.0, 0.0, 1.0
    some = [depth > j for j in lengths]
    ratio = np.array(
        [
            np.average([g.ratios[j] for g in growths if len(g.ratios) > j], weights=size[has])
            for j, has in zip(lengths, some, strict=True)
        ]
    )
    # 2) the exponent: deviations are from the site's own mean, which takes more away the longer the
    # memory is
    x = np.log(2.0) * np.array(lengths)
    sums = np.array([np.average(size[has], weights=size[has]) for has in some]) / np.exp(x)
    groups = float(np.average(size, weights=size))

    def rest(c: float) -> Floats:
        seen = np.log1p(-(sums ** (c - 1))) - np.log1p(-1 / sums)
        return np.asarray(np.log(np.maximum(ratio, 1e-12)) - c * x - seen)

    best = optimize.minimize_scalar(lambda c: np.var(rest(c)), bounds=(0.0, _STEEPEST))
    c = float(best.x) if np.var(rest(best.x)) < np.var(rest(0.0)) else 0.0
    return float(np.mean(rest(c))), c, groups


def _neighbours_alike(growths: Sequence[Growth], size: Floats, depth: Floats) -> bool:
    """Say whether sums of two neighbours vary more than independent ones would, over sites."""
    weight = size[depth > 1]
    if len(weight) < 2:
        return False
    pairs = np.array([found.ratios[1] for found in growths if len(found.ratios) > 1])
    mean = np.average(pairs, weights=weight)
    error = np.sqrt(np.sum((weight * (pairs - mean)) ** 2)) / weight.sum()
    return bool(mean > 1 + _CLEARLY * error)
