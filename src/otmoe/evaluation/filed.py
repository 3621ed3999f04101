"""Tests of terms, and bands of curves, from what a model file says about its coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.aggregation import InferenceRecord
from otmoe.inference.estimates import Estimate, estimates
from otmoe.inference.parameters import Parameter
from otmoe.inference.terms import TermTest, term_tests
from otmoe.model.mixture import MoE


@dataclass(frozen=True)
class FiledInference:
    """Standard errors of a model file, and covariances of coefficients of the same term.

    Attributes
    ----------
    model : MoE
    covariance : ndarray of shape (P, P)
        Of the free parameters; NaN where the file does not have it.
    df : int, optional
        Degrees of freedom, where rows are in groups and the file says in how many.
    """

    model: MoE
    covariance: Floats
    df: int | None = None

    @classmethod
    def read(cls, model: MoE, record: InferenceRecord | None) -> FiledInference:
        """Return what a file has.

        Parameters
        ----------
        model : MoE
        record : InferenceRecord or None
            Checked; None where the file has no standard errors.
        """
        found = np.full((model.n_parameters, model.n_parameters), np.nan)
        if record is None:
            return cls(model, found)
        errors = [np.nan if error is None else error for error in record.standard_errors]
        np.fill_diagonal(found, np.square(errors))
        for joint in record.joint:
            m = len(joint.at)
            block = np.zeros((m, m))
            block[np.tril_indices(m)] = joint.covariance
            found[np.ix_(joint.at, joint.at)] = block + np.tril(block, -1).T
        return cls(model, found, record.df)

    def of(self, combinations: Floats) -> Floats:
        """Return the covariance of linear combinations (m, P), (m, m); NaN where not known."""
        used = np.any(combinations != 0, axis=0)
        part = combinations[:, used]
        return np.asarray(part @ self.covariance[np.ix_(used, used)] @ part.T)

    def linear(self, matrix: Floats, level: float = 0.95) -> tuple[Estimate, ...]:
        """Return linear combinations (m, P) of the free parameters, with intervals."""
        about = [Parameter("linear", None, None, None, f"row {i}") for i in range(len(matrix))]
        error = np.sqrt(np.maximum(np.diagonal(self.of(matrix)), 0.0))
        return tuple(estimates(about, matrix @ self.model.to_vector(), error, level, self.df))

    def terms(self, terms: Mapping[str, Sequence[str]]) -> tuple[TermTest, ...]:
        """Test terms in each expert and row of the gate; those the file has no covariance of lack.

        Parameters
        ----------
        terms : mapping of str to sequence of str
            The features of each, as ``FeatureSpec.term_features`` has them.
        """
        found = term_tests(self.model, self, terms, self.df)
        return tuple(test for test in found if np.isfinite(test.statistic))
