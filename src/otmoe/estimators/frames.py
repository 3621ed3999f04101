"""Data frames with text columns: encoding in estimators, and a transformer for pipelines."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from otmoe.arrays.numerics import Floats
from otmoe.data.features import MAX_LEVELS, FeatureSpec
from otmoe.data.tables import as_arrow, check_names, is_number, is_table, names_of


class FeatureEncoder(TransformerMixin, BaseEstimator):
    """Encode the columns of a data frame as features, in scikit-learn pipelines.

    Estimators encode data frames with text or categories automatically; this is for pipelines, and
    for a specification agreed on with others.

    Parameters
    ----------
    spec : FeatureSpec, optional
        How columns become features; by default derived from the rows of the fit.
    center : bool
        Whether to centre and scale numbers, if there is no specification.
    max_levels : int
        A category with more levels is refused, if there is no specification.

    Attributes
    ----------
    spec_ : FeatureSpec
    n_features_in_ : int

    Examples
    --------
    >>> import pandas as pd
    >>> from otmoe import FeatureEncoder
    >>> frame = pd.DataFrame({"age": [50, 35, 41], "wind": ["N", "S", "N"]})
    >>> FeatureEncoder().fit_transform(frame)
        age  wind=S
    0  50.0     0.0
    1  35.0     1.0
    2  41.0     0.0
    """

    def __init__(
        self,
        spec: FeatureSpec | None = None,
        *,
        center: bool = False,
        max_levels: int = MAX_LEVELS,
    ) -> None:
        self.spec = spec
        self.center = center
        self.max_levels = max_levels

    def fit(self, X: Any, y: Any = None) -> Self:
        """Determine how the columns become features, or check that they exist.

        Parameters
        ----------
        X : frame, or mapping of n values by name
        y : ignored

        Returns
        -------
        self
        """
        names = names_of(X)
        if self.spec is None:
            self.spec_ = FeatureSpec.from_sample(X, center=self.center, max_levels=self.max_levels)
        else:
            check_names(self.spec.names, names)
            self.spec_ = self.spec
        self.n_features_in_ = len(names)
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of some rows, (n, d): a pandas frame for a pandas frame."""
        check_is_fitted(self)
        return encoded(X, self.spec_)

    def get_feature_names_out(self, input_features: Any = None) -> Floats:
        """Return the names of the features, (d,)."""
        check_is_fitted(self)
        return np.array(self.spec_.feature_names, dtype=object)


def encoded(X: Any, spec: FeatureSpec) -> Any:
    """Return the features of a data frame, as a pandas frame if it is one."""
    features = spec.encode(X)
    if not hasattr(X, "iloc"):
        return features
    import pandas as pd

    return pd.DataFrame(features, columns=list(spec.feature_names), index=X.index)


def has_words(X: Any) -> bool:
    """Say whether a frame has non-numeric columns: text, categories, dates."""
    if not _is_frame(X):
        return False
    names = names_of(X)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return False
    kinds = [getattr(kind, "kind", None) for kind in getattr(X, "dtypes", ())]
    if kinds and all(kind in ("b", "i", "u", "f", "c") for kind in kinds):
        return False
    return not all(is_number(field.type) for field in as_arrow(X, names).schema)


def _is_frame(X: Any) -> bool:
    """Say whether something is a frame, of pandas or polars."""
    return is_table(X) and hasattr(X, "columns")
