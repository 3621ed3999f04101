"""The softmax gate: pi_k(x) proportional to exp(x' A_k), the last expert as reference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np

from otmoe.arrays.newton import NewtonPoint, newton, solve_psd
from otmoe.arrays.numerics import (
    Array,
    Floats,
    namespace,
    scaled,
    softmax,
    take,
    times,
    to_numpy,
    weighted_gram,
    weighted_sum,
)

_LEAP = 30.0  # how far a step may move an expert at standardised x: that is odds of e^30


@dataclass(frozen=True)
class GateStatistics:
    """Sums over rows that one Newton step of the gate needs; they add up over blocks and shards.

    Attributes
    ----------
    score : ndarray of shape ((K - 1) * q,)
        Gradient of the expected log-likelihood in the free coefficients.
    information : ndarray of shape ((K - 1) * q, (K - 1) * q)
    """

    score: Floats
    information: Floats

    def __add__(self, other: GateStatistics) -> GateStatistics:
        return GateStatistics(self.score + other.score, self.information + other.information)


@dataclass(frozen=True)
class SoftmaxGate:
    """Gate probabilities ``pi_k(x) = exp(x' A_k) / sum_j exp(x' A_j)`` (maths 3).

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Gate coefficients A, intercept in column 0; the last row is zero.
    columns : tuple of int, optional
        Columns of the design that the gate uses, 0 (the intercept) first; the other columns of
        `coef` are structural zeros. None means all.

    Examples
    --------
    >>> gate = SoftmaxGate(np.array([[0.0, 1.0], [0.0, 0.0]]))
    >>> gate.prob(np.array([[1.0, 0.0]]))
    array([[0.5, 0.5]])
    """

    coef: Floats
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(sorted(set(self.columns))))

    @classmethod
    def blank(cls, n_experts: int, n_columns: int, columns: tuple[int, ...] | None = None) -> Self:
        """Return the gate that gives every expert the same probability."""
        return cls(np.zeros((n_experts, n_columns)), columns)

    @property
    def n_experts(self) -> int:
        """Number of experts, K."""
        return int(self.coef.shape[0])

    @property
    def _free(self) -> Any:
        return slice(None) if self.columns is None else list(self.columns)

    @property
    def n_free_columns(self) -> int:
        """Number of columns the gate uses, q."""
        return self.coef.shape[1] if self.columns is None else len(self.columns)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters, (K - 1) q."""
        return (self.n_experts - 1) * self.n_free_columns

    def design(self, X: Array) -> Array:
        """Return the columns of X that the gate uses, (n, q)."""
        if self.columns is None:
            return X
        return take(X.T, list(self.columns)).T

    def logits(self, X: Array) -> Array:
        """Return x' A_k, (n, K)."""
        return times(X, self.coef)

    def prob(self, X: Array) -> Array:
        """Return pi_k(x), (n, K)."""
        return softmax(self.logits(X))[0]

    def log_prob(self, X: Array) -> Array:
        """Return log pi_k(x), (n, K)."""
        logits = self.logits(X)
        return logits - softmax(logits)[1][:, None]

    # -- parameters ---------------------------------------------------------------------------

    def to_vector(self) -> Floats:
        """Return the free coefficients, row by row without the last."""
        return np.asarray(self.coef[:-1, self._free].ravel())

    def with_vector(self, vector: Floats) -> Self:
        """Return a gate of the same shape with these free coefficients."""
        coef = np.zeros_like(self.coef)
        coef[:-1, self._free] = vector.reshape(self.n_experts - 1, self.n_free_columns)
        return type(self)(coef, self.columns)

    def take(self, order: Any) -> Self:
        """Return the gate with experts in another order, gauged so that the last row is zero."""
        coef = self.coef[order]
        return type(self)(coef - coef[-1], self.columns)

    def rescaled(self, T: Floats) -> Self:
        """Return the gate for x, given this gate for ``T @ x``."""
        return type(self)(self.coef @ T, self.columns)

    @property
    def centred(self) -> Floats:
        """Coefficients less their mean over experts, (K, p): free of the choice of reference."""
        return self.coef - self.coef.mean(axis=0)

    # -- fitting ------------------------------------------------------------------------------

    def penalty(self, alpha: float) -> float:
        """Return the centred ridge ``alpha / 2 * sum_k |A_k - mean A|^2`` (maths 3)."""
        return 0.5 * alpha * float(np.sum(self.centred**2))

    def penalty_matrix(self, alpha: float) -> Floats:
        """Return the Hessian of :meth:`penalty` in the free coefficients."""
        return alpha * _centred_ridge(self.n_experts, self.n_free_columns)

    def pair_weights(self, prob: Array, weight: Array | None) -> Array:
        """Return ``w pi_i pi_j`` for i < j, (n, K (K - 1) / 2): row weights of the information.

        The diagonal blocks need no Gram of their own: pi_i (1 - pi_i) is the sum of pi_i pi_j over
        the other j.
        """
        xp = namespace(prob)
        rows, weighted = prob.T, scaled(prob, weight).T
        K = self.n_experts
        if K == 1:
            return weighted[:0, :].T
        return xp.stack([weighted[i, :] * rows[j, :] for i in range(K) for j in range(i + 1, K)]).T

    def assemble(self, linear: Array, gram: Array) -> GateStatistics:
        """Arrange sums over rows into :class:`GateStatistics`.

        Parameters
        ----------
        linear : array of shape (K, q)
            Sum of (target_k - w pi_k) x.
        gram : array of shape (K (K - 1) / 2, q, q)
            Grams of :meth:`pair_weights`.
        """
        K, q = self.n_experts, self.n_free_columns
        first, second, touch = _pairs(K)
        pairs = to_numpy(gram)
        blocks = np.empty((K, K, q, q))
        blocks[first, second] = blocks[second, first] = -pairs
        own = np.arange(K)
        blocks[own, own] = (touch @ pairs.reshape(len(pairs), q * q)).reshape(K, q, q)
        size = (K - 1) * q
        information = blocks[:-1, :-1].swapaxes(1, 2).reshape(size, size)
        return GateStatistics(to_numpy(linear)[:-1].ravel(), information)

    def statistics(self, X: Array, target: Array) -> GateStatistics:
        """Return the sums over these rows that one :meth:`step` towards `target` needs.

        Parameters
        ----------
        X : array of shape (n, p)
        target : array of shape (n, K)
            Non-negative; a row's sum is its weight.
        """
        weight = namespace(X).sum(target, axis=1)
        prob, design = self.prob(X), self.design(X)
        return self.assemble(
            weighted_sum(design, target - weight[:, None] * prob),
            weighted_gram(design, self.pair_weights(prob, weight)),
        )

    def step(self, statistics: GateStatistics, alpha: float = 0.0) -> Self:
        """Return the gate after one penalised Newton step of bounded length.

        Where probabilities are all but 0 or 1 there is next to no curvature, and a step without
        bound would run off. A shorter one in its direction still leads upwards, since the
        information has no negative eigenvalue: halved often enough, as the caller does where it
        overshoots, it does not lower the objective.
        """
        theta = self.to_vector()
        penalty = self.penalty_matrix(alpha)
        score = statistics.score - penalty @ theta
        increment = solve_psd(statistics.information + penalty, score)
        each = increment.reshape(self.n_experts - 1, self.n_free_columns)
        longest = np.max(np.linalg.norm(each, axis=1), initial=0.0)
        return self.with_vector(theta + increment * (_LEAP / max(longest, _LEAP)))

    def fit(
        self,
        X: Array,
        target: Array,
        *,
        alpha: float = 0.0,
        tol: float = 1e-10,
        max_iter: int = 100,
    ) -> Self:
        """Return the gate that maximises ``sum_nk target_nk log pi_k(x_n)`` less the ridge.

        Softmax regression on soft targets by damped Newton, starting here.

        Parameters
        ----------
        X : array of shape (n, p)
        target : array of shape (n, K)
            Non-negative; a row's sum is its weight.
        alpha : float
            Centred ridge.
        tol : float
            Bound on the Newton decrement.
        max_iter : int
        """
        xp = namespace(X)
        penalty = self.penalty_matrix(alpha)

        def evaluate(theta: Floats) -> NewtonPoint:
            gate = self.with_vector(theta)
            sums = gate.statistics(X, target)
            return NewtonPoint(
                float(xp.sum(target * gate.log_prob(X))) - gate.penalty(alpha),
                sums.score - penalty @ theta,
                sums.information + penalty,
            )

        return self.with_vector(
            newton(evaluate, self.to_vector(), tol=tol, max_iter=max_iter).theta
        )


@cache
def _pairs(n_experts: int) -> tuple[Floats, Floats, Floats]:
    """Return the pairs (i, j), i < j, of experts, and which of them each is in, (K, pairs)."""
    first, second = np.triu_indices(n_experts, 1)
    own = np.arange(n_experts)[:, None]
    return first, second, ((own == first) | (own == second)).astype(float)


@cache
def _centred_ridge(n_experts: int, n_columns: int) -> Floats:
    """Return the Hessian of half the squared length of the centred coefficients."""
    return np.kron(np.eye(n_experts - 1) - 1 / n_experts, np.eye(n_columns))
