"""Experts with a dispersion that maximum likelihood has to estimate along with the coefficients.

The predictors of an expert are eta = x' beta_k and h_k = log phi_k, phi the dispersion. A family
gives the expected log density of a y that is itself of the family, with given mean and variance (an
observation has none), and its derivatives in eta and h (maths 8).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from otmoe.arrays.newton import NewtonPoint, newton, solve_psd
from otmoe.arrays.numerics import (
    Array,
    Floats,
    like,
    namespace,
    to_numpy,
    weighted_gram,
    weighted_sum,
)
from otmoe.model.experts.base import Experts
from otmoe.model.experts.glm import LARGEST_LOG_MEAN, slopes
from otmoe.model.experts.values import FitStatistics, Response

_LEAP = 3.0  # how far a step may move an expert, in predictors at standardised x
_TURN = 1.0  # how far its log dispersion may go in one step
_LARGEST_LOG = 40.0  # beyond which a dispersion is as good as 0 or infinite


@dataclass(frozen=True)
class DispersedExperts(Experts):
    """K experts with coefficients and a dispersion each.

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Coefficients, intercept in column 0.
    phi : ndarray of shape (K,)
        Dispersions.
    """

    phi: Floats

    dispersions: ClassVar[tuple[str, ...]] = ("dispersion",)
    by_moments: ClassVar[bool] = False
    bends: ClassVar[bool] = True
    null_by_values: ClassVar[bool] = True
    held: ClassVar[float] = 0.0  # part of a ridge that the log dispersion bears

    @abstractmethod
    def distribution(self, eta: Floats) -> Any:
        """Return the distribution of y, in the manner of :mod:`scipy.stats`."""

    @classmethod
    def blank(cls, n_experts: int, n_columns: int, n_classes: int = 2) -> Self:
        return cls(np.zeros((n_experts, n_columns)), np.ones(n_experts))

    @property
    def dispersion(self) -> Floats:
        return self.phi

    def floored(self, floor: float) -> Self:
        return replace(self, phi=np.maximum(self.phi, floor))

    def neutral(self) -> Self:
        return replace(self, phi=np.ones_like(self.phi))

    def named_parameters(self, terms: Sequence[str]) -> dict[str, Floats]:
        return {**super().named_parameters(terms), self.dispersions[0]: self.phi}

    # -- fits ---------------------------------------------------------------------------------

    def step(self, statistics: FitStatistics, *, floor: float = 0.0, ridge: float = 0.0) -> Self:
        # A Newton step of the coefficients, and one of the log dispersion as if they stayed, no
        # longer than a bound; the caller halves both where they overshoot.
        penalty = np.diag(ridge * self._borne)
        information = statistics.information[:, 0, 0] + penalty
        increment = solve_psd(information, statistics.score[:, 0] - self.coef @ penalty)
        length = np.linalg.norm(increment, axis=1, keepdims=True)
        increment *= _LEAP / np.maximum(length, _LEAP)
        some = statistics.weight > 0
        slope = statistics.dispersion[:, 0] - ridge * self.held * np.log(self.phi)
        bend = np.maximum(statistics.bend[:, 0] + ridge * self.held, np.abs(slope) / _TURN)
        phi = self.phi * np.exp(slope / np.where(bend > 0, bend, 1.0))
        return replace(
            self,
            coef=np.where(some[:, None], self.coef + increment, self.coef),
            phi=np.where(some, np.maximum(phi, floor), self.phi),
        )

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
        penalty = np.diag(ridge * np.append(self._borne, self.held))

        def fit_one(k: int) -> Floats:
            start, w, own = self.take([k]), weight[:, k : k + 1], response.column(k)

            def evaluate(theta: Floats) -> NewtonPoint:
                if not np.all(np.isfinite(theta)):
                    return NewtonPoint(-np.inf, theta, penalty)
                expert = start.with_vector(theta)
                eta = expert.predictor(X, offset)
                d = expert.derivatives(eta, own)
                value = xp.sum(w * expert.expected_log_prob(eta, own))
                score = [weighted_sum(X, w * d.score[0])[0, :], xp.sum(w * d.score[1])]
                H = np.empty((len(theta), len(theta)))
                H[:-1, :-1] = to_numpy(weighted_gram(X, w * d.curvature[0, 0]))[0]
                H[:-1, -1] = H[-1, :-1] = to_numpy(weighted_sum(X, w * d.curvature[0, 1]))[0]
                H[-1, -1] = float(xp.sum(w * d.curvature[1, 1]))
                gradient = np.append(to_numpy(score[0]), float(score[1]))
                return NewtonPoint(
                    float(value) - 0.5 * float(theta @ penalty @ theta),
                    gradient - penalty @ theta,
                    H + penalty,
                )

            if not float(xp.sum(w)) > 0:
                return start.to_vector()
            return newton(evaluate, start.to_vector(), tol=tol).theta

        theta = np.stack([fit_one(k) for k in range(self.n_experts)])  # (K, p + 1)
        return self.with_vector(np.concatenate([theta[:, :-1].ravel(), theta[:, -1]]))

    @classmethod
    def best_constant(cls, y: Floats, weight: Floats) -> float:
        """Return the mean log density of the best expert that knows no x, less the base measure.

        It is found by Newton's method from the mean and from the median of y.

        Parameters
        ----------
        y, weight : ndarray of shape (n,)
        """
        share = weight / weight.sum()
        center, scale = 0.0, 1.0
        if cls.has_scale:
            center = float(share @ y)
            scale = float(np.sqrt(share @ (y - center) ** 2))
        z, blank = (y - center) / scale, cls.blank(1, 1)
        working = np.asarray(blank.working(z))
        order = np.argsort(working)
        median = working[order][np.searchsorted(np.cumsum(share[order]), 0.5)]
        one, response, found = np.ones((len(y), 1)), blank.observe(z), []
        for start in (share @ working, median):
            expert = replace(blank, coef=np.full((1, 1), start))
            expert = expert.fit(one, response, share[:, None])
            log_prob = expert.expected_log_prob(expert.predictor(one), response)
            found.append(float(share @ log_prob[:, 0]))
        return max(found) - float(np.log(scale))

    @property
    def _borne(self) -> Floats:
        """How much of a ridge coefficients bear, (p,): none where no y sends them to infinity."""
        share = slopes(self.n_columns)
        return np.zeros_like(share) if self.has_scale else share

    def penalty_matrix(self, ridge: float) -> Floats:
        K = self.n_experts
        share = np.append(np.tile(self._borne, K), np.full(K, self.held))
        return np.diag(ridge * share)

    # -- parameters ---------------------------------------------------------------------------

    def to_vector(self) -> Floats:
        return np.concatenate([self.coef.ravel(), np.log(self.phi)])

    def with_vector(self, vector: Floats) -> Self:
        split = self.coef.size
        log = np.clip(vector[split:], -_LARGEST_LOG, _LARGEST_LOG)
        return replace(self, coef=vector[:split].reshape(self.coef.shape), phi=np.exp(log))

    def rescaled(self, T: Floats, center: float = 0.0, scale: float = 1.0) -> Self:
        return replace(self, coef=self.coef @ T)

    # -- y ------------------------------------------------------------------------------------

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        eta = to_numpy(eta)
        return np.asarray(self.distribution(eta).rvs(eta.shape, random_state=rng))

    def cdf(self, eta: Array, y: Array) -> Array:
        return self.distribution(to_numpy(eta)).cdf(to_numpy(y))

    def quantile(self, eta: Array, level: float) -> Array:
        return self.distribution(to_numpy(eta)).ppf(level)


def exponential(eta: Array) -> Array:
    """Return e^eta, held where its square or sums of it would leave the range of numbers."""
    xp = namespace(eta)
    most = xp.full_like(eta, LARGEST_LOG_MEAN)
    return xp.exp(xp.where(eta < most, xp.where(eta > -most, eta, -most), most))


def sent_one_by_one(
    experts: Experts, X: Array, response: Response, weight: Array, index: Array
) -> FitStatistics:
    """Return the statistics of targets that add up what each of several sources sends them.

    Families that do not go `by_moments` need it: a mixture of sources is not of the family.

    Parameters
    ----------
    experts : Experts
        K targets.
    X : array of shape (n, p)
    response : Response
        What L sources predict, (n, L).
    weight : array of shape (n, L)
    index : array of int of shape (n, L)
        The target of each source.
    """
    mean, weight, index = to_numpy(response.mean), to_numpy(weight), to_numpy(index)
    X, var = to_numpy(X), np.broadcast_to(to_numpy(response.var), mean.shape)
    eta, n = experts.predictor(X), len(X)
    received = []
    for k in range(experts.n_experts):
        rows, sources = np.nonzero((index == k) & (weight > 0))
        one = experts.take([k])
        own = Response(mean[rows, sources][:, None], var[rows, sources][:, None])
        if not isinstance(response.trials, float):
            every = np.broadcast_to(to_numpy(response.trials), mean.shape)
            own = replace(own, trials=every[rows, sources][:, None])
        sent = weight[rows, sources][:, None]
        parts = (sent, *one.fit_weights(eta[rows, k][:, None], own, sent))
        received.append([[np.bincount(rows, column, n) for column in part.T] for part in parts])
    mass, linear, quadratic, constant = (
        np.reshape(part, (experts.n_experts, -1, n)).swapaxes(0, 1).reshape(-1, n).T
        for part in zip(*received, strict=True)
    )
    return experts.assemble(
        mass.sum(axis=0), weighted_sum(X, linear), weighted_gram(X, quadratic), constant.sum(axis=0)
    )


def log_affinity_on_grid(experts: Experts, eta: Array, other: Experts, other_eta: Array) -> Array:
    """Return :meth:`Experts.log_affinity` of families for which it has no closed form.

    Parameters
    ----------
    experts, other : Experts
        L and K of one family.
    eta, other_eta : array of shape (n, L) and (n, K)
    """
    own, theirs = to_numpy(eta), to_numpy(other_eta)
    y, width = type(experts).concat([experts, other]).grid(np.hstack([own, theirs]))  # (n, Q)
    base = (experts.log_base(y) + np.log(np.where(width > 0, width, 1.0)))[:, :, None]

    def halves(some: Experts, at: Floats) -> Floats:
        """Return half the log masses of values, which add up to 1, (n, Q, K)."""
        log_prob = some.expected_log_prob(at[:, None, :], Response(y[:, :, None])) + base
        log_prob = np.where(width[:, :, None] > 0, log_prob, -np.inf)
        return 0.5 * special.log_softmax(log_prob, axis=1)

    left, right = halves(experts, own), halves(other, theirs)
    found = np.empty((len(own), left.shape[2], right.shape[2]))
    for k in range(left.shape[2]):
        found[:, k] = special.logsumexp(left[:, :, k : k + 1] + right, axis=1)
    return like(found, eta)
