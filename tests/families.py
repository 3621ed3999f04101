"""The expert families that the laws of test_experts.py run over: add a family, add an entry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from otmoe.model.experts import FAMILIES as REGISTERED
from otmoe.model.experts import (
    BinomialExperts,
    Experts,
    GammaExperts,
    GaussianExperts,
    LogisticExperts,
    MultinomialExperts,
    NegativeBinomialExperts,
    PoissonExperts,
    StudentExperts,
)


@dataclass(frozen=True)
class Family:
    """How to draw experts of a family, and their textbook distribution.

    Attributes
    ----------
    make : callable, (rng, n_experts, n_columns) -> Experts
    law : callable, (experts, X) -> distribution of y at n rows under K experts, as in scipy.stats
    n_values : int, optional
        y takes the values 0..n_values - 1 (nearly always, for counts); None if it is continuous.
    positive : bool
        Whether a continuous y is never negative.
    heavy : bool
        Whether its density falls off as a power.
    """

    make: Callable[[np.random.Generator, int, int], Experts]
    law: Callable[[Experts, np.ndarray], Any]
    n_values: int | None = None
    positive: bool = False
    heavy: bool = False

    def log_prob(self, experts, X, y):
        """Return log phi_k(y | x), for y that broadcasts with (n, K)."""
        law = self.law(experts, X)
        return law.logpdf(y) if self.n_values is None else law.logpmf(y)

    def quadrature(self, experts, X):
        """Return nodes y and their probabilities, (G, n, K); sums over G are expectations."""
        law, shape = self.law(experts, X), (len(X), experts.n_experts)
        if self.positive:
            step = 0.05  # in log y, where densities fall off on both sides
            y = law.mean() * np.exp(np.arange(-40, 6, step))[:, None, None]
            return y, law.pdf(y) * y * step
        if self.heavy:
            step = 0.02  # in w, y = mean + deviation sinh w
            w = np.arange(-14, 14, step)[:, None, None]
            y = law.mean() + law.std() * np.sinh(w)
            return y, law.pdf(y) * law.std() * np.cosh(w) * step
        if self.n_values is None:
            step = 0.1  # standard deviations; the trapezoidal rule is exact to rounding
            y = law.mean() + law.std() * np.arange(-10, 10, step)[:, None, None]
            return y, law.pdf(y) * law.std() * step
        y = np.arange(float(self.n_values))[:, None, None] + np.zeros(shape)
        return y, np.exp(law.logpmf(y))


@dataclass(frozen=True)
class Categorical:
    """A class 0..C-1 with given log probabilities (n, K, C); scipy has only its one-hot form."""

    log_prob: np.ndarray

    def logpmf(self, y):
        chosen = np.asarray(y)[..., None] == np.arange(self.log_prob.shape[-1])
        return np.sum(chosen * self.log_prob, axis=-1)


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of one trial with given probabilities (n, K); or, as (n, 1, 2), of several."""

    prob: np.ndarray

    def logpmf(self, y):
        y = np.asarray(y)
        if y.shape == (len(self.prob), 1, 2):  # successes and failures
            return stats.binom(y.sum(axis=2), self.prob).logpmf(y[..., 0])
        return stats.bernoulli(self.prob).logpmf(y)

    def __getattr__(self, name):
        return getattr(stats.bernoulli(self.prob), name)


def multinomial_law(experts, X):
    return Categorical(special.log_softmax(np.einsum("np,kcp->nkc", X, experts.coef), axis=-1))


def random_classes(rng, K, p):
    coef = rng.normal(size=(K, 3, p))
    return MultinomialExperts(coef - coef[:, -1:])


FAMILIES = {
    "gaussian": Family(
        lambda rng, K, p: GaussianExperts(rng.normal(size=(K, p)), rng.uniform(0.3, 2.0, K)),
        lambda experts, X: stats.norm(X @ experts.coef.T, np.sqrt(experts.var)),
    ),
    "logistic": Family(
        lambda rng, K, p: LogisticExperts(rng.normal(size=(K, p))),
        lambda experts, X: stats.bernoulli(special.expit(X @ experts.coef.T)),
        n_values=2,
    ),
    "binomial": Family(  # of one trial; tests/model/test_binomial.py has several
        lambda rng, K, p: BinomialExperts(rng.normal(size=(K, p)), np.ones(K)),
        lambda experts, X: Outcomes(special.expit(X @ experts.coef.T)),
        n_values=2,
    ),
    "multinomial": Family(random_classes, multinomial_law, n_values=3),
    "poisson": Family(
        lambda rng, K, p: PoissonExperts(0.4 * rng.normal(size=(K, p))),
        lambda experts, X: stats.poisson(np.exp(X @ experts.coef.T)),
        n_values=80,
    ),
    "negative_binomial": Family(
        lambda rng, K, p: NegativeBinomialExperts(
            0.3 * rng.normal(size=(K, p)) + 0.7 * np.eye(p)[0], rng.uniform(0.5, 1.2, K)
        ),
        lambda experts, X: stats.nbinom(
            1 / experts.phi, 1 / (1 + experts.phi * np.exp(X @ experts.coef.T))
        ),
        n_values=900,
    ),
    "gamma": Family(
        lambda rng, K, p: GammaExperts(0.4 * rng.normal(size=(K, p)), rng.uniform(0.4, 0.7, K)),
        lambda experts, X: stats.gamma(
            1 / experts.phi, scale=experts.phi * np.exp(X @ experts.coef.T)
        ),
        positive=True,
    ),
    "student_t": Family(
        lambda rng, K, p: StudentExperts(rng.normal(size=(K, p)), rng.uniform(0.3, 2.0, K)),
        lambda experts, X: stats.t(5, X @ experts.coef.T, np.sqrt(experts.phi)),
        heavy=True,
    ),
}

CHOSEN = {
    "student_t9": Family(
        lambda rng, K, p: REGISTERED["student_t9"](
            rng.normal(size=(K, p)), rng.uniform(0.3, 2.0, K)
        ),
        lambda experts, X: stats.t(9, X @ experts.coef.T, np.sqrt(experts.phi)),
        heavy=True,
    ),
}
"""Families whose names carry a number: the laws of experts run over these too."""
