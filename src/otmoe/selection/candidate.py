"""A number of experts, and its scores on rows and under sites' own models (maths 16)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otmoe.aggregation import Aggregation
from otmoe.model.mixture import MoE
from otmoe.text.arguments import check_whole
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn

DEGENERATE = frozenset(
    warning.code
    for warning in (
        Warn.VARIANCE_AT_FLOOR,
        Warn.SEPARATED,
        Warn.IDENTICAL_EXPERTS,
        Warn.EXPERTS_WITHOUT_ROWS,
        Warn.EXPERT_BY_CHANCE,
    )
)
"""Codes of fits that are not chosen, as long as there are others."""


@dataclass(frozen=True)
class Score:
    """Score of a model on some rows; scores add up over sites.

    Attributes
    ----------
    log_likelihood : float
        Weighted sum of log f(y | x).
    entropy : float
        Weighted sum of the entropies of the rows' responsibilities.
    n_samples : float
        Sum of the weights.
    """

    log_likelihood: float
    entropy: float
    n_samples: float

    def __add__(self, other: Score) -> Score:
        return Score(
            self.log_likelihood + other.log_likelihood,
            self.entropy + other.entropy,
            self.n_samples + other.n_samples,
        )


@dataclass(frozen=True)
class Expectation:
    """Expected performance of a merged model under the sites' own models (maths 17).

    Attributes
    ----------
    lost : float
        Nats per row that it is expected to lose to the sites' own models.
    apart : float
        Four times its squared Hellinger distance to the sites' own models. For nearby models it
        equals the loss; but it is bounded, so that local experts of a few rows with extreme
        predictions do not dominate.
    n_samples : float
        Rows of all sites.
    """

    lost: float
    apart: float
    n_samples: float


@dataclass(frozen=True)
class Candidate:
    """A number of experts, and how well it does.

    Attributes
    ----------
    n_experts : int
    model : MoE
    score : Score, optional
        Of all rows; None until they have been evaluated.
    cost : float
        R_c of the merged model; NaN if nothing was merged.
    seconds : float
        Of the fit, or of merging.
    warnings : tuple of Notice
        What one should know about it.
    estimator : object
        The fitted estimator.
    aggregation : Aggregation, optional
        How the model was merged.
    expectation : Expectation, optional
        What the sites' own models expect of the merged model.
    held_out : Score, optional
        Of all rows, each under a model that was fitted without it; None without cross-validation.
    """

    n_experts: int
    model: MoE = field(repr=False)
    score: Score | None = None
    cost: float = np.nan
    seconds: float = np.nan
    warnings: tuple[Notice, ...] = ()
    estimator: Any = field(default=None, repr=False)
    aggregation: Aggregation | None = field(default=None, repr=False)
    expectation: Expectation | None = None
    held_out: Score | None = None

    @property
    def n_parameters(self) -> int:
        """Number of free parameters, minus those that the rows do not determine."""
        fit = getattr(self.estimator, "fit_", None)
        return self.model.n_free if fit is None else int(fit.rank)

    @property
    def degenerate(self) -> bool:
        """Whether the fit is one that no criterion should choose."""
        return any(warning.code in DEGENERATE for warning in self.warnings)

    @property
    def log_likelihood(self) -> float:
        """Of all rows, without any penalty; NaN if it is not known."""
        return np.nan if self.score is None else self.score.log_likelihood

    @property
    def entropy(self) -> float:
        """Of the responsibilities, summed over rows: 0 if each row has its expert."""
        return np.nan if self.score is None else self.score.entropy

    @property
    def bic(self) -> float:
        """Bayesian information criterion; lower is better."""
        if self.score is None:
            return np.nan
        return -2 * self.log_likelihood + self.n_parameters * float(np.log(self.score.n_samples))

    @property
    def icl(self) -> float:
        """Integrated completed likelihood, BIC plus twice the entropy; lower is better."""
        return self.bic + 2 * self.entropy

    @property
    def cv(self) -> float:
        """Minus twice the log-likelihood of held-out rows; lower is better."""
        return np.nan if self.held_out is None else -2 * self.held_out.log_likelihood

    @property
    def lost(self) -> float:
        """Nats per row that the merged model is expected to lose to the sites' own."""
        return np.nan if self.expectation is None else self.expectation.lost

    @property
    def apart(self) -> float:
        """Four times its squared Hellinger distance to the sites' own models."""
        return np.nan if self.expectation is None else self.expectation.apart

    @property
    def expected_bic(self) -> float:
        """BIC with the log-likelihood that the sites' own models expect; lower is better."""
        known = self.expectation
        if known is None:
            return np.nan
        penalty = self.model.n_free * float(np.log(known.n_samples))
        return 2 * known.n_samples * known.apart + penalty


def numbers_to_try(n_experts: Iterable[int]) -> list[int]:
    """Return the numbers of experts to try, sorted; refuse what is none."""
    if isinstance(n_experts, int):
        raise InvalidType(Error.ONE_NUMBER, value=n_experts)
    numbers = sorted(set(n_experts))
    for K in numbers:
        check_whole("n_experts", K)
    if not numbers:
        raise InvalidInput(Error.NO_NUMBERS)
    return numbers
