"""Experts of any family: densities, costs between experts, and the sums that fits need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from otmoe.arrays.numerics import (
    Array,
    Floats,
    like,
    namespace,
    stack_rows,
    times,
    to_numpy,
    weighted_gram,
    weighted_sum,
)
from otmoe.model.experts.family import Family
from otmoe.model.experts.values import FitStatistics, Response

FEW_VALUES = 32
"""Values that y can have, below which a grid has all of them."""

# Maths 17 has the rule; a model merged with itself has to stay where it is (tests/aggregation).
_EDGES = np.array([-4.5, -2.6, -1.25, 0.0, 1.25, 2.6, 4.5])  # of panels, in deviations
_REACH = 6.0  # deviations of counts that a grid covers
_STEPS = 2.0  # points in a deviation of the narrowest, where counts are many
_MOST_POINTS = 256


@dataclass(frozen=True)
class Experts(Family):
    """K regression experts of one family, stacked on the first axis: what follows for all."""

    @staticmethod
    def log_base(y: Array) -> Array | float:
        """Return the part of the log density that depends on y alone, (n,) or 0."""
        return 0.0

    def named_parameters(self, terms: Sequence[str]) -> dict[str, Floats]:
        """Return the experts' parameters by name, each (K,); `terms` names the p columns."""
        return dict(zip(terms, self.coef.T, strict=True))

    @property
    def log_dispersions(self) -> Floats:
        """The constant predictors, (K, E)."""
        size = self.n_experts * self.n_linear * self.n_columns
        return self.to_vector()[size:].reshape(self.n_constant, self.n_experts).T

    def observe(self, y: Array) -> Response:
        """Return observed y, (n,), as a response."""
        return Response(y[:, None])

    def informed(self, y: Array, weight: Array | None = None) -> Self:
        """Return the experts with what they have to know of the y of a fit, if anything."""
        return self

    def working(self, y: Array) -> Array:
        """Return observed y roughly on the scale of the linear predictor, (n,)."""
        return y

    def predictor(self, X: Array, offset: Array | None = None) -> Array:
        """Return the linear predictors ``x' beta_k``, plus a known offset (n,); (n, K)."""
        eta = times(X, self.coef)
        return eta if offset is None else eta + offset[:, None]

    def log_prob(self, X: Array, y: Array) -> Array:
        """Return log phi_k(y | x), (n, K)."""
        base = self.log_base(y)
        log_prob = self.expected_log_prob(self.predictor(X), self.observe(y))
        return log_prob if isinstance(base, float) else log_prob + base[:, None]

    def mean_slope(self, eta: Array) -> Floats:
        """Return the derivatives of the mean in the linear predictors, (n, K, M, Q).

        With a canonical link it is the curvature times the dispersion; M is 1, or the number of
        classes.
        """
        response = self.response(eta)
        curvature, Q = self.derivatives(eta, response).curvature, self.n_linear
        n, K, *classes = response.mean.shape
        slope = np.empty((n, K, classes[0] if classes else 1, Q))
        for d in range(Q):
            for e in range(Q):
                slope[:, :, d, e] = to_numpy(curvature[min(d, e), max(d, e)])
        slope[:, :, :Q] *= self.coef_unit[:, None, None] ** 2
        slope[:, :, Q:] = -slope[:, :, :Q].sum(axis=2, keepdims=True)  # probabilities add up to 1
        return slope

    @property
    def values(self) -> Floats | None:
        """All values that y can have, where they are few, (Q,); None where they are not."""
        if self.discrete and self.highest - self.lowest < FEW_VALUES:
            return np.arange(self.lowest, self.highest + 1)
        return None

    def grid(self, eta: Floats) -> tuple[Floats, Floats]:
        """Return values of y and widths, with which sums over densities are integrals (maths 17).

        They are close together wherever one of the experts is narrow, and cover all of them.

        Parameters
        ----------
        eta : ndarray of shape (n, K)

        Returns
        -------
        y : ndarray of shape (n, Q), or (n, Q, R) where a y has R columns
        width : ndarray of shape (n, Q)
            In units of y, of which counts and classes have one each.
        """
        values = self.values
        if values is not None:
            return np.tile(values, (len(eta), 1)), np.ones((len(eta), len(values)))
        response = self.response(eta)
        mean = np.asarray(response.mean)
        sd = np.sqrt(np.broadcast_to(response.var, mean.shape))
        return counts_grid(mean, sd, self.lowest) if self.discrete else _panels(mean, sd)

    @classmethod
    def null_log_prob(cls, mean: float, variance: float, means: Mapping[str, float]) -> float:
        """Return the mean log density of the best expert that knows no x, less the base measure.

        Parameters
        ----------
        mean, variance : float
            Of y over the rows.
        means : mapping of float
            Means of the scores of rows, by name.
        """
        trials = np.array([[means.get("trials", 1.0)]])
        response, one = (
            Response(np.array([[mean]]), np.array([[variance]]), trials),
            np.ones((1, 1)),
        )
        expert = cls.blank(1, 1).fit(one, response, one)
        return float(expert.expected_log_prob(expert.predictor(one), response)[0, 0])

    @classmethod
    def best_constant(cls, y: Floats, weight: Floats) -> float:
        """Return the same where it is `null_by_values`, from all values of y.

        Parameters
        ----------
        y, weight : ndarray of shape (n,)
        """
        return np.nan

    def nodes(
        self, eta: Floats, weight: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats, Floats] | None:
        """Return a few values of y drawn from the experts, where a family has a rule (maths 17).

        It has one if they serve as well as a grid of many more.

        Parameters
        ----------
        eta : ndarray of shape (n, K)
        weight : ndarray of shape (n, K)
            Of the experts; none is drawn from one without weight.
        rng : Generator

        Returns
        -------
        copies : ndarray of int of shape (n,)
            How many there are of each row.
        y, weight : ndarray of shape (copies.sum(),)
        """
        return None

    def kl_cost(self, X: Array, other: Experts) -> Array:
        """Return KL(self_l || other_k) at every row, (n, L, K) (maths 2)."""
        xp = namespace(X)
        own = self.predictor(X)
        response = self.response(own)
        entropy = self.expected_log_prob(own, response)  # (n, L)
        cross = other.expected_log_prob(
            other.predictor(X)[:, None, ...], response.as_sources()
        )  # (n, L, K)
        gap = entropy[:, :, None] - cross
        return xp.maximum(gap, like(0.0, gap))  # rounding may leave -1e-16

    def hellinger_cost(self, X: Array, other: Self) -> Array:
        """Return the squared Hellinger distance of self_l and other_k, (n, L, K) (maths 9).

        It is 1 - the integral of sqrt(phi_l phi_k): symmetric, and never above 1.
        """
        xp = namespace(X)
        cost = -xp.expm1(self.log_affinity(self.predictor(X), other, other.predictor(X)))
        return xp.maximum(cost, like(0.0, cost))  # rounding may leave -1e-16

    def nearest(self, eta: Array, response: Response) -> tuple[Array, Array]:
        """Return, for every source, the expert nearest to it in KL, and how well it does there.

        Parameters
        ----------
        eta : array of shape (n, K)
            Predictors of these experts.
        response : Response
            What L sources predict.

        Returns
        -------
        index : array of int of shape (n, L)
            The first of the nearest.
        value : array of shape (n, L)
            :meth:`expected_log_prob` there; that of the source itself, less this, is the KL
            divergence.
        """
        xp = namespace(eta)
        value = self.expected_log_prob(eta[:, None, ...], response.as_sources())
        return xp.argmax(value, axis=2), xp.max(value, axis=2)

    def fit_weights(
        self, eta: Array, response: Response, weight: Array
    ) -> tuple[Array, Array, Array]:
        """Return the row weights whose sums with x and x x' are a step's statistics.

        Parameters
        ----------
        eta : array of shape (n, K)
        response : Response
        weight : array of shape (n, K)

        Returns
        -------
        linear : array of shape (n, Q * K), to be multiplied by x
        quadratic : array of shape (n, Q (Q + 1) / 2 * K), to be multiplied by x x'
        constant : array of shape (n, E * K), to be summed; or twice as many, with curvatures
        """
        d = self.derivatives(eta, response)
        rows = weight.T  # (K, n), contiguous
        q = self.n_linear
        linear = [rows * s.T for s in d.score[:q]]
        constant = [rows * s.T for s in d.score[q:]] or [rows[:0, :]]
        if self.bends:
            constant += [rows * c.T for (i, j), c in d.curvature.items() if i == j >= q]
        quadratic = [rows * c.T for (i, j), c in d.curvature.items() if i < q and j < q]
        return stack_rows(linear), stack_rows(quadratic), stack_rows(constant)

    def assemble(self, weight: Array, linear: Array, gram: Array, constant: Array) -> FitStatistics:
        """Arrange the sums of :meth:`fit_weights` into :class:`FitStatistics`.

        Parameters
        ----------
        weight : array of shape (K,)
        linear : array of shape (Q * K, p)
        gram : array of shape (Q (Q + 1) / 2 * K, p, p)
        constant : array of shape (E * K,), or (2 * E * K,)
        """
        K, p, q = self.n_experts, self.n_columns, self.n_linear
        score = to_numpy(linear).reshape(q, K, p).swapaxes(0, 1)
        information = np.empty((K, q, q, p, p))
        upper = iter(to_numpy(gram).reshape(-1, K, p, p))
        for i in range(q):
            for j in range(i, q):
                information[:, i, j] = information[:, j, i] = next(upper)
        rest = to_numpy(constant).reshape(self.n_constant * (2 if self.bends else 1), K).T
        dispersion, bend = rest[:, : self.n_constant], rest[:, self.n_constant :]
        return FitStatistics(to_numpy(weight), score, information, dispersion, bend)

    def statistics(
        self, X: Array, response: Response, weight: Array, offset: Array | None = None
    ) -> FitStatistics:
        """Return the sums over these rows that one :meth:`step` needs.

        Parameters
        ----------
        X : array of shape (n, p)
        response : Response
        weight : array of shape (n, K)
        offset : array of shape (n,), optional
        """
        xp = namespace(X)
        eta = self.predictor(X, offset)
        linear, quadratic, constant = self.fit_weights(eta, response, weight)
        return self.assemble(
            xp.sum(weight, axis=0),
            weighted_sum(X, linear),
            weighted_gram(X, quadratic),
            xp.sum(constant, axis=0),
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
        """Return the experts with coefficients moved, and dispersions fitted to the same sums.

        Parameters
        ----------
        statistics : FitStatistics
            Sums over rows at these experts.
        increment : ndarray of shape (K, Q, p)
        floor, ridge : float
            As in :meth:`step`; the ridge is that of dispersions.
        common : bool
            Whether the experts share their dispersion.
        """
        size = increment.size
        vector = np.array(self.to_vector())
        if self.n_constant:
            logs = self.step(statistics, floor=floor, ridge=ridge).to_vector()[size:]
            logs = logs.reshape(-1, self.n_experts)
            if common and statistics.weight.sum() > 0:
                mean = np.average(logs, axis=1, weights=statistics.weight)
                logs = np.broadcast_to(mean[:, None], logs.shape)
            vector[size:] = logs.ravel()
        vector[:size] += increment.ravel()
        return self.with_vector(vector)


def _panels(mean: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Return Gauss's rule of two points between neighbouring edges of any expert, (n, Q)."""
    edges = np.sort((mean[:, :, None] + sd[:, :, None] * _EDGES).reshape(len(mean), -1), axis=1)
    half = 0.5 * np.diff(edges, axis=1)
    middle = edges[:, :-1] + half
    apart = half / np.sqrt(3.0)
    return np.hstack([middle - apart, middle + apart]), np.hstack([half, half])


def counts_grid(mean: Floats, sd: Floats, lowest: float) -> tuple[Floats, Floats]:
    """Return counts one by one, or some where they are many, (n, Q)."""
    low = np.maximum(np.floor(np.min(mean - _REACH * sd, axis=1)), lowest)
    high = np.ceil(np.max(mean + _REACH * sd + _REACH, axis=1))
    step = np.maximum(np.floor(np.min(sd, axis=1) / _STEPS), 1.0)
    step = np.maximum(step, np.ceil((high - low + 1) / _MOST_POINTS))
    size = int(np.max(np.ceil((high - low + 1) / step)))
    y = low[:, None] + step[:, None] * np.arange(size)
    return y, np.broadcast_to(step[:, None], y.shape)
