"""Rows, known by sums of keyed hashes: how many differ between two sets, and no row of either.

A row's hash falls into one of some buckets, and each bucket keeps the sum of its hashes. Two sets
that differ by few rows differ in as many buckets. Rows that are many differ in nearly all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import shake_256
from itertools import product
from typing import Self

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.likelihood.rows import Rows

BUCKETS = 256
"""Ten rows fall into 9.8 of them on average, and twenty into nine or fewer next to never."""


@dataclass(frozen=True)
class RowSet:
    """Rows, known by their hashes.

    Attributes
    ----------
    n_rows : int
    all, target : ndarray of uint64 of shape (256,)
        Sums of the hashes that fall into each bucket: of x, y and weight, and of y alone.
    parts : tuple of ndarray of uint64 of shape (256,)
        The same of each column of y alone, where it has several.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data, key = simulate(500, 2, 3, random_state=0), b"secret"
    >>> some, all = (RowSet.of(Rows(data.X[i:], data.y[i:]), key) for i in (1, 0))
    >>> some.difference(all), all.difference(all)
    (1, 0)
    """

    n_rows: int
    all: Floats = field(repr=False)
    target: Floats = field(repr=False)
    parts: tuple[Floats, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, rows: Rows, key: bytes) -> Self:
        """Return what is kept of some rows.

        Parameters
        ----------
        rows : Rows
        key : bytes
            Of the ledger.
        """
        y = to_numpy(rows.y)
        columns = [to_numpy(rows.X[:, j]) for j in range(rows.X.shape[1])]
        several = [y] if y.ndim == 1 else list(y.T)
        columns += several if rows.weight is None else [*several, to_numpy(rows.weight)]
        kinds = y if y.ndim == 1 else np.unique(y, axis=0, return_inverse=True)[1].ravel()
        target = _hashes([*several, _ranks(kinds)], key)
        each = [] if y.ndim == 1 else [_hashes([column, _ranks(column)], key) for column in y.T]
        parts = tuple(map(_summed, each))
        return cls(len(rows), _summed(_hashes(columns, key)), _summed(target), parts)

    def same(self, other: RowSet) -> bool:
        """Say whether the rows are the same, with the same features."""
        return bool(np.all(self.all == other.all))

    def difference(self, other: RowSet) -> int:
        """Return by how many rows two sets differ; of many, only that they are many.

        Features may be written otherwise and the rows be the same, and a response may be asked
        about alone or with others. So the smaller number counts, of rows that differ in anything
        and of those that differ in y, or in the part of it that differs least, unless that is none.
        """
        pairs = product((self.target, *self.parts), (other.target, *other.parts))
        least = min(int(np.sum(mine != theirs)) for mine, theirs in pairs)
        counts = (int(np.sum(self.all != other.all)), max(least, abs(self.n_rows - other.n_rows)))
        return min((n for n in counts if n), default=0)


def _ranks(y: Floats) -> Floats:
    """Return how many equal values come before each, (n,): so that counts of classes matter."""
    order = np.argsort(y, kind="stable")
    new = np.diff(y[order], prepend=np.nan) != 0
    starts = np.flatnonzero(new)
    ranks = np.empty(len(y))
    ranks[order] = np.arange(len(y)) - np.repeat(starts, np.diff(np.append(starts, len(y))))
    return ranks


def _mixed(x: Floats) -> Floats:
    """Return 64-bit words in which every bit depends on every bit of x."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def _hashes(columns: Sequence[Floats], key: bytes) -> Floats:
    """Return a keyed hash of each row, (n,)."""
    keys = np.frombuffer(shake_256(key).digest(8 * (len(columns) + 1)), "<u8")
    found = np.full(len(columns[0]), keys[0])
    for k, column in zip(keys[1:], columns, strict=True):
        bits = (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # one zero, not two
        found = _mixed(found ^ _mixed(bits ^ k))
    return found


def _summed(hashes: Floats) -> Floats:
    total = np.zeros(BUCKETS, np.uint64)
    np.add.at(total, hashes % np.uint64(BUCKETS), hashes)
    return total
