"""What an expert family has to provide.

K experts of one family are stacked on the first axis of their parameters, so that concatenating
the experts of many sites, or picking some of them, is plain indexing.

A family says three things: the expected log density of a row (:meth:`Family.expected_log_prob`),
its derivatives in the linear predictors (:meth:`Family.derivatives`), and what one weighted
fitting step does with their sums (:meth:`Family.step`). EM's M-step, the KL projection, score and
information follow from these and are written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from otmoe.arrays.numerics import Array, Floats
from otmoe.model.experts.values import Derivatives, FitStatistics, Response, bounded
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.sentences import Error

LARGEST_RESPONSE = 1e30
"""Magnitude of y up to which fits and their files hold."""


@dataclass(frozen=True)
class Family(ABC):
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
    n_responses: ClassVar[int] = 1  # columns of y
    dispersions: ClassVar[tuple[str, ...]] = ()  # names of the constant predictors
    bends: ClassVar[bool] = False  # does a step need the curvature in the constant predictors?
    by_moments: ClassVar[bool] = True  # does E[log phi] depend on mean and variance of y alone?
    null_by_values: ClassVar[bool] = False  # needs the best expert without x all values of y?
    informative_response: ClassVar[bool] = True  # does one y tell its expert from the others?
    alpha: ClassVar[float] = 0.03  # ridge of the gate, by default; docs/benchmarks.md has the table
    expert_alpha: ClassVar[float] = 0.0  # the same of the experts' slopes

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
    def responses(self) -> list[str]:
        """Names of the responses, one for each linear predictor; none where there is one."""
        return []

    @property
    def parts(self) -> tuple[Any, ...]:
        """The experts of each response."""
        return (self,)

    @classmethod
    def split(cls, y: Array) -> list[Array]:
        """Return the columns of each response, (n,) or (n, 2)."""
        return [y]

    @classmethod
    def called(cls, labels: Sequence[str]) -> type[Any]:
        """Return the family with these names of its responses, where it has several."""
        return cls

    @classmethod
    def scaled_columns(cls) -> tuple[bool, ...]:
        """Say for each column of y whether it may be shifted and stretched."""
        return (cls.has_scale,) * cls.n_responses

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

        It is exact up to a term that depends on y alone, which :meth:`log_base` gives. Unless a
        family goes `by_moments`, y is known (its variance is the number 0.0) or of the family.
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
    def contrast_spread(self) -> Floats:
        """Covariance of an expert's linear predictors if its classes vary alike, (Q, Q)."""
        return np.eye(self.n_linear)

    @property
    def dispersion(self) -> Floats | None:
        """The experts' dispersions, (K,), or None if the family has none."""
        return None

    @property
    def coef_unit(self) -> Floats:
        """What coefficients are measured in, (K,): a deviation of y where it has a scale, or 1."""
        if self.has_scale and self.dispersion is not None:
            return np.sqrt(self.dispersion)
        return np.ones(self.n_experts)

    @property
    def smallest_dispersion(self) -> float:
        """Smallest dispersion of an expert, or infinity if the family has none."""
        return np.inf if self.dispersion is None else float(self.dispersion.min())

    @property
    def curvature_bound(self) -> Floats:
        """Bound on the curvature of -log phi_k in a linear predictor, (K,); infinite for none."""
        return np.full(self.n_experts, np.inf)

    def score_square_bound(self, log_likelihood: float, mass: Floats) -> Floats:
        """Return a bound on the sum over rows of r_k u^2, u the score in a predictor, (K,).

        Parameters
        ----------
        log_likelihood : float
            Of the rows, base measure included.
        mass : ndarray of shape (K,)
            Their summed responsibilities.
        """
        return np.full(self.n_experts, np.inf)

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
        """Refuse a y (n,) that the family cannot have, or whose square is no number."""
        if y.ndim != 1:
            raise InvalidInput(Error.RESPONSE_COLUMNS, shape=y.shape, family=cls.family)
        if np.any(far := np.abs(y) > LARGEST_RESPONSE):
            row = int(np.flatnonzero(far)[0])
            raise InvalidInput(
                Error.RESPONSE_TOO_LARGE, value=y[row], row=row, most=LARGEST_RESPONSE
            )
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

    @staticmethod
    def saturated(mean: float) -> float:
        """Return the part of the unit deviance of a constant mean that depends on that alone.

        The deviance is twice the mean of the score ``saturated`` less this one. NaN where a family
        has no such score.
        """
        return np.nan

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        """Return how far predicted means are from y, row by row (n,), under names of scores."""
        return {"squared": (y - prediction) ** 2, "mae": np.abs(y - prediction)}

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
