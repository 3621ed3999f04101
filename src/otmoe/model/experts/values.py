"""What goes into experts and comes out of them: responses, derivatives, sums over rows."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy import special

from otmoe.arrays.numerics import Array, Floats


@dataclass(frozen=True)
class Response:
    """What experts are fitted to: the mean and variance of y at each row (maths 2).

    An observation is ``(y, 0)``; what another expert predicts is its mean and variance there.

    Attributes
    ----------
    mean : array of shape (n, L), or (n, L, C) for probabilities of C classes
        L is 1 (the same response for every expert) or the number of experts.
    var : array broadcastable to (n, L), or 0
    trials : array broadcastable to (n, L), or 1
        Number of trials of which the mean is the share of successes, for the binomial family.
    """

    mean: Array
    var: Array | float = 0.0
    trials: Array | float = 1.0

    def column(self, k: int) -> Response:
        """Return the response of expert k alone."""
        if self.mean.shape[1] == 1:
            return self

        def own(part: Array | float) -> Array | float:
            return part if isinstance(part, float) or part.shape[1] == 1 else part[:, k : k + 1]

        return Response(self.mean[:, k : k + 1, ...], own(self.var), own(self.trials))

    def as_sources(self) -> Response:
        """Return the response with an axis for targets after that of its L sources, (n, L, 1)."""

        def spread(part: Array | float) -> Array | float:
            return part if isinstance(part, float) else part[:, :, None, ...]

        return Response(self.mean[:, :, None, ...], spread(self.var), spread(self.trials))


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of the expected log density in an expert's predictors, row by row (maths 5).

    The first `n_linear` predictors are linear in x; the others (the log of a dispersion) are
    constants.

    Attributes
    ----------
    score : tuple of arrays of shape (n, K)
        First derivatives, one array per predictor.
    curvature : dict of arrays broadcastable to (n, K)
        Minus the second derivatives, under keys (d, e) with d <= e.
    """

    score: tuple[Array, ...]
    curvature: dict[tuple[int, int], Array]


@dataclass(frozen=True)
class FitStatistics:
    """Sums over rows that one weighted fitting step needs; they add up over blocks and shards.

    Attributes
    ----------
    weight : ndarray of shape (K,)
    score : ndarray of shape (K, Q, p)
        Weighted scores of the Q linear predictors, times x.
    information : ndarray of shape (K, Q, Q, p, p)
        Weighted curvatures times x x'.
    dispersion : ndarray of shape (K, E)
        Weighted scores of the E constant predictors.
    bend : ndarray of shape (K, E), or (K, 0)
        Weighted curvatures in them, where a family needs these.
    """

    weight: Floats
    score: Floats
    information: Floats
    dispersion: Floats
    bend: Floats

    def __add__(self, other: FitStatistics) -> FitStatistics:
        return FitStatistics(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        )


def bounded(mean: Floats, half: Floats, lowest: float, highest: float) -> tuple[Floats, Floats]:
    """Return the ends of intervals between bounds: on the scale of log-odds, or of the logarithm.

    Parameters
    ----------
    mean, half : ndarray
        Half the width, to first order.
    lowest, highest : float
    """
    width = highest - lowest
    if np.isfinite(width):
        inside = np.clip((mean - lowest) / width, 1e-300, 1 - 1e-16)
        odds, step = special.logit(inside), half / width / (inside * (1 - inside))
        low, high = special.expit(odds - step), special.expit(odds + step)
        return lowest + width * low, lowest + width * high
    if np.isfinite(lowest):
        with np.errstate(over="ignore"):  # nothing is known: from there to infinity
            factor = np.exp(half / (mean - lowest))
            return lowest + (mean - lowest) / factor, lowest + (mean - lowest) * factor
    return mean - half, mean + half
