"""Frames with columns of words: what estimators make of them."""

from __future__ import annotations

from typing import Any

from otmoe.data.features import FeatureSpec
from otmoe.data.tables import as_arrow, is_number, is_table, names_of


def is_frame(X: Any) -> bool:
    """Say whether something is a frame, of pandas or polars."""
    return is_table(X) and hasattr(X, "columns") and not isinstance(X, dict)


def has_words(X: Any) -> bool:
    """Say whether a frame has columns that are no numbers: text, categories, dates."""
    if not is_frame(X):
        return False
    names = names_of(X)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return False
    dtypes = [getattr(kind, "kind", None) for kind in getattr(X, "dtypes", ())]
    if dtypes and all(kind in ("b", "i", "u", "f", "c") for kind in dtypes):
        return False
    return not all(is_number(field.type) for field in as_arrow(X, names).schema)


def encoded(X: Any, spec: FeatureSpec) -> Any:
    """Return the features of a frame, as a frame of pandas where that is what came."""
    return spec.transform(X)


def wants_encoding(X: Any, spec: FeatureSpec | None) -> bool:
    """Say whether a frame has the columns of a specification, and not its features."""
    if spec is None or not is_frame(X):
        return False
    names = set(map(str, names_of(X)))
    return set(spec.names) <= names and not set(spec.feature_names) <= names
