"""What the scikit-learn estimators share: parameters and fitting."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal, Self, get_args

import numpy as np
import pyarrow as pa
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from otmoe.arrays.numerics import Array, to_numpy
from otmoe.arrays.threads import threads
from otmoe.data.features import FeatureSpec
from otmoe.data.formula import Formula
from otmoe.data.identifiers import shared_ids
from otmoe.data.responses import columns_of, labels_of, read_responses, responses_of
from otmoe.data.shards import shards_from
from otmoe.data.tables import array, as_arrow, names_of, numbers, texts
from otmoe.estimators.columns import Columns
from otmoe.estimators.fitted import FittedMoE
from otmoe.estimators.frames import encoded, has_words
from otmoe.federation.policy.figures import Figures, figures_of
from otmoe.likelihood.fit import Fit, em
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.sharing import rows_for
from otmoe.model.mixture import ExpertPer, MoE
from otmoe.model.structure import Structure
from otmoe.model.target import Target
from otmoe.text.arguments import (
    check_offset,
    check_weight,
    check_whole,
    explained,
    float_types,
    generator,
)
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.notices import Notice, OtmoeWarning
from otmoe.text.progress import fit_progress
from otmoe.text.sentences import Error, Warn


class FitWarning(OtmoeWarning, ConvergenceWarning):
    """A warning about a fit; `notices` has it with codes."""


class BaseMoE(FittedMoE):
    """A thin shell around :func:`otmoe.likelihood.fit.em` and :class:`otmoe.model.mixture.MoE`."""

    _shared_ids: tuple[Notice, ...] = ()
    _encoded_by: FeatureSpec | None = None  # what made the X of the next fit

    def _fit(
        self,
        X: Array,
        y: Array,
        sample_weight: Any,
        offset: Any,
        target: Target,
        groups: Any = None,
    ) -> Self:
        """Fit to validated X and encoded y."""
        self._check_groups(groups)
        columns, structure = self._gate_columns(), self._structure(target)
        weight, offset = check_weight(sample_weight, X), check_offset(offset, X)
        self._with_offset = offset is not None
        self._check_enough(X, weight)
        totals = {"starts": self.n_init, "em": self.max_iter, "newton": self.max_iter}
        with fit_progress(self.verbose > 0, totals) as progress:
            fit = em(
                X,
                y,
                self.n_experts,
                family=target.kind,
                n_classes=target.n_classes,
                init=self._warm_model(target, columns, structure),
                gate_columns=columns,
                structure=structure,
                alpha=self.alpha,
                expert_alpha=self.expert_alpha,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=self.tol,
                sample_weight=weight,
                offset=offset,
                random_state=generator(self.random_state),
                n_jobs=self.n_jobs,
                feature_names=getattr(self, "feature_names_in_", None),
                smaller=getattr(self, "_smaller", None),
                progress=progress,
                groups=groups,
            )
        self._figures = self._looked_at(X, y, weight, offset, fit, groups)
        self._keep(fit)
        return self

    def _looked_at(
        self,
        X: Array,
        y: Array,
        weight: Array | None,
        offset: Array | None,
        fit: Fit,
        groups: Any = None,
    ) -> Figures | None:
        """Return what the parameters rest on, while the rows are here: a message is held to it.

        It takes about as long as three iterations of EM. Rows on a device would have to be copied:
        there :meth:`to_message` takes the rows again.
        """
        if not isinstance(X, np.ndarray):
            return None
        with threads(self.n_jobs) as pool:
            rows = rows_for(fit.model, Rows(X, y, weight, offset, pool=pool), groups)
            return figures_of(fit.model, rows)

    def _keep(self, fit: Fit) -> None:
        """Store a fit and say, in one warning, what the user should know about it."""
        names = getattr(self, "feature_names_in_", None)
        self.fit_ = fit
        self.model_ = replace(
            fit.model,
            feature_names=None if names is None else tuple(map(str, names)),
            classes=getattr(self, "classes_", None),
        )
        self.n_iter_ = fit.n_iter
        self.converged_ = fit.converged
        self.log_likelihood_ = fit.log_likelihood
        trouble = (*fit.warnings, *self._shared_ids)
        if not fit.converged:
            trouble = (Warn.NOT_CONVERGED(status=str(fit.status)), *trouble)
        if trouble:
            warnings.warn(FitWarning(type(self).__name__, trouble), stacklevel=4)

    def _check_parameters(self) -> None:
        for name in ("n_experts", "n_init", "max_iter"):
            if name != "n_init" or self.n_init is not None:
                check_whole(name, getattr(self, name))
        if self.expert_per not in get_args(ExpertPer):
            choices = sorted(get_args(ExpertPer))
            facts: dict[str, Any] = {"value": self.expert_per, "choices": choices}
            raise InvalidInput(Error.NOT_ONE_OF, name="expert_per", **facts)
        for name in ("alpha", "expert_alpha", "tol"):
            value = getattr(self, name)
            if value is None and name != "tol":
                continue
            if not np.isscalar(value) or not np.isreal(value) or not 0 <= value < np.inf:  # type: ignore[operator]
                raise InvalidInput(Error.NEGATIVE, name=name, value=value)

    def _check_groups(self, groups: Any) -> None:
        """Refuse groups that would be overlooked, and rows that share experts with nobody."""
        if self.expert_per == "group" and groups is None:
            raise InvalidInput(Error.SHARING_NEEDS_GROUPS)
        if self.expert_per == "row" and groups is not None:
            raise InvalidInput(Error.GROUPS_NOT_SHARED)

    def _check_enough(self, X: Array, weight: Array | None) -> int:
        """Return the number of rows of positive weight, if there is one for every expert."""
        n_rows = int(X.shape[0]) if weight is None else int(np.sum(to_numpy(weight) > 0))
        if n_rows < self.n_experts:
            raise InvalidInput(Error.FEWER_ROWS_THAN_EXPERTS, rows=n_rows, experts=self.n_experts)
        return n_rows

    def _check_training(self, X: Any, y: Any, **options: Any) -> tuple[Array, Array]:
        self._check_parameters()
        self._shared_ids = shared_ids(X)
        X = self._with_features(X)
        try:
            X, y = validate_data(self, X, y, dtype=float_types(X), **options)
        except ValueError as error:
            self._encoded_by = None
            raise explained(error, X) from error
        spec, self._encoded_by = self._encoded_by, None
        self.__dict__.pop("features_", None)  # of a fit before
        if spec is not None:
            self.features_ = spec
            self.feature_names_in_ = np.array(spec.feature_names, dtype=object)
        return X, y

    def _with_features(self, X: Any) -> Any:
        """Return a frame with text or categories as features, and remember how; others as is."""
        if self._encoded_by is not None or not has_words(X):
            return X
        self._encoded_by = FeatureSpec.from_sample(X)
        return encoded(X, self._encoded_by)

    def _columns(self) -> Columns:
        """Return what arguments about features may name."""
        names = [str(name) for name in getattr(self, "feature_names_in_", [])]
        return Columns(self.n_features_in_, names, getattr(self, "features_", None))

    def _gate_columns(self) -> tuple[int, ...] | None:
        """Translate `gate_features` to columns of the design."""
        return self._columns().of(self.gate_features, "gate_features")

    def _structure(self, target: Target) -> Structure | None:
        """Translate `expert_features`, `common` and `common_variance`."""
        zero = getattr(self, "zero_expert", False)  # classes have none
        asked = self.expert_features, self.common, self.common_variance, zero
        return self._columns().structure(target.kind, self.n_experts, *asked)

    def _warm_model(
        self, target: Target, columns: tuple[int, ...] | None, structure: Structure | None
    ) -> MoE | None:
        """Return the model to start from, if there is one of the shape that is asked for."""
        model = getattr(self, "model_", None)
        if not self.warm_start or model is None:
            return None
        blank = target.blank(self.n_experts, self.n_features_in_ + 1)
        same = type(model.experts) is type(blank) and model.experts.coef.shape == blank.coef.shape
        if not same:
            return None
        model = replace(model, structure=structure, expert_per=self.expert_per).tidied()
        if model.gate.columns == columns:
            return model
        keep = np.arange(model.gate.coef.shape[1])
        coef = np.where(np.isin(keep, keep if columns is None else columns), model.gate.coef, 0.0)
        return replace(model, gate=replace(model.gate, coef=coef, columns=columns))

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Any,
        n_experts: int = 2,
        *,
        sample_weight: Any = None,
        missing: Literal["error", "drop", "indicator"] = "error",
        offset: Any = None,
        groups: str | None = None,
        **options: Any,
    ) -> Self:
        """Return an estimator fitted to a table, with the features and gate of a formula.

        `features_` records how columns became features, and predictions take tables with the same
        columns. See :class:`~otmoe.data.formula.Formula`.

        Parameters
        ----------
        formula : str
            Such as ``"late ~ spline(hour, 5) + month + hour:origin | month"``: the response, the
            features of the experts, and after the bar those of the gate. ``"deaths/total ~ arm"``
            has successes and trials, for the binomial family.
        data : pyarrow Table or RecordBatch, pandas or polars frame, or mapping of n values by name
        n_experts : int
        sample_weight : array-like of shape (n,), optional
        missing : {"error", "drop", "indicator"}
            How missing values are handled: an error, dropped rows, or imputed means (for
            categories, a separate level) with indicator features.
        offset : array-like of shape (n,), optional
            Known part of the experts' linear predictors, such as the log of an exposure.
        groups : str, optional
            With ``expert_per="group"``: column with the label of the group of each row.
        **options
            Of the estimator.

        Examples
        --------
        >>> from otmoe import MoERegressor
        >>> rng = np.random.default_rng(0)
        >>> x, group = rng.uniform(0, 6, 500), rng.choice(["a", "b"], 500)
        >>> data = {"x": x, "group": group, "y": np.sin(x) + rng.normal(0, 0.1, 500)}
        >>> est = MoERegressor.from_formula("y ~ spline(x, 4) + group", data, 1)
        >>> est.features_.feature_names
        ('x', 'group=b', 'spline(x).1', 'spline(x).2', 'spline(x).3')
        >>> bool(abs(est.predict({"x": [1.5], "group": ["a"]})[0] - 1) < 0.1)
        True
        """
        parsed = Formula.parse(formula)
        if parsed.target is None:
            raise InvalidInput(Error.FORMULA_NO_TARGET)
        if not isinstance(groups, str | None):
            raise InvalidType(Error.FORMULA_GROUPS, kind=type(groups).__name__)
        if parsed.gate is not None and "gate_features" in options:
            raise InvalidInput(Error.FORMULA_GATE)
        spec = parsed.features(data, missing="indicator" if missing == "indicator" else "error")
        responses = responses_of(parsed.target, names_of(data))
        named = columns_of(responses)
        table = as_arrow(data, named)
        column: Any = array(table.column(named[0]), named[0])
        whole = pa.types.is_integer(column.type)
        if len(named) > 1:
            column = read_responses(responses, lambda name: numbers(table.column(name), name))
        given = (data, column) if sample_weight is None else (data, column, sample_weight)
        gaps: Literal["error", "drop"] = "drop" if missing == "drop" else "error"
        shard: Any = shards_from(given, features=spec, missing=gaps)[0]
        if offset is not None:
            shard = replace(shard, offset=offset)
        if groups is not None:
            labels = texts(array(as_arrow(data, [groups]).column(groups), groups), groups)
            shard = replace(shard, beside={groups: labels}, groups=groups)
        rows = shard.read()
        y = rows.y.astype(int) if whole else rows.y
        options.setdefault("expert_features", parsed.expert_features(spec))
        options.setdefault("gate_features", parsed.gate_features(spec))
        estimator = cls(n_experts, **options)
        estimator._encoded_by = spec
        estimator._response_names = labels_of(responses)
        known = {"offset": rows.offset, "groups": rows.groups if groups is not None else None}
        beside = {name: values for name, values in known.items() if values is not None}
        return estimator.fit(rows.X, y, sample_weight=rows.weight, **beside)

    def _set_model(self, model: MoE) -> Self:
        """Become a fitted estimator around a model that came from elsewhere."""
        self.model_ = model
        self.n_features_in_ = model.n_features
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        return self
