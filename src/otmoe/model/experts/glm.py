"""Regression experts of canonical exponential families: logistic, Poisson, and the next one.

With natural parameter eta = x' beta_k and cumulant b, log phi = y eta - b(eta) + base(y), so that
mean, score and curvature are b', y - b' and b''. A family is those three functions.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special, stats

from otmoe.arrays.nearest import nearest_linear
from otmoe.arrays.newton import NewtonPoint, newton, solve_psd
from otmoe.arrays.numerics import Array, Floats, like, namespace, to_numpy
from otmoe.model.experts.base import Experts
from otmoe.model.experts.values import Derivatives, FitStatistics, Response

_OF_INTERCEPT = 0.01  # of the ridge: enough where all rows are of one class

LARGEST_DRAWN = 1e15
"""NumPy draws no counts beyond 1e18; from here on they are their mean."""

LARGEST_LOG_MEAN = 300.0
"""A mean beyond e^300 overflows in sums before a step is refused."""


def slopes(n_columns: int) -> Floats:
    """Return how much of a ridge each coefficient bears: the intercept almost none, (p,)."""
    share = np.ones(n_columns)
    share[0] = _OF_INTERCEPT
    return share


def poisson_counts(mean: Floats, rng: np.random.Generator) -> Floats:
    """Draw Poisson counts of any mean; the largest are their mean."""
    drawn = rng.poisson(np.minimum(mean, LARGEST_DRAWN))
    return np.where(mean < LARGEST_DRAWN, drawn, np.floor(mean))


def count_scores(y: Floats, prediction: Floats) -> dict[str, Floats]:
    """Return the deviance of Poisson variables, and from what that of a constant mean follows."""
    deviance = 2 * (special.xlogy(y, y / prediction) - y + prediction)
    return {"deviance": deviance, "saturated": special.xlogy(y, y)}


@dataclass(frozen=True)
class NewtonExperts(Experts):
    """Experts without dispersions, whose weighted fit is a concave problem: Newton solves it."""

    @staticmethod
    @abstractmethod
    def cumulant(eta: Array) -> Array:
        """Return b(eta): elementwise, or over the last axis where that holds classes."""

    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        # The root of a product of two densities is the density halfway, but for its constant.
        halfway = self.cumulant(0.5 * (eta[:, :, None, ...] + other_eta[:, None, ...]))
        ends = self.cumulant(eta)[:, :, None] + self.cumulant(other_eta)[:, None, :]
        return halfway - 0.5 * ends

    def nearest(self, eta: Array, response: Response) -> tuple[Array, Array]:
        return nearest_linear(response.mean, eta, self.cumulant(eta))

    def step(self, statistics: FitStatistics, *, floor: float = 0.0, ridge: float = 0.0) -> Self:
        # One Newton step for each expert; the caller halves it where it overshoots.
        free = self.to_vector().reshape(self.n_experts, -1)
        penalty = self.expert_penalty_matrix(ridge)
        information = statistics.information.swapaxes(2, 3).reshape(-1, *penalty.shape)
        score = statistics.score.reshape(free.shape) - free @ penalty
        increment = solve_psd(information + penalty, score)
        some = statistics.weight[:, None] > 0
        return self.with_vector(np.where(some, free + increment, free).ravel())

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
        xp = namespace(X)
        penalty = self.expert_penalty_matrix(ridge)

        def fit_one(k: int) -> Floats:
            start, w = self.take([k]), weight[:, k : k + 1]
            own = response.column(k)

            def evaluate(theta: Floats) -> NewtonPoint:
                expert = start.with_vector(theta)
                sums = expert.statistics(X, own, w, offset)
                log_prob = expert.expected_log_prob(expert.predictor(X, offset), own)
                return NewtonPoint(
                    float(xp.sum(w * log_prob)) - 0.5 * float(theta @ penalty @ theta),
                    sums.score.ravel() - penalty @ theta,
                    sums.information[0].swapaxes(1, 2).reshape(penalty.shape) + penalty,
                )

            return start.with_vector(newton(evaluate, start.to_vector(), tol=tol).theta).coef

        return replace(self, coef=np.concatenate([fit_one(k) for k in range(self.n_experts)]))

    def expert_penalty_matrix(self, ridge: float) -> Floats:
        """Return the Hessian of one expert's ridge in its free coefficients."""
        return np.diag(ridge * slopes(self.n_columns))

    def penalty_matrix(self, ridge: float) -> Floats:
        return np.kron(np.eye(self.n_experts), self.expert_penalty_matrix(ridge))

    def to_vector(self) -> Floats:
        return self.coef.ravel()

    def with_vector(self, vector: Floats) -> Self:
        return replace(self, coef=vector.reshape(self.coef.shape))

    def rescaled(self, T: Floats, center: float = 0.0, scale: float = 1.0) -> Self:
        return replace(self, coef=self.coef @ T)


