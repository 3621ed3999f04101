"""Mixtures of regressions: numbers and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from otmoe.arrays.numerics import Array, Floats, to_numpy
from otmoe.data.tables import is_table, names_of
from otmoe.estimators.base import BaseMoE
from otmoe.likelihood.fit import MAX_ITER, TOL
from otmoe.model.experts import FAMILIES
from otmoe.model.mixture import ExpertPer, MoE
from otmoe.model.target import Target
from otmoe.text.arguments import check_numbers, check_offset, generator
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.sentences import Error


class MoERegressor(RegressorMixin, BaseMoE):
    """Mixture of regression experts with a softmax gate.

    Each expert is a regression; the gate gives, from the same features, the probability of each
    expert. Parameters are fitted by (penalised) maximum likelihood: starts are compared on a
    subsample, EM improves the best one on all rows, and Newton's method finishes.

    Parameters
    ----------
    n_experts : int, default=2
        Number of experts, K.
    family : str or list of str, default="gaussian"
        Distribution of y under an expert: "gaussian" for a number, "student_t" for one with
        outliers (with 5 degrees of freedom, or as many as the name ends in: an odd number, as in
        "student_t3"), "poisson" for a count, "negative_binomial" for an overdispersed one,
        "binomial" for successes in trials, "gamma" for a positive number, or any other in
        :data:`otmoe.model.experts.FAMILIES`. A list has one for each of several responses, which
        share gate and responsibilities: given its expert, the responses of a row are independent.
    gate_features : None, "intercept" or list of str or int, default=None
        Features of the gate: all, none (constant gate), or some by name or index.
    expert_features : None, "intercept", list of str or int, or one for each expert, default=None
        Features of the experts: all, none (constant experts), some for all experts, or, as a list
        of lists or a mapping by name, those of each expert; experts then stay in that order.
        "-intercept" among them fixes the intercept at 0. For several responses, a mapping by
        response ("y0", "y1", or the columns of a frame) has any of these for each of them.
    common : list of str or int, optional
        Features whose coefficient is the same in every expert that uses them; may include
        "intercept".
    common_variance : bool, default=False
        Whether Gaussian experts share their variance.
    zero_expert : bool, default=False
        Whether the last of the `n_experts` is always 0, for counts with more zeros than the others
        explain (zero inflation); the gate gives its probability.
    expert_per : {"row", "group"}, default="row"
        Whether every row has an expert of its own, or all rows of a group (a person, a centre)
        share one: then `fit` takes `groups`, and the features of the gate must not vary within a
        group.
    alpha : float, optional
        Centred ridge on the gate, ``alpha / 2 * sum_k |A_k - mean A|^2``, subtracted from the
        summed log-likelihood on standardised features; it keeps a separated gate finite. 0 for
        plain maximum likelihood; by default 0.03.
    expert_alpha : float, optional
        Ridge on the slopes of the experts, in the same way; it keeps slopes finite if an expert has
        few events. 0 for plain maximum likelihood; by default 0.3 for counts. Gaussian experts need
        none.
    n_init : int, optional
        Number of independent searches for the maximum; by default 3, or 6 with few rows.
    max_iter : int
        Maximum number of passes over the rows.
    tol : float
        A fit has converged when its squared distance to the maximum is below this, in standard
        errors.
    warm_start : bool, default=False
        Start from the previous fit instead of searching.
    n_jobs : int, optional
        Number of threads; None means 1, -1 all cores.
    random_state : int, RandomState or Generator, optional
        Fixes the starts.
    verbose : int, default=0
        1 shows progress in the terminal.

    Attributes
    ----------
    model_ : MoE
        Gate and experts on the scale of X and y; experts ordered by mass, largest first.
    fit_ : Fit
        Trace, status, timings of the fit.
    log_likelihood_ : float
        Unpenalised log-likelihood of the training rows.
    n_iter_ : int
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Examples
    --------
    >>> from otmoe import MoERegressor, simulate
    >>> data = simulate(n_samples=2000, n_experts=2, n_features=3, random_state=0)
    >>> est = MoERegressor(n_experts=2, random_state=0).fit(data.X, data.y)
    >>> data.truth.experts.coef
    array([[ 4., -4., -5.,  4.],
           [-5.,  0., -5., -2.]])
    >>> est.model_.aligned_to(data.truth, data.X).experts.coef.round(1) + 0.0
    array([[ 3.9, -4. , -4.9,  4. ],
           [-5. ,  0. , -5. , -2. ]])
    """

    def __init__(
        self,
        n_experts: int = 2,
        *,
        family: str | Sequence[str] = "gaussian",
        gate_features: Any = None,
        expert_features: Any = None,
        common: Any = None,
        common_variance: bool = False,
        zero_expert: bool = False,
        expert_per: ExpertPer = "row",
        alpha: float | None = None,
        expert_alpha: float | None = None,
        n_init: int | None = None,
        max_iter: int = MAX_ITER,
        tol: float = TOL,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_experts = n_experts
        self.family = family
        self.gate_features = gate_features
        self.expert_features = expert_features
        self.common = common
        self.common_variance = common_variance
        self.zero_expert = zero_expert
        self.expert_per = expert_per
        self.alpha = alpha
        self.expert_alpha = expert_alpha
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, *, groups: Any = None
    ) -> Self:
        """Fit the model by maximum likelihood.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features, without a column of ones.
        y : array-like of shape (n,), or (n, C) where families take several columns
            Target; for the binomial family successes and failures, as in R and statsmodels, or
            outcomes 0 and 1 of one trial each; for a list of families their columns, in its order.
        sample_weight : array-like of shape (n,), optional
            Case weights: weight 2 counts as the row twice.
        offset : array-like of shape (n,), optional
            Known part of the experts' linear predictors; for counts, the log of the exposure.
        groups : array-like of shape (n,), optional
            With ``expert_per="group"``: label of the group of each row, of any hashable kind.

        Returns
        -------
        self
        """
        self._check_family()
        check_numbers(y)
        columns = FAMILIES[self._family].n_responses
        responses = self.__dict__.pop("_response_names", ()) or _responses(y, self._family)
        X, y = self._check_training(X, y, y_numeric=True, multi_output=columns > 1)
        target = Target(self._family, expert_per=self.expert_per, responses=responses)
        return self._fit(X, target.numbers_like(y, X), sample_weight, offset, target, groups)

    @property
    def _family(self) -> str:
        """The family by its name; those of several responses have a plus in between."""
        return self.family if isinstance(self.family, str) else "+".join(map(str, self.family))

    def _check_family(self) -> None:
        known = [name for name, family in FAMILIES.items() if not family.classifies]
        if self._family not in FAMILIES or FAMILIES[self._family].classifies:
            choices = [*known, FAMILIES.more]
            raise InvalidInput(Error.NOT_ONE_OF, name="family", value=self.family, choices=choices)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        family = FAMILIES[self._family] if self._family in FAMILIES else None
        tags.target_tags.positive_only = family is not None and family.lowest >= 0
        tags.target_tags.multi_output = family is not None and family.n_responses > 1
        return tags

    def _check_target(self, y: Any, X: Array) -> Array:
        y = check_array(y, ensure_2d=False, input_name="y")
        if FAMILIES[self._family].n_responses == 1:
            y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        return Target(self._family).numbers_like(y, X)

    @classmethod
    def from_model(cls, model: MoE) -> Self:
        """Return a fitted estimator with an existing model.

        Parameters
        ----------
        model : MoE
        """
        how: Any = {"family": model.experts.family, "expert_per": model.expert_per}
        return cls(n_experts=model.n_experts, **how)._set_model(model)

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Return the mean of y given x, averaged over experts by the gate.

        For the binomial family it is the expected share of successes.

        Parameters
        ----------
        X : array-like of shape (n, d)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n,), or (n, R) for R responses
        """
        X = self._check_rows(X)
        self._check_offset_given(offset)
        return self.model_.predict(X, check_offset(offset, X))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Return R squared, the share of the variance of y that the predictions explain.

        For the binomial family y are shares, and rows count as often as they have trials. For
        several responses it is the mean of theirs.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,), or (n, 2)
            As in :meth:`fit`.
        sample_weight : array-like of shape (n,), optional
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.
        """
        if FAMILIES[self._family].n_responses > 1:
            seen = self.model_.experts.observe(self._check_target(y, self._check_rows(X)))
            y = to_numpy(seen.mean)[:, 0]
            if y.ndim == 1:
                trials = to_numpy(seen.trials)[:, 0]
                given = 1.0 if sample_weight is None else np.asarray(sample_weight)
                sample_weight = trials * given
        return float(r2_score(y, self.predict(X, offset), sample_weight=sample_weight))

    def sample(self, X: Any, random_state: Any = None, offset: Any = None) -> Floats:
        """Draw a response at every row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        random_state : int, RandomState or Generator, optional
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n,)
        """
        X = self._check_rows(X)
        self._check_offset_given(offset)
        return self.model_.sample(X, generator(random_state), check_offset(offset, X))[0]

    def predict_quantile(
        self, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95), offset: Any = None
    ) -> Floats:
        """Return quantiles of y given x, from the mixture itself.

        Parameters
        ----------
        X : array-like of shape (n, d)
        levels : sequence of Q floats in (0, 1)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n, Q)
        """
        X = self._check_rows(X)
        if self._family == "binomial":
            raise InvalidType(Error.NO_QUANTILES, family=self._family)
        self._check_offset_given(offset)
        offset = check_offset(offset, X)
        return np.column_stack([self.model_.quantile(X, level, offset) for level in levels])

    def predict_interval(self, X: Any, coverage: float = 0.95, offset: Any = None) -> Floats:
        """Return the central interval that contains y with the given probability.

        The parameters are treated as known: their estimation error is not included.

        Parameters
        ----------
        X : array-like of shape (n, d)
        coverage : float in (0, 1)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n, 2)
        """
        if not 0 < coverage < 1:
            raise InvalidInput(Error.NOT_A_LEVEL, name="coverage", value=coverage)
        return self.predict_quantile(X, ((1 - coverage) / 2, (1 + coverage) / 2), offset)


def _responses(y: Any, family: str) -> tuple[str, ...]:
    """Return the names of several responses, where y is a table with names for its columns."""
    kinds = getattr(FAMILIES[family], "kinds", ())
    if not kinds or not is_table(y):
        return ()
    names, first = names_of(y), np.cumsum([0, *(kind.n_responses for kind in kinds)])
    if len(set(names)) < first[-1] or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names[i] for i in first[:-1])
