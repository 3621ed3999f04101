"""Cells of rows: who has a level, in an expert, of a class (docs/policy.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.clusters import layout
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
        where = f"{'' if self.has else 'not '}{self.term}"
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
        X = [to_numpy(rows.X[s, :]) for s in rows.slices()]
        low = np.min([x.min(axis=0) for x in X], axis=0)
        high = np.max([x.max(axis=0) for x in X], axis=0)
        two = high > low
        for x in X:
            some = np.flatnonzero(two)
            part = x[:, some]
            two[some] = np.all((part == low[some]) | (part == high[some]), axis=0)
        known, _ = layout(features)
        columns = np.flatnonzero(two)
        terms = model.terms[1:] if features is None else features.feature_names
        categories = (
            ()
            if features is None
            else tuple(f"{c.name}={c.reference}" for c in features.columns if c.kind == "category")
        )
        labels: tuple[str, ...] = ("",)
        if model.experts.classifies:
            C = model.experts.n_classes_of(model.experts.coef.shape)
            labels = tuple(map(str, range(C) if model.classes is None else model.classes))
        names = (*(terms[j] for j in columns), *categories)
        return cls(columns, high[columns], known, names, labels)

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
