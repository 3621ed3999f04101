"""Scores summed by groups of rows that belong together (maths 15)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.likelihood.information import score_outer, score_sums
from otmoe.likelihood.rows import Rows
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_LEAST_SUMS = 4  # whose variance is an estimate worth having


@dataclass(frozen=True)
class Scatter:
    """The middle of the sandwich: products of summed scores, summed over groups (maths 15).

    It adds up over places, such as sites, and carries no label: a group whose rows lie in several
    places is several groups in the sum.

    Attributes
    ----------
    matrix : ndarray of shape (P, P)
        The sum over groups of u_g u_g', with u_g the sum of w_i s_i over the rows of group g.
    n_rows : int
        Rows, but for those of weight 0.
    n_groups : int, optional
        Groups; None where every row is one of its own, which nobody has named.
    """

    matrix: Floats = field(repr=False)
    n_rows: int
    n_groups: int | None = None

    @property
    def n_scores(self) -> int:
        """Number of scores whose products are summed: those of groups, or of rows."""
        return self.n_rows if self.n_groups is None else self.n_groups

    def __add__(self, other: Scatter) -> Scatter:
        by_row = self.n_groups is None and other.n_groups is None
        return Scatter(
            self.matrix + other.matrix,
            self.n_rows + other.n_rows,
            None if by_row else self.n_scores + other.n_scores,
        )


@dataclass(frozen=True)
class Growth:
    """How the scatter of a site grows if successive groups count as one (maths 18).

    Attributes
    ----------
    n_groups : int
    ratios : ndarray of shape (J,)
        Variance of sums of 1, 2, 4, ... successive scores, over that of as many independent ones;
        an average over parameters.
    """

    n_groups: int
    ratios: Floats = field(repr=False)


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
    n_rows : int
        Rows, but for those of weight 0.
    """

    labels: tuple[Hashable, ...] = field(repr=False)
    sums: Floats = field(repr=False)
    n_rows: int

    @property
    def n_groups(self) -> int:
        """Number of groups, G."""
        return len(self.labels)

    @property
    def scatter(self) -> Scatter:
        """Products of these sums, without labels."""
        return Scatter(np.asarray(self.sums.T @ self.sums), self.n_rows, self.n_groups)

    def growth(self, groups: Any) -> Growth:
        """Return how the scatter grows with the number of successive groups that count as one.

        Parameters
        ----------
        groups : array-like of shape (n,)
            Labels of the rows: groups follow each other as their first rows do.
        """
        place = {label: g for g, label in enumerate(self.labels)}
        seen = dict.fromkeys(as_labels(groups, len(groups)).tolist())
        order = [place[label] for label in seen if label in place]
        return Growth(self.n_groups, growth_ratios(self.sums[order]))

    def __add__(self, other: GroupScores) -> GroupScores:
        place = {label: g for g, label in enumerate(self.labels)}
        theirs = [place.setdefault(label, len(place)) for label in other.labels]
        sums = np.zeros((len(place), self.sums.shape[1]))
        sums[: len(self.sums)] = self.sums
        sums[theirs] += other.sums  # the labels of one part are distinct
        return GroupScores(tuple(place), sums, self.n_rows + other.n_rows)


def growth_ratios(sums: Floats) -> Floats:
    """Return the variance of sums of 1, 2, 4, ... successive scores, per score (maths 18).

    Each is over the variance of single scores and averaged over parameters: (J,), close to 1 if
    scores are independent, growing if neighbours are alike. A length is measured if there are at
    least four sums of it.

    Parameters
    ----------
    sums : ndarray of shape (G, P)
        In the order of time.

    Examples
    --------
    >>> alike = np.repeat([1.0, -1.0, -1.0, 1.0], 2)[:, None]
    >>> growth_ratios(alike).round(2).tolist()
    [1.0, 2.33]
    """
    G = len(sums)
    rest = sums - sums.mean(axis=0) if G else sums
    found, alone, length = [], np.zeros(0), 1
    while G // length >= _LEAST_SUMS:
        k = G // length
        blocks = rest[: k * length].reshape(k, length, -1).sum(axis=1)
        variance = np.var(blocks, axis=0, ddof=1) / length
        alone = variance if length == 1 else alone
        some = alone > 0
        found.append(float(np.mean(variance[some] / alone[some])) if np.any(some) else 1.0)
        length *= 2
    return np.array(found)


def score_scatter(model: MoE, rows: Rows, groups: Any = None) -> Scatter:
    """Return the scatter of the scores of rows, in one pass over the rows.

    Parameters
    ----------
    model : MoE
        On the scale of the rows.
    rows : Rows
    groups : array-like of shape (n,), optional
        As in :func:`group_scores`; by default every row is a group of its own, but for those that
        share their expert.
    """
    if groups is None:
        n_groups = None if rows.groups is None else len(np.unique(rows.groups[_counted(rows)]))
        return Scatter(score_outer(model, rows), int(np.sum(_counted(rows))), n_groups)
    return group_scores(model, rows, groups).scatter


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
    counts = _counted(rows)
    codes = np.full(len(rows), -1)
    codes[counts], labels = coded(values[counts])
    return GroupScores(labels, score_sums(model, rows, codes, len(labels)), int(np.sum(counts)))


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


def _counted(rows: Rows) -> Floats:
    """Say which rows count, (n,): a row of weight 0 is no row."""
    return np.ones(len(rows), bool) if rows.weight is None else to_numpy(rows.weight) > 0


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # the missing value of pandas is neither true nor false
        return True


def coded(values: Floats) -> tuple[Floats, tuple[Hashable, ...]]:
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
