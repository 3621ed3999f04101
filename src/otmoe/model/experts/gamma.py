"""Gamma regression experts: positive numbers whose deviation grows with their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special, stats
from scipy.optimize import brentq

from otmoe.arrays.numerics import Array, Floats, like, namespace, to_numpy
from otmoe.model.experts.dispersed import DispersedExperts, exponential
from otmoe.model.experts.values import Derivatives, Response
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

# Of grids (maths 17): probabilities between which there are panels, two points in each.
_LEVELS = special.ndtr(np.arange(-6.0, 6.1, 0.75))


@dataclass(frozen=True)
class GammaExperts(DispersedExperts):
    """K log-linear regressions of positive numbers with variance phi mu^2.

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Coefficients of the log mean, intercept in column 0.
    phi : ndarray of shape (K,)
        Dispersions: squared coefficients of variation, one over the shapes.

    Examples
    --------
    >>> experts = GammaExperts(np.array([[np.log(2.0), 0.0]]), np.array([1.0]))
    >>> np.exp(experts.log_prob(np.array([[1.0, 5.0]]), np.array([2.0]))).round(4)
    array([[0.1839]])
    """

    family: ClassVar[str] = "gamma"
    null_by_values: ClassVar[bool] = False  # two means tell all
    lowest: ClassVar[float] = 0.0

    @classmethod
    def check_response(cls, y: Floats) -> None:
        super().check_response(y)
        if np.any(none := y <= 0):
            raise InvalidInput(Error.NOT_POSITIVE, row=int(np.flatnonzero(none)[0]))

    def distribution(self, eta: Floats) -> Any:
        return stats.gamma(1 / self.phi, scale=self.phi * exponential(eta))

    def mean_slope(self, eta: Array) -> Floats:
        return to_numpy(exponential(eta))[:, :, None, None]

    def working(self, y: Array) -> Array:
        return namespace(y).log(y)

    def response(self, eta: Array) -> Response:
        mean = exponential(eta)
        return Response(mean, like(self.phi, eta) * mean * mean)

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        # With a = 1 / phi: a (log a + log y - log mu - y / mu) - log Gamma(a) - log y
        a, log, ratio = self._parts(eta, response)
        constant = like(_log_rate(1 / self.phi), eta)  # a log a - a - log Gamma(a)
        return a * (log - eta - (ratio - 1.0)) + constant - log

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        # Predictors: eta and h = -log a.
        a, log, ratio = self._parts(eta, response)
        shape = 1 / self.phi
        gap = shape * (np.log(shape) - special.digamma(shape))
        bend = shape * (shape * special.polygamma(1, shape) - 1)
        excess = a * (ratio - 1.0)
        score = excess - a * (log - eta) - like(gap, eta)
        return Derivatives(
            score=(excess, score),
            curvature={(0, 0): a * ratio, (0, 1): excess, (1, 1): score + like(bend, eta)},
        )

    def _parts(self, eta: Array, response: Response) -> tuple[Array, Array, Array]:
        """Return 1 / phi, E log y and E y / mu."""
        xp, mean = namespace(eta), response.mean
        log = xp.log(mean)
        if not isinstance(response.var, float):
            shape = to_numpy(mean * mean / response.var)
            log = log + like(special.digamma(shape) - np.log(shape), eta)
        return like(1 / self.phi, eta), log, mean / exponential(eta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        return np.maximum(super().sample(eta, rng), np.finfo(np.float64).tiny)  # 0 has no density

    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        # A root of a product is a gamma density, but for its constant.
        xp = namespace(eta)
        a, b = 1 / self.phi[:, None], 1 / other.phi
        middle = 0.5 * (a + b)
        constant = special.gammaln(middle) - 0.5 * (special.gammaln(a) + special.gammaln(b))
        # logs of the rates
        rate, theirs = (
            like(np.log(shape), eta) - e
            for shape, e in ((a, eta[:, :, None]), (b, other_eta[:, None, :]))
        )
        sides = like(0.5 * a, eta) * rate + like(0.5 * b, eta) * theirs
        return (
            like(constant, eta)
            + sides
            - like(middle, eta) * (xp.logaddexp(rate, theirs) - float(np.log(2.0)))
        )

    def grid(self, eta: Floats) -> tuple[Floats, Floats]:
        # Gauss's rule of two points in log y between quantiles of any expert.
        quantile = special.gammaincinv(1 / self.phi[:, None], _LEVELS) * self.phi[:, None]
        log = np.log(np.maximum(quantile, 1e-280)) + eta[:, :, None]
        edges = np.sort(log.reshape(len(eta), -1), axis=1)
        half = 0.5 * np.diff(edges, axis=1)
        middle, apart = edges[:, :-1] + half, half / np.sqrt(3.0)
        y = np.exp(np.clip(np.hstack([middle - apart, middle + apart]), -300, 300))
        return y, np.hstack([half, half]) * y

    @staticmethod
    def saturated(mean: float) -> float:
        return -float(np.log(mean))

    @classmethod
    def null_log_prob(cls, mean: float, variance: float, means: Mapping[str, float]) -> float:
        # The mean is that of y, and the shape solves log a - digamma(a) = log mean y - mean log y.
        log = -means["saturated"]
        gap = float(np.log(mean)) - log
        if not gap > 0:
            return np.nan
        ends = 0.5 / gap, 1 / gap  # since 1 / 2a < log a - digamma(a) < 1 / a
        shape = brentq(lambda a: np.log(a) - special.digamma(a) - gap, *ends)
        return float(_log_rate(np.array(shape)) - shape * gap - log)

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        deviance = 2 * ((y - prediction) / prediction - np.log(y / prediction))
        return {**super().scores(y, prediction), "deviance": deviance, "saturated": -np.log(y)}


def _log_rate(a: Floats) -> Floats:
    """Return a log a - a - log Gamma(a), without cancellation where a is large."""
    i = 1 / np.maximum(a, 30.0)
    series = 0.5 * np.log(a / (2 * np.pi)) - i / 12 + i**3 / 360 - i**5 / 1260
    return np.where(a > 30, series, a * np.log(a) - a - special.gammaln(a))
