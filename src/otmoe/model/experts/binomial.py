"""Logistic regressions of the number of successes in several trials.

A row has y of n trials. Given its expert, the log-likelihood is that of n outcomes of one trial:
log phi = n (s eta - b(eta)) + log binomial(n, y), s = y / n, so that a response is the share s and
its trials n (maths 8). What is predicted is the share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import special

from otmoe.arrays.numerics import Array, Floats, like, namespace, to_numpy
from otmoe.model.experts.base import FEW_VALUES, counts_grid
from otmoe.model.experts.family import LARGEST_RESPONSE
from otmoe.model.experts.glm import LARGEST_DRAWN, LogisticExperts
from otmoe.model.experts.values import Derivatives, Response
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class BinomialExperts(LogisticExperts):
    """K logistic regressions of the number of successes in several trials.

    y has two columns, successes and failures; a y of one column is the outcome of one trial, 0 or
    1, with which this is the logistic family.

    Attributes
    ----------
    coef : ndarray of shape (K, p)
        Coefficients, intercept in column 0.
    trials : ndarray of shape (K,)
        Trials of a row, on average and to two digits, in the rows of the fit: not a parameter, but
        what a row of this model weighs where models are merged.

    Examples
    --------
    >>> experts = BinomialExperts(np.array([[0.0, 1.0]]), np.array([2.0]))
    >>> np.exp(experts.log_prob(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]])))
    array([[0.5]])
    """

    trials: Floats

    family: ClassVar[str] = "binomial"
    classifies: ClassVar[bool] = False
    alpha: ClassVar[float] = 0.03
    expert_alpha: ClassVar[float] = 0.3
    informative_response: ClassVar[bool] = True
    n_responses: ClassVar[int] = 2

    @classmethod
    def blank(cls, n_experts: int, n_columns: int, n_classes: int = 2) -> Self:
        return cls(np.zeros((n_experts, n_columns)), np.ones(n_experts))

    @classmethod
    def n_classes_of(cls, shape: tuple[int, ...]) -> int:
        return 0

    # -- y ------------------------------------------------------------------------------------

    @classmethod
    def check_response(cls, y: Floats) -> None:
        if y.ndim == 1:
            return super().check_response(y)
        if y.ndim != 2 or y.shape[1] != cls.n_responses:
            raise InvalidInput(Error.NOT_TRIALS, shape=y.shape)
        wrong = (y < 0) | (y != np.floor(y)) | (y > LARGEST_RESPONSE)
        if np.any(wrong):
            row, column = np.argwhere(wrong)[0].tolist()
            what = ("successes", "failures")[column]
            raise InvalidInput(Error.TRIALS_NOT_COUNTS, value=y[row, column], what=what, row=row)
        return None

    def observe(self, y: Array) -> Response:
        successes, trials = _of_trials(y)
        xp = namespace(successes)
        share = successes / xp.where(trials > 0, trials, xp.ones_like(trials))
        return Response(share[:, None], 0.0, trials[:, None])

    def informed(self, y: Array, weight: Array | None = None) -> Self:
        trials = to_numpy(_of_trials(y)[1])
        w = None if weight is None else to_numpy(weight)
        mean = float(np.average(trials, weights=w)) if w is None or w.sum() > 0 else 1.0
        typical = float(f"{max(mean, 1.0):.2g}")  # messages hold it: no row is seen in two digits
        return replace(self, trials=np.full(self.n_experts, typical))

    def working(self, y: Array) -> Array:
        successes, trials = _of_trials(y)
        return namespace(y).log((successes + 0.5) / (trials - successes + 0.5))

    @staticmethod
    def log_base(y: Array) -> Array:
        if y.ndim == 1:
            return namespace(y).zeros_like(y)
        counts = to_numpy(y)
        total = special.gammaln(counts.sum(axis=1) + 1.0)
        return like(total - special.gammaln(counts + 1.0).sum(axis=1), y)

    def scores(self, y: Floats, prediction: Floats) -> dict[str, Floats]:
        successes, trials = _of_trials(y)
        share = successes / np.where(trials > 0, trials, 1.0)
        most = trials * -special.entr([share, 1 - share]).sum(axis=0)  # log-likelihood, less base
        log_prob = special.xlogy(successes, prediction)
        log_prob = log_prob + special.xlogy(trials - successes, 1 - prediction)
        return {
            "squared": (share - prediction) ** 2,
            "mae": np.abs(share - prediction),
            "deviance": 2 * (most - log_prob),
            "saturated": most,
            "successes": successes,
            "trials": trials,
        }

    @staticmethod
    def saturated(mean: float) -> float:
        return float(-special.entr([mean, 1 - mean]).sum())

    # -- density ------------------------------------------------------------------------------

    def response(self, eta: Array) -> Response:
        one = super().response(eta)
        return Response(one.mean, one.var, like(self.trials, eta)[None, :])

    def expected_log_prob(self, eta: Array, response: Response) -> Array:
        return response.trials * super().expected_log_prob(eta, response)

    def derivatives(self, eta: Array, response: Response) -> Derivatives:
        one = super().derivatives(eta, response)
        return Derivatives(
            tuple(response.trials * score for score in one.score),
            {place: response.trials * bend for place, bend in one.curvature.items()},
        )

    def mean_slope(self, eta: Array) -> Floats:
        return np.asarray(to_numpy(self.variance(eta)))[:, :, None, None]  # of the share

    def nearest(self, eta: Array, response: Response) -> tuple[Array, Array]:
        index, value = super().nearest(eta, response)
        return index, response.trials * value

    def grid(self, eta: Floats) -> tuple[Floats, Floats]:
        # successes of as many trials as rows have on average
        n = float(np.rint(self.trials.max()))
        if n < FEW_VALUES:
            y = np.tile(np.arange(n + 1), (len(eta), 1))
            width = np.ones_like(y)
        else:
            mean = np.asarray(self.mean(eta))
            y, width = counts_grid(n * mean, np.sqrt(n * mean * (1 - mean)), 0.0)
            width = np.where(y <= n, width, 0.0)
            y = np.minimum(y, n)
        return np.stack([y, n - y], axis=2), width

    def sample(self, eta: Array, rng: np.random.Generator) -> Floats:
        # as a fit takes y: outcomes of one trial, (n, K), or successes and failures, (n, K, 2)
        n, mean = np.rint(self.trials), to_numpy(self.mean(eta))
        drawn = rng.binomial(np.minimum(n, LARGEST_DRAWN).astype(int), mean)
        successes = np.where(n <= LARGEST_DRAWN, drawn, np.floor(n * mean))  # the largest: a mean
        return successes if np.all(n == 1) else np.stack([successes, n - successes], axis=-1)

    @property
    def curvature_bound(self) -> Floats:
        return np.full(self.n_experts, np.inf)  # rows have any number of trials

    def score_square_bound(self, log_likelihood: float, mass: Floats) -> Floats:
        return np.full(self.n_experts, np.inf)


def _of_trials(y: Any) -> tuple[Array, Array]:
    """Return successes and trials, (n,) each, of y in one column or two."""
    if y.ndim == 1:
        return y, namespace(y).ones_like(y)
    return y[:, 0], y[:, 0] + y[:, 1]
