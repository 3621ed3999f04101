"""The columns behind features as variables: what changes in a row if one of them does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.data.columns import Column
from otmoe.data.features import FeatureSpec
from otmoe.data.tables import is_table, names_of
from otmoe.data.terms import Layout
from otmoe.inference.marginal import Change, ends_of, feature_changes, step_of


@dataclass(frozen=True)
class Variables:
    """The columns of a table, and the features that a model has of them.

    Attributes
    ----------
    names : tuple of d str
        Of the features.
    spec : FeatureSpec, optional
        How columns became features; by default every feature is a column of its own.

    Examples
    --------
    >>> spec = FeatureSpec((Column("age"), Column("wind", "category", levels=("N", "S", "W"))))
    >>> variables = Variables(spec.feature_names, spec)
    >>> X = variables.rows({"age": [50, 35], "wind": ["S", "W"]})
    >>> [name for name, _ in variables.changes(X)]
    ['age', 'wind=S', 'wind=W']
    """

    names: tuple[str, ...]
    spec: FeatureSpec | None = None

    def rows(self, X: Any) -> Any:
        """Return features (n, d): of a table, encoded; an array as it is."""
        if not is_table(X):
            return X
        spec = self.spec
        if spec is None or not has_columns(X, spec):
            spec = FeatureSpec.of_names(self.names)  # features, in a table
        return spec.encode(X)

    def changes(self, X: Floats) -> Iterator[tuple[str, Change]]:
        """Return how rows change with each variable, by name.

        A number moves by a small step to either side, in its own units, together with the terms
        that depend on it; rows in which it is missing stay out. A number that is 0 or 1 in all
        rows moves from 0 to 1, and a category from its reference to each other level.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Features; steps depend on how they vary.

        Returns
        -------
        iterator of (str, Change)
            The size of a change is 0 in rows that stay out.
        """
        if self.spec is None:
            yield from feature_changes(X, self.names)
            return
        layout = self.spec.layout
        for column in layout.columns:
            place = layout.of_columns[column.name]
            if column.kind == "category":
                for name, j in zip(column.feature_names, place, strict=True):
                    yield name, partial(_levels, layout, place, j)
                continue
            known = _known(X, column, place)
            if np.any(known):
                step = step_of(X[known, place[0]] * column.scale + column.center)
                yield column.name, partial(_numbers, layout, column, place, step)


def has_columns(X: Any, spec: FeatureSpec) -> bool:
    """Say whether a table has the columns of a specification, not the features made of them."""
    there = names_of(X)
    return set(spec.names) <= set(there) or there != list(spec.feature_names)


def _known(X: Floats, column: Column, place: range) -> Floats:
    """Say in which rows a number is not missing, (n,)."""
    return np.ones(len(X), dtype=bool) if column.impute is None else X[:, place[1]] == 0


def _numbers(
    layout: Layout, column: Column, place: range, step: float | None, X: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return rows at both ends of the step of a number."""
    known = _known(X, column, place)
    ends = ends_of(X[:, place[0]] * column.scale + column.center, step)
    before, after = X.copy(), X.copy()
    for rows, x in zip((before, after), ends, strict=True):
        rows[known, place[0]] = (x[known] - column.center) / column.scale
        layout.derive(rows)
    return before, after, np.where(known, ends[1] - ends[0], 0.0)


def _levels(layout: Layout, place: range, j: int, X: Floats) -> tuple[Floats, Floats, Floats]:
    """Return rows at the reference of a category and at one of its levels."""
    before, after = X.copy(), X.copy()
    before[:, place.start : place.stop] = after[:, place.start : place.stop] = 0.0
    after[:, j] = 1.0
    for rows in (before, after):
        layout.derive(rows)
    return before, after, np.ones(len(X))
