# Long because Inference is what users ask for errors, tests, intervals, ratios, effects and text.
"""A model with the covariance of its parameters: errors, tests, intervals, text (maths 15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Array, Floats, design, like, row_blocks, to_numpy
from otmoe.inference.covariance import Covariance
from otmoe.inference.curves import curve_places, curve_tests
from otmoe.inference.estimates import (
    FIXED,
    Estimate,
    MeanInterval,
    StandardErrors,
    WaldTest,
    degrees_of_freedom,
    estimates,
    of_variance,
    quantile,
)
from otmoe.inference.marginal import Variables, feature_changes, marginal_effects, ratios
from otmoe.inference.matrix import Matrix
from otmoe.inference.parameters import Parameter, mean_gradient, parameters, unseen
from otmoe.inference.summary import Text, heading, render
from otmoe.inference.tables import Estimates, TermTests
from otmoe.inference.terms import TermTest, term_tests, wald_test
from otmoe.likelihood.agreement import Agreement
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.html import html_lines
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error

Kind = Literal["information", "sandwich", "clustered"]


@dataclass(frozen=True, repr=False)
class Inference:
    """A model at the maximum of the likelihood, and the covariance of its parameters (maths 15).

    Attributes
    ----------
    model : MoE
        On the user's scale.
    covariance : Covariance
        Of the free parameters, in the order of :meth:`MoE.to_vector`; `covariance.matrix` is
        (P, P).
    n_samples : float
        Sum of the weights.
    kind : {"information", "sandwich", "clustered"}
    log_likelihood : float or None
    mass : ndarray of shape (K,), or None
        Rows assigned to each expert.
    warnings : tuple of Notice
        Warnings about it.
    n_groups : int, optional
        Groups of rows, where `kind` is "clustered". Intervals and tests are then by t quantiles,
        with `df` degrees of freedom.
    agreement : Agreement, optional
        Agreement of the searches for this maximum.
    curves : mapping of str to sequence of str
        Splines and products with one, and their features, as ``FeatureSpec.curve_features`` has
        them: :meth:`summary` and :meth:`matrix` show a joint test of each; :meth:`table` has their
        coefficients.
    variables : Variables, optional
        The columns that features were made of, for methods that take rows; by default every feature
        is a column.

    Examples
    --------
    >>> from otmoe import MoERegressor, simulate
    >>> data = simulate(2000, 2, 3, random_state=0)
    >>> est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    >>> found = est.inference(data.X, data.y)
    >>> found.standard_errors.coef.shape
    (2, 4)
    >>> found.contrast(0, 1, "x1")[0].p < 0.05
    False
    """

    model: MoE
    covariance: Covariance
    n_samples: float
    kind: Kind = "information"
    log_likelihood: float | None = None
    mass: Floats | None = None
    warnings: tuple[Notice, ...] = ()
    n_groups: int | None = None
    agreement: Agreement | None = None
    curves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    variables: Variables | None = None

    def __repr__(self) -> str:
        size = f"{self.model.n_free} parameters, {self.n_samples:,.10g} rows"
        return f"Inference({self.model.called}, {size}, kind={self.kind!r})"

    def _repr_html_(self) -> str:
        hidden = self.model.held | unseen(self.model) | self.bent
        known = zip(self.table(), hidden, strict=True)
        shown = Estimates((row for row, without in known if not without), df=self.df)
        notes = [str(notice) for notice in self.warnings]
        found = html_lines(repr(self), *notes) + "<br>" + shown._repr_html_()
        return found + TermTests(self._curve_tests(), self.df)._repr_html_()

    @property
    def df(self) -> int | None:
        """Degrees of freedom of the t quantiles of intervals: groups minus one (maths 15).

        None where rows are not in groups: quantiles and tests are then those of the normal
        distribution.
        """
        return degrees_of_freedom(self.n_groups)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The free parameters, in the order of the covariance."""
        return parameters(self.model)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(map(str, self.parameters))

    @property
    def bent(self) -> Floats:
        """Say which of them are coefficients of splines, (P,)."""
        found = np.zeros(self.model.n_parameters, dtype=bool)
        for _, _, places in curve_places(self.model, self.curves):
            found[places] = True
        return found

    @property
    def rank(self) -> int:
        """Number of parameters, minus the directions that the rows do not determine."""
        return int(np.sum(self.covariance.share < 1 - 1e3 * RANK_TOLERANCE))

    @property
    def aic(self) -> float | None:
        """Akaike's information criterion, if the log-likelihood is known."""
        known = self.log_likelihood
        return None if known is None else -2 * known + 2 * self.rank

    @property
    def bic(self) -> float | None:
        """The Bayesian information criterion, if the log-likelihood is known."""
        known = self.log_likelihood
        return None if known is None else -2 * known + float(np.log(self.n_samples)) * self.rank

    @property
    def standard_errors(self) -> StandardErrors:
        """Standard errors, arranged as the parameters are."""
        model = self.model
        se = self.covariance.standard_errors(np.eye(model.n_parameters))
        split, size = model.gate.n_parameters, model.n_parameters
        logs = model.experts.n_constant * model.n_experts
        log_var = se[size - logs :].copy() if logs else None
        se[size - logs :] = 0.0  # would be read as logarithms
        experts = model.experts.with_vector(se[split:])
        return StandardErrors(model.gate.with_vector(se[:split]).coef, experts.coef, log_var)

    # -- estimates ----------------------------------------------------------------------------

    def table(self, level: float = 0.95) -> Estimates:
        """Return every coefficient and variance with standard error, z, p value and interval.

        Where rows are in groups, z is Student's t: the table says so, and with which degrees of
        freedom.

        Parameters
        ----------
        level : float in (0, 1)

        Returns
        -------
        Estimates
            A tuple of :class:`Estimate`, in the order of the parameters, that prints as a table;
            ``pandas.DataFrame(inference.table())`` is a data frame.
        """
        rows = self._estimates(np.eye(self.model.n_parameters), self.parameters, level)
        found = (of_variance(row) if row.block == "variance" else row for row in rows)
        return Estimates(found, level, df=self.df)

    def contrast(
        self,
        first: int,
        second: int,
        term: str | None = None,
        *,
        block: Literal["expert", "gate", "variance"] = "expert",
        level: float = 0.95,
    ) -> Estimates:
        """Return coefficients of one expert minus those of another.

        Parameters
        ----------
        first, second : int
            Experts, from 0.
        term : str, optional
            A feature, or "intercept"; by default all.
        block : {"expert", "gate", "variance"}
            Coefficients of the experts, of the gate, or the logs of the variances.
        level : float in (0, 1)

        Returns
        -------
        Estimates
        """
        about, matrix = self._difference(first, second, block)
        if term is not None:
            known = dict.fromkeys(parameter.term for parameter in about)
            if term not in known:
                raise InvalidInput(Error.NOT_ONE_OF, name="term", value=term, choices=list(known))
            keep = [i for i, parameter in enumerate(about) if parameter.term == term]
            about, matrix = [about[i] for i in keep], matrix[keep]
        return self._estimates(matrix, about, level)

    def linear(self, matrix: Floats, level: float = 0.95) -> Estimates:
        """Return linear combinations of the free parameters.

        Parameters
        ----------
        matrix : ndarray of shape (m, P)
            One combination per row; :attr:`names` says what the columns are.
        level : float in (0, 1)

        Returns
        -------
        Estimates
        """
        matrix = self._combinations(matrix)
        about = [Parameter("linear", None, None, None, f"row {i}") for i in range(len(matrix))]
        return self._estimates(matrix, about, level)

    def wald(self, matrix: Floats, value: Floats | float = 0.0) -> WaldTest:
        """Test that linear combinations of the free parameters have given values.

        Parameters
        ----------
        matrix : ndarray of shape (m, P)
        value : float or ndarray of shape (m,)

        Returns
        -------
        WaldTest
        """
        matrix = self._combinations(matrix)
        gap = matrix @ self.model.to_vector() - value
        return wald_test(gap, self.covariance.of(matrix), self.df)

    def terms(self, terms: Mapping[str, Sequence[str]] | None = None) -> TermTests:
        """Test that all coefficients of a term are zero, by expert and row of the gate.

        Parameters
        ----------
        terms : mapping of str to sequence of str, optional
            The features of each term, as ``FeatureSpec.term_features`` has them.

        Returns
        -------
        TermTests
            A tuple of :class:`TermTest` that prints as a table.
        """
        return TermTests(term_tests(self.model, self.covariance, terms, self.df), self.df)

    def equal_slopes(self, first: int, second: int) -> WaldTest:
        """Test that two experts have the same coefficients except for the intercept.

        The statistic has its usual distribution as long as the two differ in intercept or variance;
        two experts that are equal in everything are one expert, which this test cannot assess.

        Parameters
        ----------
        first, second : int
            Experts, from 0.

        Returns
        -------
        WaldTest
        """
        _, matrix = self._difference(first, second, "expert")
        return self.wald(matrix[np.arange(len(matrix)) % self.model.experts.n_columns > 0])

    # -- on the scale of the response ---------------------------------------------------------

    def ratios(
        self, level: float = 0.95, *, block: Literal["expert", "gate"] = "expert"
    ) -> Estimates:
        """Return coefficients as odds ratios (classes) or rate ratios (counts).

        The factor by which the odds, or the expected count, change if a feature increases by 1: the
        exponential of its coefficient. z and p are those of the coefficient. Splines have none.

        Parameters
        ----------
        level : float in (0, 1)
        block : {"expert", "gate"}
            Of the experts, or of the gate: odds of an expert against the last.

        Returns
        -------
        Estimates
        """
        rows = zip(self.table(level), self.bent, strict=True)
        straight = Estimates((row for row, bent in rows if not bent), level, df=self.df)
        return ratios(straight, self.model, block)

    def marginal_effects(
        self, X: Any, level: float = 0.95, offset: Array | None = None
    ) -> Estimates:
        """Return the average marginal effects: how the mean of y changes with each variable.

        The mean over rows of the derivative of E(y | x), gate and experts together. For a boolean
        or binary variable, it is the difference between 1 and 0; for a level of a category, the
        difference to the reference level. A variable takes its splines and interactions with it,
        and its unit is that of the column. Standard errors are by the delta method.

        Where the columns are not known that features were made of, every feature is a variable, but
        for those of splines, which cannot change alone.

        Parameters
        ----------
        X : array of shape (n, d), or a data frame as in predict()
            Rows to average over. Rows in which a number is missing and imputed do not count for
            its own effect.
        level : float in (0, 1)
        offset : array of shape (n,), optional
            Known part of the experts' linear predictors.

        Returns
        -------
        Estimates
            One per number or level, and per class where there are more than two, or per response.
        """
        rows = np.asarray(to_numpy(self._rows(X)), np.float64)
        if self.variables is None:
            bent = {name for features in self.curves.values() for name in features}
            changes = feature_changes(rows, self.model.terms[1:], bent)
        else:
            changes = self.variables.changes(rows)
        known = None if offset is None else np.asarray(to_numpy(offset), np.float64)
        there = self.model, self.covariance, rows, changes
        return marginal_effects(*there, level, known, self.df)

    # -- the mean -----------------------------------------------------------------------------

    def mean_interval(
        self, X: Any, level: float = 0.95, offset: Array | None = None
    ) -> MeanInterval:
        """Return the mean of y, or the probabilities of classes, with an interval for each row.

        By the delta method: on the scale of y, of the log of a count's mean, of the log-odds of a
        class. The interval is for the mean, not for y.

        Parameters
        ----------
        X : array of shape (n, d), or a data frame as in predict()
        level : float in (0, 1)
        offset : array of shape (n,), optional
            Known part of the experts' linear predictors.

        Returns
        -------
        MeanInterval
        """
        model, q, X = self.model, quantile(level, self.df), self._rows(X)
        offset = None if offset is None else np.asarray(to_numpy(offset))
        means, errors = [], []
        for rows in row_blocks(X.shape[0], model.n_parameters):
            known = None if offset is None else like(offset[rows], X)
            mean, gradient = mean_gradient(model, design(X[rows, :]), known)
            flat = gradient.reshape(-1, model.n_parameters)
            means.append(mean)
            errors.append(self.covariance.standard_errors(flat).reshape(mean.shape))
        mean, se = np.concatenate(means), np.concatenate(errors)
        if mean.shape[1] == 1:
            mean, se = mean[:, 0], se[:, 0]
        return MeanInterval(mean, se, *model.experts.mean_bounds(mean, q * se))

    # -- text ---------------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> Text:
        """Return a summary as text: a table for each row of the gate and each expert.

        Parameters
        ----------
        level : float in (0, 1)
            Of the intervals.
        """
        facts = [
            ("rows", f"{self.n_samples:.12g}"),
            ("parameters", str(self.model.n_free)),
            ("standard errors", "cluster-robust" if self.n_groups else self.kind),
            *([("groups", str(self.n_groups))] if self.n_groups else []),
            *([] if self.df is None else [("quantiles", f"t, {self.df} df")]),
            *([("expert per", "group")] if self.model.expert_per == "group" else []),
        ]
        if self.log_likelihood is not None:
            facts += [
                ("log-likelihood", f"{self.log_likelihood:.2f}"),
                ("AIC", f"{self.aic:.2f}"),
                ("BIC", f"{self.bic:.2f}"),
            ]
        if self.agreement is not None and self.agreement.searches > 1:
            facts += self.agreement.facts
        sections: dict[str, tuple[list[Estimate], list[TermTest]]] = {}

        def section(row: Parameter) -> tuple[list[Estimate], list[TermTest]]:
            share = None if self.mass is None else float(self.mass[row.expert]) / self.n_samples
            return sections.setdefault(heading(row, self.model, share), ([], []))

        for row, bent in zip(self.table(level), self.bent, strict=True):
            if bent or (row.note == FIXED and row.estimate == 0):
                continue  # of a curve, or of a column that the expert does not see
            rows, _ = section(row)
            if row.block == "gate" or row.expert not in self.model.zeros:
                rows.append(row)
        for test in self._curve_tests():
            section(test)[1].append(test)
        tables = [(words, *both) for words, both in sections.items()]
        title = f"Mixture of {self.model.called}"
        return render(title, facts, tables, self.warnings, level, self.df)

    def matrix(self) -> Text:
        """Return estimates, standard errors in brackets: features down and experts across."""
        errors = self.covariance.standard_errors(np.eye(self.model.n_parameters))
        tests = self.terms(self.curves)
        return Matrix.of(self.model, self.mass, errors, self.curves, tests).readout()

    # -- parts --------------------------------------------------------------------------------

    def _curve_tests(self) -> list[TermTest]:
        return curve_tests(self.model, self.curves, self.terms(self.curves))

    def _rows(self, X: Any) -> Array:
        """Return rows of features, checked, (n, d)."""
        X = X if self.variables is None else self.variables.rows(X)
        X = X if hasattr(X, "__array_namespace__") or hasattr(X, "detach") else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.model.n_features:
            shape, features = tuple(X.shape), self.model.n_features
            raise InvalidInput(Error.X_SHAPE, shape=shape, features=features)
        return X

    def _estimates(self, matrix: Floats, about: Sequence[Parameter], level: float) -> Estimates:
        value, se = matrix @ self.model.to_vector(), self.covariance.standard_errors(matrix)
        return Estimates(estimates(about, value, se, level, self.df), level, df=self.df)

    def _difference(self, first: int, second: int, block: str) -> tuple[list[Parameter], Floats]:
        """Return what the differences between two experts are about, and their matrix, (m, P)."""
        K = self.model.n_experts
        for expert in (first, second):
            if not 0 <= expert < K:
                raise InvalidInput(Error.NO_EXPERT, expert=expert, last=K - 1)
        if first == second:
            raise InvalidInput(Error.SAME_EXPERT, expert=first)
        names = self.parameters
        mine, theirs = (
            [j for j, name in enumerate(names) if (name.block, name.expert) == (block, expert)]
            for expert in (first, second)
        )
        about = [replace(names[j], expert=first, against=second) for j in mine or theirs]
        if not about:
            raise InvalidInput(
                Error.NO_BLOCK,
                block=block,
                choices=list(dict.fromkeys(name.block for name in names)),
            )
        matrix = np.zeros((len(about), len(names)))
        matrix[range(len(mine)), mine] = 1.0
        matrix[range(len(theirs)), theirs] = -1.0  # the gate's reference has none
        return about, matrix

    def _combinations(self, matrix: Floats) -> Floats:
        matrix, size = np.atleast_2d(np.asarray(matrix, float)), self.model.n_parameters
        if matrix.ndim != 2 or matrix.shape[1] != size:
            raise InvalidInput(Error.COMBINATIONS_SHAPE, shape=matrix.shape, parameters=size)
        empty = np.flatnonzero(~np.any(matrix, axis=1))
        if len(empty):
            raise InvalidInput(Error.COMBINATION_ZERO, row=empty[0])
        return matrix
