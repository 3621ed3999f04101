"""Negative binomial regression experts: counts that vary more than Poisson variables do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special, stats

from otmoe.arrays.numerics import Array, Floats, like, namespace, to_numpy
from otmoe.model.experts.dispersed import (
    DispersedExperts,
    exponential,
    log_affinity_on_grid,
)
from otmoe.model.experts.glm import LARGEST_DRAWN, PoissonExperts, count_scores, poisson_counts
from otmoe.model.experts.values import Derivatives, Response

_LARGE = 100.0  # sizes r from which on Stirling's series is exact to rounding

# Of the trapezoidal rule (maths 8): the laws of tests/model see an error of 1e-10 at most.
_STEP = 0.35  # in log t
_DECAY = 32.0  # nats by which the integrand has fallen at either end
_HUGE = 1e12  # mean from which on the integral is that of this one, in proportion

# Of grids (maths 17).
_TAIL = 30.0  # nats
_ALL = 512.0  # counts that are taken one by one
_EDGES = np.arange(-6.6, 8.0, 0.6)  # of panels elsewhere, in deviations


@dataclass(frozen=True)
class NegativeBinomialExperts(DispersedExperts):
    """K log-linear regressions of counts with variance mu + phi mu^2 (NB2).

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Coefficients of the log mean, intercept in column 0.
    phi : ndarray of shape (K,)
        Dispersions, often called alpha; at 0 the family is Poisson's.

    Examples
    --------
    >>> experts = NegativeBinomialExperts(np.array([[np.log(2.0), 0.0]]), np.array([1.0]))
    >>> np.exp(experts.log_prob(np.array([[1.0, 5.0]]), np.array([0.0]))).round(4)
    array([[0.3333]])
    """

    family: ClassVar[str] = "negative_binomial"
    discrete: ClassVar[bool] = True
    expert_alpha: ClassVar[float] = 0.3
    lowest: ClassVar[float] = 0.0
    held: ClassVar[float] = 0.01  # counts that vary less than Poisson's would send it to -infinity

    working = PoissonExperts.working
    saturated = staticmethod(PoissonExperts.saturated)
    log_base = staticmethod(PoissonExperts.log_base)

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        return {**super().scores(y, prediction), **count_scores(y, prediction)}

    def distribution(self, eta: Floats) -> Any:
        return stats.nbinom(1 / self.phi, 1 / (1 + self.phi * exponential(eta)))

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        mean = exponential(to_numpy(eta))
        if np.all(mean * (1 + 10 * np.sqrt(self.phi)) < LARGEST_DRAWN):
            return super().sample(eta, rng)
        return poisson_counts(mean * self.phi * rng.gamma(1 / self.phi, size=mean.shape), rng)

    def mean_slope(self, eta: Array) -> Floats:
        return to_numpy(exponential(eta))[:, :, None, None]

    def response(self, eta: Array) -> Response:
        mean = exponential(eta)
        return Response(mean, mean + like(self.phi, eta) * mean * mean)

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        # With r = 1 / phi: S(y, r) + y log mu - (y + r) log(1 + mu / r)
        xp, m = namespace(eta), response.mean
        r, mu = like(1 / self.phi, eta), exponential(eta)
        (rising,) = self._rising(eta, response, 1)
        return rising + m * xp.log(mu) - (m + r) * xp.log1p(mu / r)

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        xp, m = namespace(eta), response.mean
        r, mu = like(1 / self.phi, eta), exponential(eta)
        _, first, second = self._rising(eta, response, 3)
        total = r + mu
        a = r * (m - mu) / total
        # first and second derivative in r; the predictor is h = -log r
        slope = first + m / r - xp.log1p(mu / r) + (mu - m) / total
        bend = second - m / (r * r) + mu / (r * total) - (mu - m) / (total * total)
        return Derivatives(
            score=(a, -r * slope),
            curvature={
                (0, 0): r * mu * (r + m) / (total * total),
                (0, 1): a * mu / total,
                (1, 1): -r * (slope + r * bend),
            },
        )

    def _rising(self, eta: Array, response: Response, orders: int) -> list[Array]:
        """Return E S(y, r_k) and its derivatives in r_k, as many as asked for."""
        r = 1 / self.phi
        if not isinstance(response.var, float):
            return expected_rising(response.mean, response.var, like(r, eta), orders)
        y = to_numpy(response.mean)
        values, place = np.unique(y, return_inverse=True)  # counts come again and again
        tables = rising(values[:, None], r, orders)  # (U, K)
        place = place.reshape(y.shape)
        if y.shape[-1] == 1:
            return [like(table[place[..., 0]], eta) for table in tables]
        return [like(table[place, np.arange(len(r))], eta) for table in tables]

    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        return log_affinity_on_grid(self, eta, other, other_eta)

    def grid(self, eta: Floats) -> tuple[Floats, Floats]:
        # One by one where they are few. Elsewhere three in every panel between edges, and weights
        # with which their sum is that over the panel for polynomials of degree five.
        response = self.response(eta)
        mean, var = response.mean, response.var
        tail = _TAIL / np.log1p(1 / (self.phi * mean + 1e-9))
        top = np.max(mean + 6 * np.sqrt(var) + tail + 20, axis=1)
        if np.all(top <= _ALL):
            y = np.arange(float(np.ceil(top.max(initial=0.0))) + 1)
            return np.tile(y, (len(eta), 1)), np.ones((len(eta), len(y)))
        mean = np.maximum(mean, 1e-9)
        root = np.sqrt(var)[:, :, None] / mean[:, :, None] / 3  # Wilson and Hilferty's quantiles
        edges = mean[:, :, None] * np.maximum(1 - root**2 + root * _EDGES, 0.0) ** 3
        few = np.broadcast_to(np.arange(12.0), (len(eta), 12))
        edges = np.hstack([np.floor(edges.reshape(len(eta), -1)), few, np.ceil(top)[:, None]])
        edges = np.sort(edges, axis=1)
        width = np.diff(edges, axis=1)  # counts edge, .., edge + width - 1
        middle = edges[:, :-1] + 0.5 * (width - 1)
        apart = np.sqrt(np.maximum(3 * width**2 - 7, 0.0) / 20)
        side = np.where(width > 2, (width**2 - 1) / 24 / np.where(width > 2, apart**2, 1.0), 0.0)
        apart, side = np.where(width == 2, 0.5, apart), np.where(width == 2, 0.5, side)
        y = np.hstack([middle - apart, middle, middle + apart])
        return y, np.hstack([width * side, width * (1 - 2 * side), width * side])

    def quantile(self, eta: Array, level: float) -> Array:
        # SciPy searches count by count where means are huge: there, a gamma variable's is as good.
        mean = exponential(to_numpy(eta))
        small = np.minimum(mean, 1e9)
        shape = 1 / (1 / small + self.phi)
        gamma = np.ceil(mean * special.gammaincinv(shape, level) / shape)
        exact = stats.nbinom(1 / self.phi, 1 / (1 + self.phi * small)).ppf(level)
        return np.where(mean < 1e9, exact, gamma)


def rising(y: Floats, r: Floats, orders: int) -> list[Floats]:
    """Return S(y, r) = log Gamma(y + r) - log Gamma(r) - y log r and its derivatives in r.

    Parameters
    ----------
    y, r : ndarray
        That broadcast.
    orders : int
        How many: S, then its first and second derivative.
    """
    small, large = np.minimum(r, _LARGE), np.maximum(r, _LARGE)
    total, log = y + large, np.log1p(y / large)
    exact = [special.gammaln(y + small) - special.gammaln(small) - y * np.log(small)]
    stirling = [(total - 0.5) * log - y + _tail(total, 0) - _tail(large, 0)]
    if orders > 1:
        exact.append(special.digamma(y + small) - special.digamma(small) - y / small)
        gap = log + 0.5 * y / (large * total) - y / large
        stirling.append(gap + _tail(total, 1) - _tail(large, 1))
        trigamma = special.polygamma(1, y + small) - special.polygamma(1, small)
        exact.append(trigamma + y / small**2)
        gap = -y / (large * total) - 0.5 * y * (total + large) / (large * total) ** 2
        stirling.append(gap + y / large**2 + _tail(total, 2) - _tail(large, 2))
    return [np.where(r > _LARGE, b, a) for a, b in zip(exact, stirling, strict=True)][:orders]


def _tail(z: Floats, order: int) -> Floats:
    """Return the terms of Stirling's series for log Gamma(z) from 1 / z on, differentiated."""
    i = 1 / z
    if order == 0:
        return i / 12 - i**3 / 360 + i**5 / 1260
    if order == 1:
        return -(i**2) / 12 + i**4 / 120 - i**6 / 252
    return i**3 / 6 - i**5 / 30 + i**7 / 42


