"""Student-t regression experts: linear regressions that outliers do not move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special, stats

from otmoe.arrays.numerics import Array, Floats, like, namespace, stack_rows, to_numpy
from otmoe.model.experts.dispersed import DispersedExperts
from otmoe.model.experts.values import Derivatives, Response

DEGREES = 5.0
"""Degrees of freedom: odd, so that divergences have a closed form; variance and kurtosis exist."""

_CONSTANT = float(special.gammaln(3.0) - special.gammaln(2.5) - 0.5 * np.log(5 * np.pi))
_CONSTANT += 3 * np.log(5.0)

_SCORING = (DEGREES + 1) / (DEGREES + 3)

# Of grids (maths 17): quantiles between which there are panels, two points in each.
_LEVELS = stats.t.ppf(special.ndtr(np.arange(-5.6, 5.7, 0.7)), DEGREES)
# Of the trapezoidal rule in w, y = centre + scale sinh w, for affinities.
_NODES = np.arange(-9.0, 9.01, 0.05)


@dataclass(frozen=True)
class StudentExperts(DispersedExperts):
    """K linear regressions with errors of five degrees of freedom.

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Regression coefficients, intercept in column 0.
    phi : ndarray of shape (K,)
        Squared scales of the errors, of which the variance is 5 / 3.

    Examples
    --------
    >>> experts = StudentExperts(np.array([[0.0, 1.0]]), np.array([1.0]))
    >>> np.exp(experts.log_prob(np.array([[1.0, 3.0]]), np.array([3.0]))).round(4)
    array([[0.3796]])
    """

    family: ClassVar[str] = "student_t"
    has_scale: ClassVar[bool] = True

    def distribution(self, eta: Floats) -> Any:
        return stats.t(DEGREES, eta, np.sqrt(self.phi))

    def mean_slope(self, eta: Array) -> Floats:
        return np.ones((*eta.shape, 1, 1))

    def response(self, eta: Array) -> Response:
        return Response(eta, like(self.phi * (DEGREES / (DEGREES - 2)), eta)[None, :])

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        # With u = 1 / w, w = m - eta + i (c + b): see maths 8.
        xp = namespace(eta)
        delta, b, c = self._parts(eta, response)
        across = c + b
        size = delta * delta + across * across
        value = xp.log(size) - 2 * c * across / size
        value += (2 / 3) * c * c * (delta * delta - across * across) / (size * size)
        return like(2.5 * np.log(self.phi) + _CONSTANT, eta) - 3 * value

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        delta, b, c = self._parts(eta, response)
        across = c + b
        size = delta * delta + across * across
        first = _Complex(delta / size, -across / size)  # 1 / w
        second = first * first
        third, fourth = second * first, second * second
        slope = first + second.turned(c) + third.scaled(-2 / 3 * c * c)
        bend = second.scaled(-1.0) + third.turned(-2 * c) + fourth.scaled(2 * c * c)
        return Derivatives(
            score=(6 * slope.real, 2.5 + 3 * b * slope.imag),
            curvature={
                (0, 0): 6 * bend.real,
                (0, 1): 3 * b * bend.imag,
                (1, 1): -1.5 * b * (b * bend.real + slope.imag),
            },
        )

    def fit_weights(
        self, eta: Array, response: Response, weight: Array
    ) -> tuple[Array, Array, Array]:
        # The usual weights (nu + 1) / (nu + z^2) of EM, positive where curvatures need not be, and
        # times (nu + 1) / (nu + 3): on average over the rows of an expert that is its curvature.
        d, rows = self.derivatives(eta, response), weight.T
        b = like(np.sqrt(DEGREES * self.phi), eta)
        usual = (2.5 - d.score[1]) * (2 * _SCORING / (b * b))
        constant = stack_rows([rows * d.score[1].T, rows * d.curvature[1, 1].T])
        return weight * d.score[0], weight * usual, constant

    def _parts(self, eta: Array, response: Response) -> tuple[Array, Array, Array | float]:
        """Return m - eta, and root 5 times the scales of targets and of sources."""
        b = like(np.sqrt(DEGREES * self.phi), eta)
        known = isinstance(response.var, float)
        c = 0.0 if known else ((DEGREES - 2) * response.var) ** 0.5
        return response.mean - eta, b, c

    def rescaled(self, T: Floats, center: float = 0.0, scale: float = 1.0) -> Self:
        coef = scale * (self.coef @ T)
        coef[:, 0] += center
        return replace(self, coef=coef, phi=scale**2 * self.phi)

    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        own, theirs = to_numpy(eta), to_numpy(other_eta)
        found = np.empty((len(own), self.n_experts, other.n_experts))
        for k in range(self.n_experts):
            for j in range(other.n_experts):
                at = own[:, k], theirs[:, j]
                scale = np.sqrt(self.phi[k] * other.phi[j]) ** 0.5 + 0.5 * np.abs(at[0] - at[1])
                y = 0.5 * (at[0] + at[1])[:, None] + scale[:, None] * np.sinh(_NODES)
                logs = [
                    one.expected_log_prob(e[:, None], Response(y))
                    for one, e in zip((self.take([k]), other.take([j])), at, strict=True)
                ]
                logs = [special.log_softmax(log + np.log(np.cosh(_NODES)), axis=1) for log in logs]
                found[:, k, j] = special.logsumexp(0.5 * (logs[0] + logs[1]), axis=1)
        return like(found, eta)

    def grid(self, eta: Floats) -> tuple[Floats, Floats]:
        edges = eta[:, :, None] + np.sqrt(self.phi)[:, None] * _LEVELS
        edges = np.sort(edges.reshape(len(eta), -1), axis=1)
        half = 0.5 * np.diff(edges, axis=1)
        middle, apart = edges[:, :-1] + half, half / np.sqrt(3.0)
        return np.hstack([middle - apart, middle + apart]), np.hstack([half, half])


@dataclass(frozen=True)
class _Complex:
    """Complex numbers as pairs of arrays, for libraries that lack them."""

    real: Array
    imag: Array

    def __add__(self, other: _Complex) -> _Complex:
        return _Complex(self.real + other.real, self.imag + other.imag)

    def __mul__(self, other: _Complex) -> _Complex:
        return _Complex(
            self.real * other.real - self.imag * other.imag,
            self.real * other.imag + self.imag * other.real,
        )

    def scaled(self, by: Array | float) -> _Complex:
        """Return it times a real number."""
        return _Complex(by * self.real, by * self.imag)

    def turned(self, by: Array | float) -> _Complex:
        """Return it times i and a real number."""
        return _Complex(-by * self.imag, by * self.real)
