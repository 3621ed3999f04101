"""scikit-learn estimators: thin shells around :func:`otmoe.em.em` and :class:`otmoe.model.MoE`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from otmoe.em import ALPHA, MAX_ITER, N_INIT, TOL, Fit, em
from otmoe.model import MoE
from otmoe.numerics import Floats
from otmoe.progress import fit_progress
from otmoe.validation import as_table, check_weight, explained, generator

if TYPE_CHECKING:
    import pandas as pd


class _BaseMoE(BaseEstimator):
    """What estimators of every family share: parameters, fitting, densities, tables."""

    model_: MoE
    fit_: Fit

    def __init__(
        self,
        n_experts: int = 2,
        *,
        family: str = "gaussian",
        gate_features: Any = None,
        alpha: float = ALPHA,
        n_init: int = N_INIT,
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
        self.alpha = alpha
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # -- fitting ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model by maximum likelihood.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Features, without a column of ones.
        y : array-like of shape (n,)
            Target.
        sample_weight : array-like of shape (n,), optional
            Case weights: weight 2 counts as the row twice.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y = self._check_training(X, y)
        sample_weight = check_weight(sample_weight, X)
        columns = self._gate_columns()
        init = self._warm_model(X.shape[1]) if self.warm_start else None
        totals = {"starts": self.n_init, "em": self.max_iter, "newton": self.max_iter}
        with fit_progress(self.verbose > 0, totals) as progress:
            fit = em(
                X,
                y,
                self.n_experts,
                family=self.family,
                init=init,
                gate_columns=columns,
                alpha=self.alpha,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=self.tol,
                sample_weight=sample_weight,
                random_state=generator(self.random_state),
                n_threads=effective_n_jobs(self.n_jobs),
                progress=progress,
            )
        self._keep(fit)
        return self

    def _keep(self, fit: Fit) -> None:
        """Store a fit and say, in one warning, what the user should know about it."""
        names = getattr(self, "feature_names_in_", None)
        self.fit_ = fit
        self.model_ = fit.model.named(None if names is None else tuple(map(str, names)))
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        self.log_likelihood_ = fit.log_likelihood
        trouble = list(fit.warnings)
        if not fit.converged:
            trouble.insert(
                0, f"the fit {fit.status}: raise max_iter or alpha, or use fewer experts."
            )
        if trouble:
            warnings.warn(
                " ".join(f"{type(self).__name__}: {t}" for t in trouble), ConvergenceWarning, 3
            )

    def _check_parameters(self) -> None:
        for name in ("n_experts", "n_init", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} is {value!r}; give a whole number of at least 1.")
        for name in ("alpha", "tol"):
            value = getattr(self, name)
            if not np.isscalar(value) or not np.isreal(value) or not 0 <= value < np.inf:  # type: ignore[operator]
                raise ValueError(f"{name} is {value!r}; give a number that is zero or positive.")
        if self.family not in self._families:
            known = ", ".join(map(repr, self._families))
            raise ValueError(f"family is {self.family!r}; {type(self).__name__} knows {known}.")

    _families: tuple[str, ...] = ("gaussian",)

    def _check_training(self, X: Any, y: Any) -> tuple[Floats, Floats]:
        try:
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True)
        except ValueError as error:
            raise explained(error, X) from error
        if X.shape[0] < self.n_experts:
            raise ValueError(
                f"n_samples={X.shape[0]} is less than n_experts={self.n_experts}: "
                "give more rows or ask for fewer experts."
            )
        return X, y.astype(np.float64, copy=False)

    def _check_rows(self, X: Any, y: Any = None) -> tuple[Floats, Floats | None]:
        """Validate rows to be predicted or scored."""
        check_is_fitted(self)
        try:
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        except ValueError as error:
            raise explained(error, X) from error
        if y is not None:
            y = column_or_1d(
                check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True
            )
            check_consistent_length(X, y)
        return X, y

    def _gate_columns(self) -> tuple[int, ...] | None:
        """Translate `gate_features` to columns of the design."""
        features = self.gate_features
        if features is None:
            return None
        if isinstance(features, str):
            if features == "intercept":
                return (0,)
            raise ValueError(
                f"gate_features is {features!r}; give None (all features), 'intercept', or a list "
                "of feature names or indices."
            )
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        columns = {0}
        for feature in features:
            if isinstance(feature, str):
                if feature not in names:
                    known = f"the columns are {names}" if names else "X came without column names"
                    raise ValueError(f"gate_features names {feature!r}, but {known}.")
                columns.add(names.index(feature) + 1)
            elif isinstance(feature, int | np.integer) and 0 <= feature < self.n_features_in_:
                columns.add(int(feature) + 1)
            else:
                raise ValueError(
                    f"gate_features has {feature!r}; "
                    f"indices go from 0 to {self.n_features_in_ - 1}."
                )
        return tuple(sorted(columns))

    def _warm_model(self, n_features: int) -> MoE | None:
        model = getattr(self, "model_", None)
        if model is None or model.n_experts != self.n_experts or model.n_features != n_features:
            return None
        return model

    @classmethod
    def from_model(cls, model: MoE) -> Self:
        """Return a fitted estimator around a model that came from elsewhere.

        Parameters
        ----------
        model : MoE
        """
        estimator = cls(n_experts=model.n_experts, family=model.experts.family)
        estimator.model_ = model
        estimator.n_features_in_ = model.n_features
        if model.feature_names is not None:
            estimator.feature_names_in_ = np.array(model.feature_names, dtype=object)
        return estimator

    # -- using --------------------------------------------------------------------------------

    def log_density(self, X: Any, y: Any) -> Floats:
        """Return log f(y | x).

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)

        Returns
        -------
        ndarray of shape (n,)
        """
        X, y = self._check_rows(X, y)
        return self.model_.log_density(X, y)

    def predict_expert_proba(self, X: Any, y: Any = None) -> Floats:
        """Return the probability of each expert: the gate's, or the posterior where y is known.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,), optional

        Returns
        -------
        ndarray of shape (n, K)
        """
        X, y = self._check_rows(X, y)
        return self.model_.gate_prob(X) if y is None else self.model_.responsibilities(X, y)

    def predict_expert(self, X: Any, y: Any = None) -> Floats:
        """Return the most probable expert: by the gate, or by the posterior where y is known.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,), optional

        Returns
        -------
        ndarray of int of shape (n,)
        """
        return self.predict_expert_proba(X, y).argmax(axis=1)

    def sample(self, X: Any, random_state: Any = None) -> Floats:
        """Draw a response at every row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        random_state : int, RandomState or Generator, optional

        Returns
        -------
        ndarray of shape (n,)
        """
        X, _ = self._check_rows(X)
        return self.model_.sample(X, generator(random_state))[0]

    def aic(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return Akaike's information criterion on these rows (lower is better)."""
        log_likelihood, _ = self._log_likelihood(X, y, sample_weight)
        return -2 * log_likelihood + 2 * self.model_.n_parameters

    def bic(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the Bayesian information criterion on these rows (lower is better)."""
        log_likelihood, n = self._log_likelihood(X, y, sample_weight)
        return -2 * log_likelihood + float(np.log(n)) * self.model_.n_parameters

    def _log_likelihood(self, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
        log_density = self.log_density(X, y)
        if sample_weight is None:
            return float(log_density.sum()), float(len(log_density))
        weight = np.asarray(check_weight(sample_weight, log_density[:, None]))
        return float(weight @ log_density), float(weight.sum())

    # -- reading ------------------------------------------------------------------------------

    def expert_table(self) -> pd.DataFrame:
        """Return the experts' coefficients and dispersions, a column per expert. Needs pandas."""
        check_is_fitted(self)
        return as_table(self.model_.experts.named_parameters(self.model_.terms))

    def gate_table(self) -> pd.DataFrame:
        """Return the gate's coefficients, a column per expert. Needs pandas."""
        check_is_fitted(self)
        return as_table(dict(zip(self.model_.terms, self.model_.gate.coef.T, strict=True)))


class MoERegressor(RegressorMixin, _BaseMoE):
    """Mixture of regression experts with a softmax gate.

    Each expert is a linear regression; the gate says, from the same features, which expert answers
    where. Parameters are fitted by (penalised) maximum likelihood: starts are screened on a
    subsample, EM improves the best on all rows, Newton's method finishes.

    Parameters
    ----------
    n_experts : int, default=2
        Number of experts, K.
    family : {"gaussian"}, default="gaussian"
        Distribution of y under an expert.
    gate_features : None, "intercept" or list of str or int, default=None
        Features the gate sees: all, none (constant gate), or some by name or index.
    alpha : float
        Centred ridge on the gate, ``alpha / 2 * sum_k |A_k - mean A|^2``, taken from the summed
        log-likelihood on standardised features; it keeps a separated gate finite. 0 for plain
        maximum likelihood.
    n_init : int
        Number of starts tried on a subsample.
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

    def predict(self, X: Any) -> Floats:
        """Return the mean of y given x, averaged over experts by the gate.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        ndarray of shape (n,)
        """
        X, _ = self._check_rows(X)
        return self.model_.predict(X)

    def predict_quantile(self, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> Floats:
        """Return quantiles of y given x, from the mixture itself.

        Parameters
        ----------
        X : array-like of shape (n, d)
        levels : sequence of Q floats in (0, 1)

        Returns
        -------
        ndarray of shape (n, Q)
        """
        X, _ = self._check_rows(X)
        return np.column_stack([self.model_.quantile(X, level) for level in levels])

    def predict_interval(self, X: Any, coverage: float = 0.95) -> Floats:
        """Return the central interval that holds y with the given probability.

        It takes the parameters as known: their estimation error is not included.

        Parameters
        ----------
        X : array-like of shape (n, d)
        coverage : float in (0, 1)

        Returns
        -------
        ndarray of shape (n, 2)
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is {coverage}; give a number strictly between 0 and 1.")
        return self.predict_quantile(X, ((1 - coverage) / 2, (1 + coverage) / 2))
