"""Gaussian regression experts: y | x ~ N(x' beta_k, var_k)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log, pi
from typing import ClassVar, Self

import numpy as np
from scipy import special

from otmoe.arrays.nearest import nearest_square
from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Array, Floats, like, namespace, to_numpy
from otmoe.model.experts.base import Experts
from otmoe.model.experts.values import Derivatives, FitStatistics, Response

# Maths 17 has the rule.
_APART = (1.75, 2.25, 3.0)  # deviations between nodes, by the weight of an expert:
_WEIGHTY = (0.2, 0.03)  # the first from here on, the second from there
_WITHIN = 3.75  # deviations
_TABLE = 1024  # places of the first node


@cache
def _nodes() -> tuple[Floats, Floats]:
    """Return deviations and weights of evenly spaced nodes that begin anywhere, (3, T, Q).

    Wherever they begin, sums over nodes are nearly expectations of the normal distribution; on
    average over places of the first they are. Nodes without weight fill the places left.
    """
    size = int(2 * _WITHIN / min(_APART)) + 1
    begin = (np.arange(_TABLE) + 0.5) / _TABLE
    z, weight = np.zeros((2, len(_APART), _TABLE, size))
    for level, apart in enumerate(_APART):
        first = np.ceil(-_WITHIN / apart - begin)
        z[level] = apart * (first[:, None] + begin[:, None] + np.arange(size))
        weight[level] = np.where(z[level] <= _WITHIN, np.exp(-0.5 * z[level] ** 2), 0.0)
        weight[level] /= weight[level].sum(axis=1, keepdims=True)
        square = np.sum(weight[level] * z[level] ** 2, axis=1, keepdims=True)
        if level == 0:  # that of every set
            z[level] -= np.sum(weight[level] * z[level], axis=1, keepdims=True)
            square = np.sum(weight[level] * z[level] ** 2, axis=1, keepdims=True)
        else:
            square = square.mean()
        z[level] /= np.sqrt(square)
    return z, weight


@dataclass(frozen=True)
class GaussianExperts(Experts):
    """K Gaussian linear regressions.

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Regression coefficients, intercept in column 0.
    var : ndarray of shape (K,)
        Residual variances.

    Examples
    --------
    >>> experts = GaussianExperts(coef=np.array([[0.0, 1.0]]), var=np.array([4.0]))
    >>> X = np.array([[1.0, 3.0]])
    >>> experts.log_prob(X, np.array([3.0])).round(4)
    array([[-1.6121]])
    """

    var: Floats

    family: ClassVar[str] = "gaussian"
    has_scale: ClassVar[bool] = True
    dispersions: ClassVar[tuple[str, ...]] = ("variance",)

    @classmethod
    def blank(cls, n_experts: int, n_columns: int, n_classes: int = 2) -> Self:
        return cls(np.zeros((n_experts, n_columns)), np.ones(n_experts))

    def response(self, eta: Array) -> Response:
        return Response(eta, like(self.var, eta)[None, :])

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        # -(log 2 pi s2 + ((m - eta)^2 + v) / s2) / 2
        precision = like(-0.5 / self.var, eta)
        constant = like(-0.5 * (log(2 * pi) + np.log(self.var)), eta)
        log_prob = _square(response.mean - eta, response)
        log_prob *= precision
        log_prob += constant
        return log_prob

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        # Predictors: eta and h = log s2 (maths 5).
        precision = like(1 / self.var, eta)[None, :]
        residual = response.mean - eta
        half = _square(residual, response)
        half *= 0.5 * precision
        a = residual * precision
        return Derivatives(
            score=(a, half - 0.5), curvature={(0, 0): precision, (0, 1): a, (1, 1): half}
        )

    @property
    def curvature_bound(self) -> Floats:
        return 1 / self.var

    def score_square_bound(self, log_likelihood: float, mass: Floats) -> Floats:
        # log p = E log(pi phi) + entropy, over who answers: at most log K above E log phi.
        log_constant = 0.5 * (log(2 * pi) + np.log(self.var))
        rest = mass.sum() * log(self.n_experts) - log_likelihood - mass @ log_constant
        return 2 * rest / self.var

    def nodes(
        self, eta: Floats, weight: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats]:
        share = weight / weight.sum(axis=1, keepdims=True)
        level = sum((share < bound).astype(int) for bound in _WEIGHTY)  # (n, K)
        place = rng.integers(_TABLE, size=len(eta))[:, None]
        z, of_node = (table[level, place] for table in _nodes())  # (n, K, Q)
        y = eta[:, :, None] + np.sqrt(self.var)[:, None] * z
        each = weight[:, :, None] * of_node
        kept = each > 0
        return kept.sum(axis=(1, 2)), y[kept], each[kept]

    def nearest(self, eta: Array, response: Response) -> tuple[Array, Array]:
        constant = -0.5 * (log(2 * pi) + np.log(self.var))
        return nearest_square(response.mean, response.var, eta, 1 / self.var, constant)

    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        total = self.var[:, None] + other.var  # (L, K)
        scales = 2 * np.sqrt(self.var)[:, None] * np.sqrt(other.var) / total
        gap = eta[:, :, None] - other_eta[:, None, :]
        return like(0.5 * np.log(scales), eta) - gap * gap * like(0.25 / total, eta)

    def step(self, statistics: FitStatistics, *, floor: float = 0.0, ridge: float = 0.0) -> Self:
        # Weighted least squares in increments: the step d solves G d = X'W(m - X beta), and the
        # weighted sum of squares around the NEW mean is the old one less d' X'W(m - X beta). (The
        # paper's rule for s2 loses the dispersion between sites; see maths 2.)
        score, information = statistics.score[:, 0], statistics.information[:, 0, 0]
        increment = solve_psd(information, score)
        squares = self._squares(statistics, np.sum(score * increment, axis=1))
        n = statistics.weight
        some = n > 0
        return type(self)(
            np.where(some[:, None], self.coef + increment, self.coef),
            np.where(some, np.maximum(squares / np.where(some, n, 1.0), floor), self.var),
        )

    def moved(
        self,
        statistics: FitStatistics,
        increment: Floats,
        *,
        floor: float = 0.0,
        ridge: float = 0.0,
        common: bool = False,
    ) -> Self:
        # The variance is exact around any mean, and so is that of all experts together.
        d, G = increment[:, 0], statistics.information[:, 0, 0]
        fall = 2 * np.sum(d * statistics.score[:, 0], axis=1) - np.einsum("ki,kij,kj->k", d, G, d)
        squares, n = self._squares(statistics, fall), statistics.weight
        if common:
            squares, n = np.full_like(squares, squares.sum()), np.full_like(n, n.sum())
        var = np.where(n > 0, np.maximum(squares / np.where(n > 0, n, 1.0), floor), self.var)
        return type(self)(self.coef + d, var)

    def _squares(self, statistics: FitStatistics, fall: Floats) -> Floats:
        """Return the weighted squares around new means, (K,), in variances `fall` less than now."""
        return np.asarray(self.var * (2 * statistics.dispersion[:, 0] + statistics.weight - fall))

    def fit(
        self,
        X: Array,
        response: Response,
        weight: Array,
        *,
        offset: Array | None = None,
        ridge: float = 0.0,
        tol: float = 1e-12,
    ) -> Self:
        # Least squares: one step is exact, but for the variance if it is tiny beside the squares
        # around the start, of which it is the difference. Then a second one starts at the answer.
        statistics = self.statistics(X, response, weight, offset)
        fitted = self.step(statistics)
        n = np.where(statistics.weight > 0, statistics.weight, 1.0)
        around = self.var * (1 + 2 * statistics.dispersion[:, 0] / n)
        if np.any(fitted.var < 1e-6 * around):
            fitted = type(self)(fitted.coef, np.where(fitted.var > 0, fitted.var, 1.0))
            fitted = fitted.step(fitted.statistics(X, response, weight, offset))
        return fitted

    @property
    def dispersion(self) -> Floats:
        return self.var

    def floored(self, floor: float) -> Self:
        return type(self)(self.coef, np.maximum(self.var, floor))

    def neutral(self) -> Self:
        return type(self)(self.coef, np.ones_like(self.var))

    def named_parameters(self, terms: Sequence[str]) -> dict[str, Floats]:
        return {**super().named_parameters(terms), "variance": self.var}

    def to_vector(self) -> Floats:
        return np.concatenate([self.coef.ravel(), np.log(self.var)])

    def with_vector(self, vector: Floats) -> Self:
        split = self.coef.size
        return type(self)(vector[:split].reshape(self.coef.shape), np.exp(vector[split:]))

    def rescaled(self, T: Floats, center: float = 0.0, scale: float = 1.0) -> Self:
        coef = scale * (self.coef @ T)
        coef[:, 0] += center
        return type(self)(coef, scale**2 * self.var)

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        eta = to_numpy(eta)
        return eta + np.sqrt(self.var) * rng.standard_normal(eta.shape)

    def cdf(self, eta: Array, y: Array) -> Array:
        xp = namespace(eta)
        z = (y - eta) / like(np.sqrt(self.var), eta)
        if isinstance(z, np.ndarray):
            return special.ndtr(z)
        return xp.asarray(special.ndtr(to_numpy(z)))

    def quantile(self, eta: Array, level: float) -> Array:
        return eta + like(np.sqrt(self.var) * special.ndtri(level), eta)


def _square(residual: Array, response: Response) -> Array:
    """Return the expected squared residual."""
    square = residual * residual
    known = isinstance(response.var, float) and response.var == 0.0  # an observation: save a pass
    return square if known else square + response.var
