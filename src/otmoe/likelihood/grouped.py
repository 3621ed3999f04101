"""Scores summed by groups of rows that belong together (maths 15)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.likelihood.information import score_sums
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


@dataclass(frozen=True)
class GroupScores:
    """Summed scores of every group, by its label; they add up over shards.

    A group whose rows lie in several shards is one group in the sum.

    Attributes
    ----------
    labels : tuple of G hashable values
        Distinct.
    sums : ndarray of shape (G, P)
        The sum of w_i s_i over the rows of each group. It is held whole: G P numbers.
    """

    labels: tuple[Hashable, ...] = field(repr=False)
    sums: Floats = field(repr=False)

    @property
    def n_groups(self) -> int:
        """Number of groups, G."""
        return len(self.labels)

    @property
    def outer(self) -> Floats:
        """The sum over groups of the outer products of their scores, (P, P)."""
        return np.asarray(self.sums.T @ self.sums)

    def __add__(self, other: GroupScores) -> GroupScores:
        place = {label: g for g, label in enumerate(self.labels)}
        theirs = [place.setdefault(label, len(place)) for label in other.labels]
        sums = np.zeros((len(place), self.sums.shape[1]))
        sums[: len(self.sums)] = self.sums
        sums[theirs] += other.sums  # the labels of one part are distinct
        return GroupScores(tuple(place), sums)


def group_scores(model: MoE, rows: Rows, groups: Any) -> GroupScores:
    """Return the scores of rows, summed by group, in one pass over the rows.

    A row of weight 0 is no row: a group that has only such rows does not count.

    Parameters
    ----------
    model : MoE
        On the scale of the rows.
    rows : Rows
    groups : array-like of shape (n,)
        Labels of any hashable kind; rows of one label belong together.
    """
    values = as_labels(groups, len(rows))
    counts = np.ones(len(rows), bool) if rows.weight is None else to_numpy(rows.weight) > 0
    codes = np.full(len(rows), -1)
    codes[counts], labels = _coded(values[counts])
    return GroupScores(labels, score_sums(model, rows, codes, len(labels)))


def as_labels(groups: Any, n_rows: int) -> Floats:
    """Return labels of rows as an array of shape (n,); refuse other shapes and missing labels."""
    if hasattr(groups, "__array__") or hasattr(groups, "__dlpack__"):
        values = to_numpy(groups)
    elif isinstance(groups, str) or not hasattr(groups, "__len__"):
        values = np.asarray(groups, dtype=object)
    else:  # a list: tuples stay labels, and 1 and "1" stay different
        values = np.fromiter(groups, object, len(groups))
    if values.shape != (n_rows,):
        raise InvalidInput(Error.ONE_PER_ROW, name="groups", shape=values.shape, wanted=(n_rows,))
    missing = (
        np.fromiter(map(_is_missing, values), bool, n_rows)
        if values.dtype == object
        else values != values
    )
    if np.any(missing):
        row = int(np.flatnonzero(missing)[0])
        raise InvalidInput(Error.GROUP_MISSING, name="groups", row=row, count=int(np.sum(missing)))
    return np.asarray(values)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # the missing value of pandas is neither true nor false
        return True


def _coded(values: Floats) -> tuple[Floats, tuple[Hashable, ...]]:
    """Return the place of each value among the distinct ones, and these."""
    if values.dtype != object:
        found, codes = np.unique(values, return_inverse=True)
        return codes, tuple(found.tolist())
    place: dict[Hashable, int] = {}
    try:
        codes = np.fromiter(
            (place.setdefault(value, len(place)) for value in values), int, len(values)
        )
    except TypeError as error:
        raise InvalidInput(Error.GROUP_KIND, error=error) from error
    return codes, tuple(place)
