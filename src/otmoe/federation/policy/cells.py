"""Cells of rows: who has a level, in an expert, of a class (docs/policy.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE

_EMPTY = 0.5  # rows: a cell that holds less of them is empty
_NOWHERE = -1  # in place of an expert: all of them


@dataclass(frozen=True)
class Cell:
    """The rows that have a level, in an expert, of a class.

    Attributes
    ----------
    rows : float
        How many equal rows they are worth.
    term : str
        The feature that they have, or lack.
    has : bool
        Whether they have it.
    expert : int
        -1 for all experts.
    label : str
        Their class; empty for a response that is a number.
    """

    rows: float
    term: str
    has: bool
    expert: int = _NOWHERE
    label: str = ""

    def __str__(self) -> str:
        if "=" in self.term:  # a level of a category
            where = self.term if self.has else f"not {self.term}"
        else:
            where = f"the {'higher' if self.has else 'lower'} value of {self.term}"
        where += f", class {self.label}" if self.label else ""
        return where if self.expert == _NOWHERE else f"{where}, expert {self.expert}"


@dataclass(frozen=True)
class Levels:
    """Features that have two values, and reference levels of categories.

    Attributes
    ----------
    columns : ndarray of int of shape (J,)
        Their features.
    high : ndarray of shape (J,)
        The larger of the two values.
    references : tuple of tuple of int
        The dummies of each category.
    names : tuple of str
        Of the J features, and of the reference levels.
    labels : tuple of str
        Of the classes; one that is empty where y is a number.
    """

    columns: Floats
    high: Floats
    references: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, rows: Rows, model: MoE, features: FeatureSpec | None) -> Levels:
        """Find them among the features."""
        columns, high = _two_valued([to_numpy(rows.X[s, :]) for s in rows.slices()])
        terms = model.terms[1:] if features is None else features.feature_names
        references: dict[str, tuple[int, ...]] = {}
        for column in () if features is None else features.columns:
            if features is not None and column.kind == "category":
                level = column.levels[0] if column.reference is None else column.reference
                references[f"{column.name}={level}"] = tuple(
                    features.layout.of_columns[column.name]
                )
        labels: tuple[str, ...] = ("",)
        if model.experts.classifies:
            C = model.experts.n_classes_of(model.experts.coef.shape)
            labels = tuple(map(_label, range(C) if model.classes is None else model.classes))
        names = (*(terms[j] for j in columns), *references)
        return cls(columns, high, tuple(references.values()), names, labels)

    def at(self, X: Floats) -> Floats:
        """Return which levels rows have, and which they lack, (n, 2 J) of 0 and 1."""
        own = X[:, self.columns] == self.high
        others = [~np.any(X[:, c] > 0.5, axis=1) for c in map(list, self.references)]
        has = np.column_stack([own, *others]).astype(np.float64)
        return np.hstack([has, 1 - has])

    def smallest(self, first: Floats, second: Floats, n_experts: int) -> Cell | None:
        """Return the smallest cell that is not empty.

        Parameters
        ----------
        first, second : ndarray of shape (2 J, A C)
            Sums of responsibilities and of their squares, by level (rows that have it, then rows
            that lack it), expert and class. Several experts together are one more.
        n_experts : int
        """
        rows = np.where(first < _EMPTY, np.inf, first**2 / np.maximum(second, 1e-300))
        if not np.isfinite(rows).any():
            return None
        j, a = np.unravel_index(int(np.argmin(rows)), rows.shape)
        k, c = divmod(int(a), len(self.labels))
        has, place = j < len(self.names), j % len(self.names)
        expert = k if 1 < n_experts != k else _NOWHERE
        return Cell(float(rows[j, a]), self.names[place], bool(has), expert, self.labels[c])


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _two_valued(X: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the columns that have two values in all blocks of rows, and the larger of the two."""
    columns = np.arange(X[0].shape[1])
    for some in X:  # most columns are out after the first block
        part = some[:, columns]
        ends = (part == part.min(axis=0)) | (part == part.max(axis=0))
        columns = columns[np.all(ends, axis=0)]
    parts = [some[:, columns] for some in X]
    low = np.min([part.min(axis=0) for part in parts], axis=0)
    high = np.max([part.max(axis=0) for part in parts], axis=0)
    two = high > low
    for part in parts:
        two &= np.all((part == low) | (part == high), axis=0)
    return columns[two], high[two]
