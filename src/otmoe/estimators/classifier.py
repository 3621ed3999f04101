"""Mixtures of classifiers: logistic and multinomial experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from array_api_compat import device
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from otmoe.arrays.numerics import Array, Floats, namespace, to_numpy
from otmoe.estimators.base import BaseMoE
from otmoe.likelihood.fit import MAX_ITER, TOL
from otmoe.model.mixture import ExpertPer, MoE
from otmoe.model.target import Target
from otmoe.text.arguments import check_offset, generator
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


class MoEClassifier(ClassifierMixin, BaseMoE):
    """Mixture of classifiers with a softmax gate.

    Each expert is a logistic regression (two classes) or a multinomial one (more); the gate gives,
    from the same features, the probability of each expert. Fitted like :class:`MoERegressor`.

    Parameters
    ----------
    n_experts : int, default=2
        Number of experts, K.
    classes : array-like of shape (C,), optional
        All classes, to be declared if the training rows may lack some. None: those that occur in y.
    gate_features : None, "intercept" or list of str or int, default=None
        Features of the gate: all, none (constant gate), or some by name or index.
    expert_features : None, "intercept", list of str or int, or one for each expert, default=None
        Features of the experts: all, none (constant experts), some for all experts, or, as a list
        of lists or a mapping by name, those of each expert; experts then stay in that order.
    common : list of str or int, optional
        Features whose coefficient is the same in every expert that uses them; may include
        "intercept".
    common_variance : bool, default=False
        Not applicable to classifiers, since classes have no variance.
    expert_per : {"row", "group"}, default="row"
        Whether every row has its own expert, or all rows of a group (a person, a centre) share
        one. With "group", `fit` takes `groups`, and gate features must be constant within a group.
    alpha : float, optional
        Centred ridge on the gate, ``alpha / 2 * sum_k |A_k - mean A|^2``, subtracted from the
        summed log-likelihood on standardised features; it keeps a separated gate finite. 0 for
        plain maximum likelihood; by default 1 for two classes and 0.3 for more.
    expert_alpha : float, optional
        Ridge on the slopes of the experts, in the same way; it keeps their coefficients finite if x
        separates the classes. 0 for plain maximum likelihood; by default 3 for two classes and 0.3
        for more.
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
    classes_ : ndarray of shape (C,)
    model_ : MoE
        Gate and experts on the scale of X; experts ordered by mass, largest first. With two
        classes, `model_.experts.coef` (K, p) is about the second; with more it is (K, C, p), the
        last class as reference.
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
    >>> from otmoe import MoEClassifier, simulate
    >>> data = simulate(2000, 2, 3, family="logistic", random_state=0)
    >>> est = MoEClassifier(n_experts=2, random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X[:2]).shape
    (2, 2)
    >>> round(est.score(data.X, data.y), 1)
    0.9
    """

    def __init__(
        self,
        n_experts: int = 2,
        *,
        classes: Any = None,
        gate_features: Any = None,
        expert_features: Any = None,
        common: Any = None,
        common_variance: bool = False,
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
        self.classes = classes
        self.gate_features = gate_features
        self.expert_features = expert_features
        self.common = common
        self.common_variance = common_variance
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
        y : array-like of shape (n,)
            Class labels, of any type.
        sample_weight : array-like of shape (n,), optional
            Case weights: weight 2 counts as the row twice.
        offset : array-like of shape (n,), optional
            Known part of the experts' log-odds, of two classes.
        groups : array-like of shape (n,), optional
            With ``expert_per="group"``: label of the group of each row, of any hashable kind.

        Returns
        -------
        self
        """
        X, y = self._check_training(X, y)
        check_classification_targets(y)
        self.classes_ = self._all_classes(to_numpy(y))
        target = Target.of_classes(self.classes_)
        coded = replace(target, coded=True, expert_per=self.expert_per)
        return self._fit(X, target.numbers_like(y, X), sample_weight, offset, coded, groups)

    def _all_classes(self, y: Floats) -> Floats:
        if self.classes is not None:
            classes = np.unique(np.asarray(self.classes))
            if len(classes) < 2:
                raise InvalidInput(Error.ONE_CLASS_DECLARED, classes=self.classes)
            return classes
        seen = np.unique(y)
        if len(seen) < 2:
            raise InvalidInput(Error.ONE_CLASS_IN_Y, label=seen.tolist()[0])
        return seen

    def _check_target(self, y: Any, X: Array) -> Array:
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        return Target.of_classes(self.classes_).numbers_like(y, X)

    @classmethod
    def from_model(cls, model: MoE) -> Self:
        """Return a fitted estimator with an existing model.

        Parameters
        ----------
        model : MoE
            With class labels.
        """
        if model.classes is None:
            raise InvalidInput(Error.NOT_A_CLASSIFIER)
        how: Any = {"n_experts": model.n_experts, "expert_per": model.expert_per}
        estimator = cls(**how)._set_model(model)
        estimator.classes_ = np.asarray(model.classes)
        return estimator

    def predict_proba(self, X: Any, offset: Any = None) -> Array:
        """Return the probability of each class, averaged over experts by the gate.

        Parameters
        ----------
        X : array-like of shape (n, d)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n, C)
        """
        log_prob = self.predict_log_proba(X, offset)
        return namespace(log_prob).exp(log_prob)

    def predict_log_proba(self, X: Any, offset: Any = None) -> Array:
        """Return the log-probability of each class, exact in the tails.

        Parameters
        ----------
        X : array-like of shape (n, d)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n, C)
        """
        X = self._check_rows(X)
        self._check_offset_given(offset)
        xp = namespace(X)
        y, known = xp.zeros_like(X[:, 0]), check_offset(offset, X)
        classes = range(len(self.classes_))
        return xp.stack([self.model_.log_density(X, y + c, known) for c in classes]).T

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """Return the share of rows whose class is predicted correctly.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.
        """
        return float(accuracy_score(y, self.predict(X, offset), sample_weight=sample_weight))

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Return the most probable class.

        Parameters
        ----------
        X : array-like of shape (n, d)
        offset : array-like of shape (n,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n,)
        """
        return self._most_probable(self.predict_log_proba(X, offset))

    def _most_probable(self, log_prob: Array) -> Array:
        """Return the labels of the most probable classes, given (n, C) log-probabilities."""
        xp = namespace(log_prob)
        labels = self.classes_[to_numpy(xp.argmax(log_prob, axis=1))]
        if isinstance(log_prob, np.ndarray) or labels.dtype.kind not in "biuf":
            return labels
        return xp.asarray(labels, device=device(log_prob))

    def sample(self, X: Any, random_state: Any = None) -> Floats:
        """Draw a class at every row.

        Parameters
        ----------
        X : array-like of shape (n, d)
        random_state : int, RandomState or Generator, optional

        Returns
        -------
        ndarray of shape (n,)
        """
        X = self._check_rows(X)
        y, _ = self.model_.sample(X, generator(random_state))
        return self.classes_[y.astype(int)]
