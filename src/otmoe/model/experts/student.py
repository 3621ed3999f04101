"""Student-t regression experts: linear regressions that outliers do not move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import factorial
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special, stats

from otmoe.arrays.numerics import Array, Floats, like, namespace, stack_rows, to_numpy
from otmoe.model.experts.dispersed import DispersedExperts
from otmoe.model.experts.values import Derivatives, Response

DEGREES = range(3, 32, 2)
"""Degrees of freedom that there are: odd, so that divergences have a closed form; variances exist.

With more, errors are as good as Gaussian.
"""

# Of grids (maths 17): quantiles between which there are panels, two points in each.
_LEVELS = special.ndtr(np.arange(-5.6, 5.7, 0.7))
# Of the trapezoidal rule in w, y = centre + scale sinh w, for affinities.
_NODES = np.arange(-9.0, 9.01, 0.05)


@dataclass(frozen=True)
class StudentExperts(DispersedExperts):
    """K linear regressions with errors of five degrees of freedom.

    :data:`BY_NAME` has those of other degrees of freedom.

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Regression coefficients, intercept in column 0.
    phi : ndarray of shape (K,)
        Squared scales of the errors, of which the variance is nu / (nu - 2), here 5 / 3.

    Examples
    --------
    >>> experts = StudentExperts(np.array([[0.0, 1.0]]), np.array([1.0]))
    >>> np.exp(experts.log_prob(np.array([[1.0, 3.0]]), np.array([3.0]))).round(4)
    array([[0.3796]])
    """

    family: ClassVar[str] = "student_t"
    has_scale: ClassVar[bool] = True
    degrees: ClassVar[int] = 5

    def distribution(self, eta: Floats) -> Any:
        return stats.t(self.degrees, eta, np.sqrt(self.phi))

    def mean_slope(self, eta: Array) -> Floats:
        return np.ones((*eta.shape, 1, 1))

    def response(self, eta: Array) -> Response:
        return Response(eta, like(self.phi * (self.degrees / (self.degrees - 2)), eta)[None, :])

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        # w = m - eta + i (c + b) and q = i c / w: see maths 8.
        xp, nu = namespace(eta), self.degrees
        delta, b, c = self._parts(eta, response)
        across = c + b
        size = delta * delta + across * across
        value = xp.log(size)
        if not isinstance(c, float):
            q = _Complex(c * across / size, c * delta / size)
            value = value - 2 * _series(_shares(nu), q).real
        constant = special.gammaln((nu + 1) / 2) - special.gammaln(nu / 2)
        constant += 0.5 * (nu * np.log(nu) - np.log(np.pi))
        return like(0.5 * nu * np.log(self.phi) + constant, eta) - 0.5 * (nu + 1) * value

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        nu, (delta, b, c) = self.degrees, self._parts(eta, response)
        across = c + b
        size = delta * delta + across * across
        slope = _Complex(delta / size, -across / size)  # 1 / w
        bend = (slope * slope).scaled(-1.0)
        if not isinstance(c, float):
            q = _Complex(c * across / size, c * delta / size)
            once = [j * share for j, share in enumerate(_shares(nu), 1)]
            twice = [(j + 1) * share for j, share in enumerate(once, 1)]
            slope, bend = (
                part + part * _series(shares, q) for part, shares in ((slope, once), (bend, twice))
            )
        half = 0.5 * (nu + 1)
        return Derivatives(
            score=((nu + 1) * slope.real, 0.5 * nu + half * b * slope.imag),
            curvature={
                (0, 0): (nu + 1) * bend.real,
                (0, 1): half * b * bend.imag,
                (1, 1): -0.5 * half * b * (b * bend.real + slope.imag),
            },
        )

    def fit_weights(
        self, eta: Array, response: Response, weight: Array
    ) -> tuple[Array, Array, Array]:
        # The usual weights (nu + 1) / (nu + z^2) of EM, positive where curvatures need not be, and
        # times (nu + 1) / (nu + 3): on average over the rows of an expert that is its curvature.
        nu, d, rows = self.degrees, self.derivatives(eta, response), weight.T
        b = like(np.sqrt(nu * self.phi), eta)
        usual = (0.5 * nu - d.score[1]) * (2 * (nu + 1) / (nu + 3) / (b * b))
        constant = stack_rows([rows * d.score[1].T, rows * d.curvature[1, 1].T])
        return weight * d.score[0], weight * usual, constant

    def _parts(self, eta: Array, response: Response) -> tuple[Array, Array, Array | float]:
        """Return m - eta, and root nu times the scales of targets and of sources."""
        b = like(np.sqrt(self.degrees * self.phi), eta)
        known = isinstance(response.var, float)
        c = 0.0 if known else ((self.degrees - 2) * response.var) ** 0.5
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
        levels = stats.t.ppf(_LEVELS, self.degrees)
        edges = eta[:, :, None] + np.sqrt(self.phi)[:, None] * levels
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


def _shares(degrees: int) -> list[float]:
    """Return (j - 1)! times the coefficients of the reverse Bessel polynomial, from j = 1 on."""
    n = (degrees - 1) // 2
    return [
        factorial(j - 1)
        * 2**j
        * factorial(n)
        * factorial(2 * n - j)
        / (factorial(2 * n) * factorial(j) * factorial(n - j))
        for j in range(1, n + 1)
    ]


def _series(shares: Sequence[float], q: _Complex) -> _Complex:
    """Return sum_j shares_j q^j, j from 1 on."""
    total = q.scaled(shares[-1])
    for share in reversed(shares[:-1]):
        total = _Complex(total.real + share, total.imag) * q
    return total


BY_NAME = {
    f"student_t{nu}": type(
        f"Student{nu}Experts",
        (StudentExperts,),
        {
            "__doc__": f"K linear regressions with errors of {nu} degrees of freedom.",
            "__module__": __name__,
            "family": f"student_t{nu}",
            "degrees": nu,
        },
    )
    for nu in DEGREES
}
"""Families of other degrees of freedom than five, by name; "student_t5" is "student_t" again."""

globals().update({kind.__name__: kind for kind in BY_NAME.values()})  # where pickle looks for them
