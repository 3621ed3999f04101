"""What an expert family is: the protocol, the response it is fitted to, the costs between experts.

K experts of one family are stacked on the first axis of their parameters, so that concatenating
the experts of many sites, or picking some of them, is plain indexing.

A family says three things: the expected log density of a row (:meth:`Experts.expected_log_prob`),
its derivatives in the linear predictors (:meth:`Experts.derivatives`), and what one weighted
fitting step does with their sums (:meth:`Experts.step`). EM's M-step, the KL projection, score and
information follow from these and are written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

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
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class Response:
    """What experts are fitted to: the mean and variance of y at each row (maths 2).

    An observation is ``(y, 0)``; what another expert predicts is its mean and variance there.

    Attributes
    ----------
    mean : array of shape (n, L), or (n, L, C) for probabilities of C classes
        L is 1 (the same response for every expert) or the number of experts.
    var : array broadcastable to (n, L), or 0
    """

    mean: Array
    var: Array | float = 0.0

    def column(self, k: int) -> Response:
        """Return the response of expert k alone."""
        if self.mean.shape[1] == 1:
            return self
        var = self.var
        return Response(
            self.mean[:, k : k + 1, ...],
            var if isinstance(var, float) or var.shape[1] == 1 else var[:, k : k + 1],
        )


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of the expected log density in an expert's predictors, row by row (maths 5).

    The first `n_linear` predictors are linear in x; the others (the log of a dispersion) are
    constants.

    Attributes
    ----------
    score : tuple of arrays of shape (n, K)
        First derivatives, one array per predictor.
    curvature : dict of arrays broadcastable to (n, K)
        Minus the second derivatives, under keys (d, e) with d <= e.
    """

    score: tuple[Array, ...]
    curvature: dict[tuple[int, int], Array]


@dataclass(frozen=True)
class FitStatistics:
    """Sums over rows that one weighted fitting step needs; they add up over blocks and shards.

    Attributes
    ----------
    weight : ndarray of shape (K,)
    score : ndarray of shape (K, Q, p)
        Weighted scores of the Q linear predictors, times x.
    information : ndarray of shape (K, Q, Q, p, p)
        Weighted curvatures times x x'.
    dispersion : ndarray of shape (K, E)
        Weighted scores of the E constant predictors.
    """

    weight: Floats
    score: Floats
    information: Floats
    dispersion: Floats

    def __add__(self, other: FitStatistics) -> FitStatistics:
        return FitStatistics(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        )


def bounded(mean: Floats, half: Floats, lowest: float, highest: float) -> tuple[Floats, Floats]:
    """Return the ends of intervals between bounds: on the scale of log-odds, or of the logarithm.

    Parameters
    ----------
    mean, half : ndarray
        Half the width, to first order.
    lowest, highest : float
    """
    width = highest - lowest
    if np.isfinite(width):
        inside = np.clip((mean - lowest) / width, 1e-300, 1 - 1e-16)
        odds, step = special.logit(inside), half / width / (inside * (1 - inside))
        low, high = special.expit(odds - step), special.expit(odds + step)
        return lowest + width * low, lowest + width * high
    if np.isfinite(lowest):
        with np.errstate(over="ignore"):  # nothing is known: from there to infinity
            factor = np.exp(half / (mean - lowest))
            return lowest + (mean - lowest) / factor, lowest + (mean - lowest) * factor
    return mean - half, mean + half