def expected_rising(mean: Array, var: Array, r: Array, orders: int) -> list[Array]:
    """Return E S(y, r) and its derivatives in r, of negative binomial counts y (maths 8).

    Malmsten's integral of log Gamma has y in an exponent only, so that its expectation holds the
    generating function of the counts, which is elementary; the rule is the trapezoidal one in the
    logarithm of the variable of integration.

    Parameters
    ----------
    mean, var : array
        Of the counts.
    r : array
        That broadcasts with them.
    orders : int
        How many: E S, then its first and second derivative.
    """
    xp = namespace(mean)
    phi = (var - mean) / (mean * mean)
    phi = xp.where(phi > 1e-12, phi, xp.full_like(phi, 1e-12))
    c = 0.5 * (var / mean + mean - 1.0)  # with this one, integrands are of second order at 0
    ratio = c / r
    found = [mean * xp.log1p(ratio)]
    if orders > 1:
        found.append(-mean * ratio / (c + r))
        found.append(mean * ratio * (2 * r + c) / (r * (c + r) ** 2))
    if 0 in mean.shape:
        return found
    huge = mean > _HUGE  # beyond, the integral grows as the mean does, but for its logarithm
    growth = xp.where(huge, mean / _HUGE, xp.ones_like(mean))
    mean = xp.where(huge, xp.full_like(mean, _HUGE), mean)
    c = xp.where(huge, 0.5 * mean * (1.0 + phi), c)
    largest = float(xp.max(c)) + 1.0
    low = -0.5 * (_DECAY + np.log(1 + float(xp.max(mean))) + 2 * np.log(largest))
    high = np.log(_DECAY / float(xp.min(r)))
    for i in range(int(low / _STEP) - 1, int(high / _STEP) + 2):  # the same, whatever the rows
        t = float(np.exp(_STEP * i))
        s = -float(np.expm1(-t))
        # minus the chance of an event before t, of which the first term is an approximation
        H = mean * xp.exp(-c * t) + xp.expm1(-xp.log1p(phi * mean * s) / phi) / s
        part = growth * _STEP * H * xp.exp(-r * t)
        for order in range(orders):
            found[order] = found[order] + (-t) ** order * part
    return found
