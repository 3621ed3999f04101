"""Rows of arrays split at random into shards, and files joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Array, Floats, take
from otmoe.data.features import FeatureSpec
from otmoe.data.shards.gathering import ShardRows
from otmoe.data.shards.reading import FileShard, Shard

ROWS_PER_PARAMETER = 3
"""Rows per parameter that a shard has at least, where rows are split at random.

`python -m benchmarks constants` says what smaller and larger shards lose.
"""


@dataclass(frozen=True, eq=False)
class RowsShard:
    """Some of the rows of arrays in memory; it travels as a copy of these rows alone.

    Attributes
    ----------
    name : str
    X : array of shape (n, d)
    y : array of shape (n,)
    weight, offset : array of shape (n,), optional
    index : ndarray of int, optional
        The rows; all if it is None.
    groups : ndarray of shape (n,), optional
        Label of the group of each row.
    """

    name: str
    X: Array = field(repr=False)
    y: Array = field(repr=False)
    weight: Array | None = field(default=None, repr=False)
    offset: Array | None = field(default=None, repr=False)
    index: Floats | None = field(default=None, repr=False)
    groups: Floats | None = field(default=None, repr=False)

    features: FeatureSpec | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0]) if self.index is None else len(self.index)

    def read(self) -> ShardRows:
        """Return the rows, in the namespace and on the device of the arrays."""
        if self.index is None:
            return ShardRows(self.X, self.y, self.weight, offset=self.offset, groups=self.groups)
        weight, offset = (
            None if a is None else take(a, self.index) for a in (self.weight, self.offset)
        )
        X, y = take(self.X, self.index), take(self.y, self.index)
        groups = None if self.groups is None else self.groups[self.index]
        return ShardRows(X, y, weight, offset=offset, groups=groups)

    def __reduce__(self) -> Any:
        rows = self.read()
        parts = (self.name, rows.X, rows.y, rows.weight, rows.offset, None, rows.groups)
        return RowsShard, parts


def split(
    n_rows: int,
    n_shards: int,
    n_parameters: int,
    rng: np.random.Generator,
    codes: Floats | None = None,
) -> list[Floats]:
    """Cut rows at random into shards of equal size, fewer where rows are few.

    With codes of groups (n,), from 0, those of a group stay together, and sizes differ.

    Returns
    -------
    list of ndarray of int
        Row numbers of each shard, sorted.
    """
    n_shards = max(min(n_shards, n_rows // (ROWS_PER_PARAMETER * n_parameters)), 1)
    if n_shards == 1:
        return [np.arange(n_rows)]
    if codes is not None:
        order = rng.permutation(int(codes.max()) + 1)
        ends = np.cumsum(np.bincount(codes)[order])
        shard = np.empty(len(order), dtype=np.int64)
        shard[order] = np.minimum((ends - 1) * n_shards // n_rows, n_shards - 1)
        found = [np.flatnonzero(shard[codes] == i) for i in range(n_shards)]
        return [part for part in found if len(part)]
    return [np.sort(part) for part in np.array_split(rng.permutation(n_rows), n_shards)]


def joined(shards: Sequence[Shard], site: str) -> FileShard:
    """Return files as the rows of one site, in their order."""
    files = [shard for shard in shards if isinstance(shard, FileShard)]
    pieces = tuple(piece for shard in files for piece in shard.pieces)
    return replace(files[0], name=site, pieces=pieces)
