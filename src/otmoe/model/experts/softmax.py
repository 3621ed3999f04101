"""Multinomial regression experts: softmax regressions of a class on x."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from otmoe.arrays.numerics import Array, Floats, like, namespace, sample_rows, times_each, to_numpy
from otmoe.model.experts.glm import NewtonExperts, slopes
from otmoe.model.experts.values import Derivatives, Response, bounded
from otmoe.text.errors import InvalidType
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class MultinomialExperts(NewtonExperts):
    """K softmax regressions of a class 0..C-1, the last class as reference.

    Predictors are (n, K, C), the last of them zero; a response's mean is the vector of class
    probabilities, (n, L, C).

    Attributes
    ----------
    coef : ndarray of shape (K, C, p)
        Coefficients, intercept in column 0; the last class's are zero.

    Examples
    --------
    >>> experts = MultinomialExperts.blank(n_experts=1, n_columns=2, n_classes=4)
    >>> np.exp(experts.log_prob(np.array([[1.0, 0.0]]), np.array([3.0])))
    array([[0.25]])
    """

    family: ClassVar[str] = "multinomial"
    discrete: ClassVar[bool] = True
    classifies: ClassVar[bool] = True
    alpha: ClassVar[float] = 0.3
    expert_alpha: ClassVar[float] = 0.3
    lowest: ClassVar[float] = 0.0
    informative_response: ClassVar[bool] = False

    @classmethod
    def n_classes_of(cls, shape: tuple[int, ...]) -> int:
        return shape[1]

    def mean_bounds(self, mean: Floats, half: Floats) -> tuple[Floats, Floats]:
        return bounded(mean, half, 0.0, 1.0)

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        share = np.eye(self.n_classes)[y.astype(int)]
        brier = np.square(prediction - share).sum(axis=1)
        return {"accuracy": prediction.argmax(axis=1) == y, "brier": brier}

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return int(self.coef.shape[1])

    @property
    def values(self) -> Floats:
        return np.arange(float(self.n_classes))

    @property
    def n_linear(self) -> int:
        return self.n_classes - 1

    @classmethod
    def blank(cls, n_experts: int, n_columns: int, n_classes: int = 2) -> Self:
        return cls(np.zeros((n_experts, n_classes, n_columns)))

    @property
    def curvature_bound(self) -> Floats:
        return np.full(self.n_experts, 0.25)  # p (1 - p)

    def score_square_bound(self, log_likelihood: float, mass: Floats) -> Floats:
        return mass  # no residual is above 1

    def observe(self, y: Array) -> Response:
        xp = namespace(y)
        codes = like(np.arange(self.n_classes), y)
        onehot = xp.astype(y[None, :] == codes[:, None], codes.dtype)  # (C, n)
        return Response(onehot.T[:, None, :])

    def predictor(self, X: Array, offset: Array | None = None) -> Array:
        if offset is not None:
            raise InvalidType(Error.NO_OFFSET)
        return times_each(X, self.coef)

    def response(self, eta: Array) -> Response:
        return Response(self.mean(eta))

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        xp = namespace(eta)
        return xp.sum(response.mean * eta, axis=-1) - self.cumulant(eta)

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        prob = self.mean(eta)
        free = range(self.n_linear)
        p = [prob[..., c] for c in free]
        curvature = {
            (c, e): p[c] * (1.0 - p[c]) if c == e else -p[c] * p[e]
            for c in free
            for e in free
            if c <= e
        }
        return Derivatives(tuple(response.mean[..., c] - p[c] for c in free), curvature)

    def expert_penalty_matrix(self, ridge: float) -> Floats:
        # Centred over classes, as the gate's, so that it does not change when classes are renamed;
        # scaled so that two classes have the logistic family's.
        C, Q = self.n_classes, self.n_linear
        return ridge * C / Q * np.kron(np.eye(Q) - 1 / C, np.diag(slopes(self.n_columns)))

    @property
    def contrast_spread(self) -> Floats:
        # The inverse of the ridge's, for the same reasons.
        C, Q = self.n_classes, self.n_linear
        return Q / C * (np.eye(Q) + 1.0)

    def to_vector(self) -> Floats:
        return self.coef[:, :-1].ravel()

    def with_vector(self, vector: Floats) -> Self:
        coef = np.zeros_like(self.coef)
        coef[:, :-1] = vector.reshape(coef[:, :-1].shape)
        return replace(self, coef=coef)

    def named_parameters(self, terms: Sequence[str]) -> dict[str, Floats]:
        return {
            f"class {c}: {term}": self.coef[:, c, j]
            for c in range(self.n_classes)
            for j, term in enumerate(terms)
        }

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        return sample_rows(to_numpy(self.mean(eta)), rng)

    @staticmethod
    def cumulant(eta: Array) -> Array:
        """Return the log of the softmax's denominator, (..., C) -> (...)."""
        xp = namespace(eta)
        top = xp.max(eta, axis=-1)
        return top + xp.log(xp.sum(xp.exp(eta - top[..., None]), axis=-1))

    @staticmethod
    def mean(eta: Array) -> Array:
        """Return class probabilities, (n, K, C)."""
        xp = namespace(eta)
        e = xp.exp(eta - xp.max(eta, axis=-1)[..., None])
        e /= xp.sum(e, axis=-1)[..., None]
        return e