@dataclass(frozen=True)
class Experts(ABC):
    """K regression experts of one family, stacked on the first axis.

    Methods take `eta`, the linear predictors from :meth:`predictor`, rather than X: a known offset
    is then a plain addition.
    """

    coef: Floats

    family: ClassVar[str]
    has_scale: ClassVar[bool] = False  # may y be shifted and stretched?
    discrete: ClassVar[bool] = False  # is y a whole number?
    classifies: ClassVar[bool] = False  # is y a class?
    lowest: ClassVar[float] = -np.inf  # that y can be
    highest: ClassVar[float] = np.inf  # and its mean with it
    dispersions: ClassVar[tuple[str, ...]] = ()  # names of the constant predictors
    informative_response: ClassVar[bool] = True  # does one y tell its expert from the others?

    # -- shape ------------------------------------------------------------------------------

    @property
    def n_experts(self) -> int:
        """Number of experts, K."""
        return int(self.coef.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns of the design, p, the intercept among them."""
        return int(self.coef.shape[-1])

    @property
    def n_linear(self) -> int:
        """Number of predictors of an expert that are linear in x, Q."""
        return 1

    @property
    def n_constant(self) -> int:
        """Number of predictors of an expert that are constant (logs of dispersions), E."""
        return len(self.dispersions)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        return int(self.to_vector().size)

    def take(self, index: Any) -> Self:
        """Return the experts at `index`, in that order."""
        return replace(self, **{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Stack the experts of several models."""
        stacked = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        return cls(**{name: np.concatenate(arrays) for name, arrays in stacked.items()})

    # -- what a family defines ----------------------------------------------------------------

    @classmethod
    @abstractmethod
    def blank(cls, n_experts: int, n_columns: int, n_classes: int = 2) -> Self:
        """Return experts that know nothing yet: where a fit without a start begins."""

    @abstractmethod
    def response(self, eta: Array) -> Response:
        """Return what the experts predict, (n, K)."""

    @abstractmethod
    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        """Return E[log phi_k(y | x)] for y with the given mean and variance, elementwise in (n, K).

        It is exact up to a term that depends on y alone, which :meth:`log_base` gives.
        """

    @abstractmethod
    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        """Return the derivatives of :meth:`expected_log_prob` in the predictors."""

    @abstractmethod
    def log_affinity(self, eta: Array, other: Self, other_eta: Array) -> Array:
        """Return the log of the integral of sqrt(phi_l phi_k), (n, L, K) (maths 9).

        Parameters
        ----------
        eta : array of shape (n, L), or (n, L, C) for C classes
            Predictors of these experts.
        other : Experts
            K experts of this family.
        other_eta : array of shape (n, K), or (n, K, C)
            Their predictors.
        """

    @abstractmethod
    def step(self, statistics: FitStatistics, *, floor: float = 0.0, ridge: float = 0.0) -> Self:
        """Return the experts after one weighted fitting step; an expert without weight stays.

        `floor` bounds dispersions from below; `ridge` holds coefficients of families in which
        separable data would send them to infinity.
        """

    @abstractmethod
    def to_vector(self) -> Floats:
        """Return the free parameters: coefficients expert by expert, then log dispersions."""

    @abstractmethod
    def with_vector(self, vector: Floats) -> Self:
        """Return experts of the same shape with these free parameters."""

    @abstractmethod
    def rescaled(self, T: Floats, center: float = 0.0, scale: float = 1.0) -> Self:
        """Return the experts for x and ``center + scale * y``, given these for ``T @ x`` and y."""

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        """Draw one y from every expert at every row, (n, K)."""

    def cdf(self, eta: Array, y: Array) -> Array:
        """Return P(Y <= y) under every expert, elementwise in (n, K)."""
        raise InvalidType(Error.NO_ORDER, family=self.family)

    def quantile(self, eta: Array, level: float) -> Array:
        """Return the quantile of every expert, (n, K)."""
        raise InvalidType(Error.NO_ORDER, family=self.family)

    def penalty_matrix(self, ridge: float) -> Floats:
        """Return the Hessian of the ridge in the free parameters; zero where none is needed."""
        return np.zeros((self.n_parameters, self.n_parameters))

    @property
    def dispersion(self) -> Floats | None:
        """The experts' dispersions, (K,), or None if the family has none."""
        return None

    @property
    def smallest_dispersion(self) -> float:
        """Smallest dispersion of an expert, or infinity if the family has none."""
        return np.inf if self.dispersion is None else float(self.dispersion.min())

    def floored(self, floor: float) -> Self:
        """Return the experts with dispersions of at least `floor`."""
        return self

    def neutral(self) -> Self:
        """Return the experts with equal dispersions, so that only their means compete for a row."""
        return self

    # -- y and its mean -----------------------------------------------------------------------

    @classmethod
    def n_classes_of(cls, shape: tuple[int, ...]) -> int:
        """Return the number of classes of coefficients of this shape; 0 where y is no class."""
        return 0

    @classmethod
    def check_response(cls, y: Floats) -> None:
        """Refuse a y (n,) that the family cannot have."""
        wrong = (y < cls.lowest) | (y > cls.highest)
        if cls.discrete:
            wrong = wrong | (y != np.floor(y))
        if np.any(wrong):
            row = int(np.flatnonzero(wrong)[0])
            raise InvalidInput(
                Error.NOT_COUNTS,
                value=y[row],
                row=row,
                family=cls.family,
                numbers="whole numbers" if cls.discrete else "numbers",
                lowest=cls.lowest,
                highest=cls.highest,
            )

    def mean_bounds(self, mean: Floats, half: Floats) -> tuple[Floats, Floats]:
        """Return the ends of intervals for means, which stay where means can be.

        Parameters
        ----------
        mean, half : ndarray
            Half the width, on the scale of y and to first order.
        """
        return bounded(mean, half, self.lowest, self.highest)

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        """Return how far predicted means are from y, row by row (n,), under names of scores."""
        return {"squared": (y - prediction) ** 2, "mae": np.abs(y - prediction)}

    # -- what follows -------------------------------------------------------------------------

    @staticmethod
    def log_base(y: Array) -> Array | float:
        """Return the part of the log density that depends on y alone, (n,) or 0."""
        return 0.0

    def named_parameters(self, terms: Sequence[str]) -> dict[str, Floats]:
        """Return the experts' parameters by name, each (K,); `terms` names the p columns."""
        return dict(zip(terms, self.coef.T, strict=True))

    def observe(self, y: Array) -> Response:
        """Return observed y, (n,), as a response."""
        return Response(y[:, None])

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

    def kl_cost(self, X: Array, other: Experts) -> Array:
        """Return KL(self_l || other_k) at every row, (n, L, K) (maths 2)."""
        xp = namespace(X)
        own = self.predictor(X)
        response = self.response(own)
        entropy = self.expected_log_prob(own, response)  # (n, L)
        var = response.var if isinstance(response.var, float) else response.var[:, :, None]
        cross = other.expected_log_prob(
            other.predictor(X)[:, None, ...], Response(response.mean[:, :, None, ...], var)
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
        var = response.var if isinstance(response.var, float) else response.var[:, :, None]
        value = self.expected_log_prob(
            eta[:, None, ...], Response(response.mean[:, :, None, ...], var)
        )
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
        constant : array of shape (n, E * K), to be summed
        """
        d = self.derivatives(eta, response)
        rows = weight.T  # (K, n), contiguous
        q = self.n_linear
        linear = [rows * s.T for s in d.score[:q]]
        constant = [rows * s.T for s in d.score[q:]] or [rows[:0, :]]
        quadratic = [rows * c.T for (i, j), c in d.curvature.items() if i < q and j < q]
        return stack_rows(linear), stack_rows(quadratic), stack_rows(constant)

    def assemble(self, weight: Array, linear: Array, gram: Array, constant: Array) -> FitStatistics:
        """Arrange the sums of :meth:`fit_weights` into :class:`FitStatistics`.

        Parameters
        ----------
        weight : array of shape (K,)
        linear : array of shape (Q * K, p)
        gram : array of shape (Q (Q + 1) / 2 * K, p, p)
        constant : array of shape (E * K,)
        """
        K, p, q = self.n_experts, self.n_columns, self.n_linear
        score = to_numpy(linear).reshape(q, K, p).swapaxes(0, 1)
        information = np.empty((K, q, q, p, p))
        upper = iter(to_numpy(gram).reshape(-1, K, p, p))
        for i in range(q):
            for j in range(i, q):
                information[:, i, j] = information[:, j, i] = next(upper)
        dispersion = to_numpy(constant).reshape(self.n_constant, K).T
        return FitStatistics(to_numpy(weight), score, information, dispersion)

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

    @abstractmethod
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
        """Return the weighted maximum-likelihood experts, starting here (maths 2).

        With weight = responsibility and response = (y, 0) this is EM's M-step; with weight =
        transported mass and response = what other experts predict it is the KL projection.

        Parameters
        ----------
        X : array of shape (n, p)
        response : Response
            Column k goes to expert k; a single column goes to all.
        weight : array of shape (n, K)
        offset : array of shape (n,), optional
            Known part of the linear predictors.
        ridge : float
            As in :meth:`step`.
        tol : float
            Bound on the squared distance to the maximum, in standard errors.
        """
