# Long because it is one class: all that a fitted estimator is asked.
"""Methods of fitted estimators: densities, standard errors, messages, tables."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from otmoe.arrays.numerics import Array, namespace, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.data.identifiers import shared_ids
from otmoe.data.tables import is_table
from otmoe.data.variables import Variables, has_columns
from otmoe.documents.message import LocalModel
from otmoe.federation.keys import Key
from otmoe.federation.policy.figures import Figures, figures_of
from otmoe.federation.policy.release import release
from otmoe.federation.policy.rules import Policy, in_force, overrides_of
from otmoe.federation.policy.verdict import check
from otmoe.inference import (
    Inference,
    Kind,
    Text,
    about_fit,
    check_kind,
    fitted_inference,
    observed_inference,
)
from otmoe.likelihood.fit import Fit
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.grouped import as_labels
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.sharing import (
    group_codes,
    group_density,
    group_order,
    group_responsibilities,
    rows_for,
)
from otmoe.model.ensemble import Ensemble
from otmoe.model.mixture import MoE
from otmoe.model.target import Target
from otmoe.text.arguments import as_table, check_offset, check_weight, explained, float_types
from otmoe.text.errors import InferenceError, InvalidInput
from otmoe.text.notices import OtmoeWarning
from otmoe.text.records import adds_up
from otmoe.text.sentences import Error, Warn

if TYPE_CHECKING:
    import pandas as pd


class FittedMoE(BaseEstimator):
    """An estimator with a model: everything except fitting."""

    model_: MoE
    fit_: Fit
    _with_offset = False  # whether the rows of the fit had one

    def _check_offset_given(self, offset: Any) -> None:
        """Warn where the model was fitted with an offset and predicts without one."""
        if offset is None and self._with_offset:
            notice = Warn.OFFSET_UNSAID()
            warnings.warn(OtmoeWarning(type(self).__name__, [notice]), stacklevel=3)

    def _check_rows(self, X: Any) -> Array:
        """Validate rows to be predicted or scored."""
        check_is_fitted(self)
        spec: FeatureSpec | None = getattr(self, "features_", None)
        if spec is not None and is_table(X) and has_columns(X, spec):
            return spec.encode(X)
        try:
            return validate_data(self, X, dtype=float_types(X), reset=False)
        except ValueError as error:
            raise explained(error, X) from error

    @abstractmethod
    def _check_target(self, y: Any, X: Array) -> Array:
        """Validate and encode the target of rows to be scored."""

    # -- using --------------------------------------------------------------------------------

    def log_density(self, X: Any, y: Any, offset: Any = None, groups: Any = None) -> Array:
        """Return log f(y | x), of every row or of every group.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        offset : array-like of shape (n,), optional
            Known part of the experts' linear predictors, such as the log of an exposure.
        groups : array-like of shape (n,), optional
            Where rows of a group share their expert: label of the group of each row. Without it,
            each row is looked at alone, as the first of a new group.

        Returns
        -------
        ndarray of shape (n,), or (G,)
            With groups, in the order of their first rows.
        """
        if groups is not None:
            return group_density(self.model_, self._rows(X, y, None, offset, groups))
        X = self._check_rows(X)
        return self.model_.log_density(X, self._check_target(y, X), check_offset(offset, X))

    def predict_expert_proba(
        self, X: Any, y: Any = None, offset: Any = None, groups: Any = None
    ) -> Array:
        """Return the probability of each expert: from the gate, or the posterior if y is given.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,), optional
        offset, groups : array-like of shape (n,), optional
            As in :meth:`log_density`; given groups and y, every row has the posterior of its group.

        Returns
        -------
        ndarray of shape (n, K)
        """
        if y is not None and groups is not None:
            rows = self._plain_rows(X, y, None, offset, groups)
            return group_responsibilities(self.model_, rows, groups)
        X = self._check_rows(X)
        if y is None:
            return self.model_.gate_prob(X)
        return self.model_.responsibilities(X, self._check_target(y, X), check_offset(offset, X))

    def predict_expert(
        self, X: Any, y: Any = None, offset: Any = None, groups: Any = None
    ) -> Array:
        """Return the most probable expert: by the gate, or by the posterior if y is given.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,), optional
        offset, groups : array-like of shape (n,), optional
            As in :meth:`predict_expert_proba`.

        Returns
        -------
        ndarray of int of shape (n,)
        """
        prob = self.predict_expert_proba(X, y, offset, groups)
        return namespace(prob).argmax(prob, axis=1)

    def aic(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, groups: Any = None
    ) -> float:
        """Return Akaike's information criterion on these rows (lower is better)."""
        log_likelihood, _ = self._log_likelihood(X, y, sample_weight, offset, groups)
        return -2 * log_likelihood + 2 * self._rank()

    def bic(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, groups: Any = None
    ) -> float:
        """Return the Bayesian information criterion on these rows (lower is better).

        It counts rows, also where those of a group share their expert.
        """
        log_likelihood, n = self._log_likelihood(X, y, sample_weight, offset, groups)
        return -2 * log_likelihood + float(np.log(n)) * self._rank()

    def _rank(self) -> int:
        """Return the number of parameters that rows can determine."""
        fit = getattr(self, "fit_", None)
        return self.model_.n_free if fit is None else int(fit.rank)

    def _log_likelihood(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, groups: Any
    ) -> tuple[float, float]:
        """Return the log-likelihood of some rows and their total weight."""
        check_is_fitted(self)
        if self.model_.expert_per == "group" or groups is not None:
            rows = self._rows(X, y, sample_weight, offset, groups)
            there = observed_information(self.model_, rows, matrix=False).log_likelihood
            return there + rows.log_base(self.model_.experts), rows.total_weight
        log_density = to_numpy(self.log_density(X, y, offset))
        weight = check_weight(sample_weight, log_density[:, None])
        if weight is None:
            return float(log_density.sum()), float(len(log_density))
        return float(weight @ log_density), float(weight.sum())

    # -- inference ----------------------------------------------------------------------------

    def inference(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        kind: Kind | None = None,
        groups: Any = None,
    ) -> Inference:
        """Return standard errors, tests and intervals.

        Without rows they come from the last step of the fit. With the rows that were fitted they
        take one pass over them. Other rows are refused, and so is a model that was merged in one
        round and is not at the maximum of their likelihood.

        Parameters
        ----------
        X : array-like of shape (n, d), optional
        y : array-like of shape (n,), optional
        sample_weight : array-like of shape (n,), optional
        offset : array-like of shape (n,), optional
            As in :meth:`log_density`.
        kind : {"information", "sandwich", "clustered"}, optional
            From the observed information; or robust to misspecification of the model, which needs
            the rows; or robust to dependent rows, which needs groups. By default "clustered" with
            groups and "information" without.
        groups : array-like of shape (n,), optional
            Label of the group of each row, such as the person, of any hashable type. Rows of
            different groups are independent; rows of the same group need not be. Intervals and
            tests are by the t distribution, with one degree of freedom fewer than groups. If rows
            of a group share their expert, groups are part of the likelihood: standard errors come
            from the information by default, and the sandwich uses the scores of groups.

        Returns
        -------
        Inference
        """
        check_is_fitted(self)
        kind = check_kind(kind, groups is not None, self.model_.expert_per)
        if X is None:
            if kind != "information":
                raise InferenceError(Error.ROWS_FOR_SANDWICH)
            return self._in_terms(self._known_inference())
        shared = shared_ids(X) if groups is None else ()
        X = self._check_rows(X)
        found = observed_inference(
            self.model_,
            X,
            self._check_target(y, X),
            sample_weight=check_weight(sample_weight, X),
            offset=check_offset(offset, X),
            alpha=self.alpha,
            expert_alpha=self.expert_alpha,
            kind=kind,
            groups=groups,
            n_jobs=self.n_jobs,
        )
        found = self._in_terms(replace(found, warnings=(*found.warnings, *shared)))
        return about_fit(found, self.fit_) if hasattr(self, "fit_") else found

    def _in_terms(self, found: Inference) -> Inference:
        """Return inference that knows the columns and the splines behind the features."""
        spec: FeatureSpec | None = getattr(self, "features_", None)
        curves = {} if spec is None else spec.curve_features
        variables = Variables(tuple(self.model_.terms[1:]), spec)
        return replace(found, curves=curves, variables=variables)

    def _known_inference(self) -> Inference:
        """Return what is known about standard errors without rows."""
        if not hasattr(self, "fit_"):
            raise InferenceError(Error.NO_EVIDENCE)
        return fitted_inference(self.fit_, self.model_)

    def summary(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        kind: Kind | None = None,
        groups: Any = None,
        level: float = 0.95,
    ) -> Text:
        """Return coefficients with standard errors, z, p values and intervals, as text.

        Short for ``inference(...).summary(level)``; the parameters are those of :meth:`inference`.
        """
        found = self.inference(X, y, sample_weight, offset, kind=kind, groups=groups)
        return found.summary(level)

    # -- sending ------------------------------------------------------------------------------

    def to_message(
        self,
        site: str,
        X: Any = None,
        y: Any = None,
        *,
        sketch: bool | int = False,
        share: int = 0,
        grams: bool = False,
        sample_weight: Any = None,
        offset: Any = None,
        groups: Any = None,
        ids: Any = None,
        policy: Policy | None = None,
        overrides: Mapping[str, str] | None = None,
        random_state: Any = 0,
        secure: str | os.PathLike[str] | None = None,
    ) -> LocalModel:
        """Return the message of this site, to be saved or merged with others.

        Numbers are rounded. A message that breaks the site's policy is refused, with the rule, the
        figure and what to do.

        Parameters
        ----------
        site : str
            Name of the site, up to 200 characters.
        X : array-like of shape (n, d), optional
            The rows of the fit, which are not kept after it; for a sketch or for sharing.
        y : array-like of shape (n,), optional
            Their response, needed if people are counted or the rows were on a device.
        sketch : bool or int
            Whether to send a :class:`~otmoe.data.sketch.Sketch` of X, from which support points can
            be drawn; or its maximum number of components, instead of four.
        share : int
            Number of rows of X to send for the same purpose, drawn at random.
        grams : bool
            Whether to send sums of products of covariates, for ``method="gram"``; needs X and y.
        sample_weight : array-like of shape (n,), optional
            The weights of the fit.
        offset, groups : array-like of shape (n,), optional
            Those of the fit, if y is given.
        ids : array-like of shape (n,), optional
            The person of each row, to count people instead of rows; needs X and y.
        policy : Policy, optional
            What may leave; by default as in OTMOE_POLICY or ``policy.json``, or the built-in
            policy. ``Policy.off()`` refuses and rounds nothing: for public rows.
        overrides : dict of str, optional
            Rules to override this once, by name, and why; recorded in the message.
        random_state : int, Generator or None
        secure : str or path, optional
            File of the site's private key, created if it does not exist: the message contains the
            public one, so that the site can take part in secure sums. Needs `otmoe[secure]`.

        Returns
        -------
        LocalModel
        """
        check_is_fitted(self)
        if not hasattr(self, "fit_"):
            raise InvalidInput(Error.NO_FIT_TO_SEND)
        model, features = self.model_, getattr(self, "features_", None)
        message = LocalModel.from_fit(self.fit_, site, model.feature_names, model.classes, features)
        message = message if secure is None else replace(message, key=Key.at(secure).public)
        if X is None and (sketch or share or grams):
            raise InvalidInput(Error.X_MISSING)
        if grams:
            if y is None:
                raise InvalidInput(Error.Y_MISSING)
            rows = self._rows(X, y, sample_weight, offset, groups)
            message = replace(message, grams=Grams.of(self.fit_.model, rows))
        if sketch or share:
            message = message.with_support(
                self._check_rows(X),
                sketch=sketch,
                share=share,
                sample_weight=sample_weight,
                random_state=random_state,
            )
        policy = in_force()[0] if policy is None else policy
        if policy == Policy.off():
            return message
        if policy.id and ids is None:
            raise InvalidInput(Error.IDS_FOR_POLICY, column=policy.id)
        figures = self._rest_on(X, y, sample_weight, offset, groups, ids)
        aside = overrides_of(overrides)
        columns = [*model.terms[1:], *Target.of(model).responses]
        made = release(message, figures, policy, columns=columns, overrides=aside)
        check(made.verdict)
        return made.message

    def _rows(self, X: Any, y: Any, sample_weight: Any, offset: Any, groups: Any = None) -> Rows:
        """Return the rows of the fit, checked, on the user's scale; those of a group together."""
        return rows_for(self.model_, self._plain_rows(X, y, sample_weight, offset, groups), groups)

    def _plain_rows(self, X: Any, y: Any, sample_weight: Any, offset: Any, groups: Any) -> Rows:
        X = self._check_rows(X)
        if groups is not None and self.model_.expert_per == "row":
            raise InvalidInput(Error.GROUPS_NOT_SHARED)
        target, weight = self._check_target(y, X), check_weight(sample_weight, X)
        return Rows(X, target, weight, check_offset(offset, X))

    def _rest_on(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, groups: Any, ids: Any
    ) -> Figures:
        """Return what the parameters rest on: from the rows, if they are given, or from the fit."""
        if X is None or y is None:
            found: Figures | None = getattr(self, "_figures", None)
            if ids is not None or found is None:
                raise InvalidInput(Error.ROWS_FOR_POLICY)
            return found
        rows = self._rows(X, y, sample_weight, offset, groups)
        if not adds_up(rows.total_weight, float(self.fit_.n_samples)):
            raise InvalidInput(Error.OTHER_ROWS, rows=rows.total_weight, fitted=self.fit_.n_samples)
        if ids is not None and rows.groups is not None:  # whose rows are in the order of groups
            order = group_order(group_codes(as_labels(groups, len(rows))))
            ids = ids if order is None else as_labels(ids, len(rows))[order]
        return figures_of(self.model_, rows, ids=ids)

    # -- reading ------------------------------------------------------------------------------

    def expert_table(self) -> pd.DataFrame:
        """Return the experts' coefficients and dispersions, a column per expert. Needs pandas."""
        return as_table(self._one_model.coefficients["experts"])

    def gate_table(self) -> pd.DataFrame:
        """Return the gate's coefficients, a column per expert. Needs pandas."""
        model = self._one_model
        return as_table(dict(zip(model.terms, model.gate.coef.T, strict=True)))

    @property
    def _one_model(self) -> MoE:
        """The model, unless it is a mixture of several, which has predictions alone."""
        check_is_fitted(self)
        if isinstance(self.model_, Ensemble):
            raise InvalidInput(Error.NO_COEFFICIENTS)
        return self.model_