@dataclass(frozen=True)
class CanonicalExperts(NewtonExperts):
    """K generalised linear models with the canonical link and known dispersion.

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Coefficients, intercept in column 0.
    """

    @staticmethod
    @abstractmethod
    def mean(eta: Array) -> Array:
        """Return b'(eta), elementwise."""

    @staticmethod
    @abstractmethod
    def variance(eta: Array) -> Array:
        """Return b''(eta), elementwise."""

    @staticmethod
    @abstractmethod
    def distribution(mean: Floats) -> Any:
        """Return the distribution of y, in the manner of :mod:`scipy.stats`."""

    @classmethod
    def blank(cls, n_experts: int, n_columns: int, n_classes: int = 2) -> Self:
        return cls(np.zeros((n_experts, n_columns)))

    def response(self, eta: Array) -> Response:
        return Response(self.mean(eta), self.variance(eta))

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        log_prob = response.mean * eta
        log_prob -= self.cumulant(eta)
        return log_prob

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        return Derivatives((response.mean - self.mean(eta),), {(0, 0): self.variance(eta)})

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        mean = to_numpy(self.mean(eta))
        return np.asarray(self.distribution(mean).rvs(mean.shape, random_state=rng))

    def cdf(self, eta: Array, y: Array) -> Array:
        return self.distribution(to_numpy(self.mean(eta))).cdf(to_numpy(y))

    def quantile(self, eta: Array, level: float) -> Array:
        return self.distribution(to_numpy(self.mean(eta))).ppf(level)


@dataclass(frozen=True)
class LogisticExperts(CanonicalExperts):
    """K logistic regressions of a y that is 0 or 1.

    Examples
    --------
    >>> experts = LogisticExperts(np.array([[0.0, 1.0]]))
    >>> np.exp(experts.log_prob(np.array([[1.0, 0.0]]), np.array([1.0])))
    array([[0.5]])
    """

    family: ClassVar[str] = "logistic"
    discrete: ClassVar[bool] = True
    classifies: ClassVar[bool] = True
    alpha: ClassVar[float] = 1.0
    expert_alpha: ClassVar[float] = 3.0
    lowest: ClassVar[float] = 0.0
    highest: ClassVar[float] = 1.0
    informative_response: ClassVar[bool] = False

    @classmethod
    def n_classes_of(cls, shape: tuple[int, ...]) -> int:
        return 2

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        return {"accuracy": (prediction > 0.5) == y, "brier": (prediction - y) ** 2}

    @property
    def curvature_bound(self) -> Floats:
        return np.full(self.n_experts, 0.25)  # p (1 - p)

    def score_square_bound(self, log_likelihood: float, mass: Floats) -> Floats:
        return mass  # no residual is above 1

    @staticmethod
    def cumulant(eta: Array) -> Array:
        xp = namespace(eta)
        above = xp.where(eta > 0, eta, xp.zeros_like(eta))
        return above + xp.log1p(xp.exp(-xp.abs(eta)))  # a seventh of the time of logaddexp

    @staticmethod
    def mean(eta: Array) -> Array:
        xp = namespace(eta)
        small = xp.exp(-xp.abs(eta))
        return xp.where(eta >= 0, xp.ones_like(eta), small) / (1.0 + small)

    @staticmethod
    def variance(eta: Array) -> Array:
        xp = namespace(eta)
        small = xp.exp(-xp.abs(eta))
        return small / (1.0 + small) ** 2

    @staticmethod
    def distribution(mean: Floats) -> Any:
        return stats.bernoulli(mean)


@dataclass(frozen=True)
class PoissonExperts(CanonicalExperts):
    """K log-linear regressions of counts.

    Examples
    --------
    >>> experts = PoissonExperts(np.array([[np.log(2.0), 0.0]]))
    >>> np.exp(experts.log_prob(np.array([[1.0, 5.0]]), np.array([0.0]))).round(4)
    array([[0.1353]])
    """

    family: ClassVar[str] = "poisson"
    discrete: ClassVar[bool] = True
    expert_alpha: ClassVar[float] = 0.3
    lowest: ClassVar[float] = 0.0

    @staticmethod
    def mean(eta: Array) -> Array:
        xp = namespace(eta)
        return xp.exp(xp.where(eta < LARGEST_LOG_MEAN, eta, xp.full_like(eta, LARGEST_LOG_MEAN)))

    cumulant = variance = mean

    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        # As above, written as a square so that large means do not cancel.
        own, others = self.mean(0.5 * eta), self.mean(0.5 * other_eta)  # roots of the means
        gap = own[:, :, None] - others[:, None, :]
        return -0.5 * gap * gap

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        mean = to_numpy(self.mean(eta))
        if np.all(mean < LARGEST_DRAWN):
            return super().sample(eta, rng)
        return poisson_counts(mean, rng)

    def working(self, y: Array) -> Array:
        return namespace(y).log(y + 0.5)

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        return {**super().scores(y, prediction), **count_scores(y, prediction)}

    @staticmethod
    def saturated(mean: float) -> float:
        return mean * float(np.log(mean))

    @staticmethod
    def log_base(y: Array) -> Array:
        return -like(special.gammaln(to_numpy(y) + 1.0), y)

    @staticmethod
    def distribution(mean: Floats) -> Any:
        return stats.poisson(mean)

    def quantile(self, eta: Array, level: float) -> Array:
        mean = to_numpy(self.mean(eta))
        exact = super().quantile(eta, level)  # NaN where SciPy gives up, from means of about 1e9
        return np.where(mean < 1e9, exact, np.ceil(stats.norm(mean, np.sqrt(mean)).ppf(level)))
