"""Mixtures of regressions: numbers and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from otmoe.arrays.numerics import Array, Floats
from otmoe.estimators.base import BaseMoE
from otmoe.likelihood.fit import MAX_ITER, TOL
from otmoe.model.experts import FAMILIES
from otmoe.model.mixture import MoE
from otmoe.model.target import Target
from otmoe.text.arguments import check_numbers, check_offset, generator
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


class MoERegressor(RegressorMixin, BaseMoE):
    """Mixture of regression experts with a softmax gate.

    Each expert is a linear or a Poisson regression; the gate says, from the same features, which
    expert answers where. Parameters are fitted by (penalised) maximum likelihood: starts are
    screened on a subsample, EM improves the best on all rows, Newton's method finishes.

    Parameters
    ----------
    n_experts : int, default=2
        Number of experts, K.
    family : str, default="gaussian"
        Distribution of y under an expert: "gaussian" for a number, "student_t" for one with
        outliers, "poisson" for a count, "negative_binomial" for one that varies more, "gamma" for a
        positive number, or any other in :data:`otmoe.model.experts.FAMILIES`.
    gate_features : None, "intercept" or list of str or int, default=None
        Features the gate sees: all, none (constant gate), or some by name or index.
    expert_features : None, "intercept", list of str or int, or one for each expert, default=None
        Features the experts see: all, none (experts that are constants), some for all experts, or,
        as a list of lists or a mapping of names, those of each expert. Then experts stay in that
        order.
    common : list of str or int, optional
        Features whose coefficient is the same in every expert that sees them; "intercept" among
        them is the intercept.
    common_variance : bool, default=False
        Whether Gaussian experts share their variance.
    alpha : float, optional
        Centred ridge on the gate, ``alpha / 2 * sum_k |A_k - mean A|^2``, taken from the summed
        log-likelihood on standardised features; it keeps a separated gate finite. 0 for plain
        maximum likelihood; by default 0.03.
    expert_alpha : float, optional
        Ridge on the slopes of the experts, in the same way; it keeps slopes finite where an expert
        has few events. 0 for plain maximum likelihood; by default 0.3 for counts. Gaussian experts
        need none.
    n_init : int, optional
        Number of independent searches for the maximum; by default 3, and 6 where rows are few.
    max_iter : int
        Largest number of passes over the rows.
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
        family: str = "gaussian",
        gate_features: Any = None,
        expert_features: Any = None,
        common: Any = None,
        common_variance: bool = False,
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
        self.alpha = alpha
        self.expert_alpha = expert_alpha
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit the model by maximum likelihood.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features, without a column of ones.
        y : array-like of shape (n,)
            Target.
        sample_weight : array-like of shape (n,), optional
            Case weights: weight 2 counts as the row twice.
        offset : array-like of shape (n,), optional
            Known part of the experts' linear predictors; for counts, the log of the exposure.

        Returns
        -------
        self
        """
        self._check_family()
        check_numbers(y)
        X, y = self._check_training(X, y, y_numeric=True)
        target = Target(self.family)
        return self._fit(X, target.numbers_like(y, X), sample_weight, offset, target)

    def _check_family(self) -> None:
        known = [name for name, family in FAMILIES.items() if not family.classifies]
        if self.family not in known:
            raise InvalidInput(Error.NOT_ONE_OF, name="family", value=self.family, choices=known)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        family = FAMILIES.get(self.family)
        tags.target_tags.positive_only = family is not None and family.lowest >= 0
        return tags

    def _check_target(self, y: Any, X: Array) -> Array:
        y = column_or_1d(check_array(y, ensure_2d=False, input_name="y"), warn=True)
        check_consistent_length(X, y)
        return Target(self.family).numbers_like(y, X)

    @classmethod
    def from_model(cls, model: MoE) -> Self:
        """Return a fitted estimator around a model that came from elsewhere.

        Parameters
        ----------
        model : MoE
        """
        return cls(n_experts=model.n_experts, family=model.experts.family)._set_model(model)

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Return the mean of y given x, averaged over experts by the gate.

        Parameters
        ----------
        X : array-like of shape (n, d)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n,)
        """
        X = self._check_rows(X)
        return self.model_.predict(X, check_offset(offset, X))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Return R squared, the share of the variance of y that the predictions explain.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.
        """
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
        offset = check_offset(offset, X)
        return np.column_stack([self.model_.quantile(X, level, offset) for level in levels])

    def predict_interval(self, X: Any, coverage: float = 0.95, offset: Any = None) -> Floats:
        """Return the central interval that holds y with the given probability.

        It takes the parameters as known: their estimation error is not included.

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
