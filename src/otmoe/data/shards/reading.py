"""Where rows are: descriptions that are sent to workers and read there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.data.responses import Column, columns_of, labels_of
from otmoe.data.shards.files import kind_of, named, names_for
from otmoe.data.shards.gathering import (
    Gathered,
    ShardRows,
    kept_labels,
    tallied,
    target_values,
    weights,
)
from otmoe.data.shards.sources import open_source, release
from otmoe.data.tables import array, as_arrow, is_table, is_text, labels, names_of, texts
from otmoe.data.tally import Tally
from otmoe.text.errors import InvalidInput, ShardError
from otmoe.text.sentences import Error

Missing = Literal["error", "drop"]

_ABREAST = 4  # columns of Parquet read at a time; each has a page in memory, of a megabyte or two


class Shard(Protocol):
    """A name, and rows that are read when they are needed."""

    @property
    def name(self) -> str:
        """Name, up to 200 characters."""
        ...

    @property
    def features(self) -> FeatureSpec | None:
        """How columns become features; None for arrays."""
        ...

    @property
    def n_rows(self) -> int | None:
        """Rows before any are dropped, where that is known without reading them."""
        ...

    def read(self) -> ShardRows:
        """Return the rows, or raise a :class:`ShardError` that names the shard."""
        ...


@dataclass(frozen=True, eq=False)
class ArrayShard:
    """Rows in memory.

    Attributes
    ----------
    name : str
    X : array or frame of shape (n, d)
    y : array of shape (n,), or (n, C) for successes and failures or several responses
        Numbers, or class labels as text.
    weight : array of shape (n,), optional
    features : FeatureSpec, optional
        How the columns of a frame become features, by default as plain numbers; for an array,
        how it came about.
    missing : {"error", "drop"}
        What to do about rows with missing values.
    beside : mapping of str to array of shape (n,)
        Other columns, by name, that are not features.
    groups : str, optional
        Column of labels to be read with the rows: one of those beside, or of a frame X.
    offset : array of shape (n,), optional
        Known part of the experts' linear predictors.
    response_names : tuple of str
        Names of several responses; none where there is one.
    """

    name: str
    X: Any = field(repr=False)
    y: Any = field(repr=False)
    weight: Any = field(default=None, repr=False)
    features: FeatureSpec | None = field(default=None, repr=False)
    missing: Missing = "error"
    beside: Mapping[str, Any] = field(default_factory=dict, repr=False)
    groups: str | None = None
    offset: Any = field(default=None, repr=False)
    response_names: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    def read(self) -> ShardRows:
        """Return the rows, or raise a :class:`ShardError` that names the shard.

        Returns
        -------
        ShardRows
        """
        with named(self.name):
            tally = Tally()
            X = self._features(tally)
            y, absent = self._response(tally)
            weight = offset = None
            if self.weight is not None:
                weight = weights(array(self.weight, "weight"), "weight", tally)
            if self.offset is not None:
                offset = tallied(array(self.offset, "offset"), "offset", tally)
            for name, values in (("y", y), ("weight", weight), ("offset", offset)):
                if values is not None and len(values) != len(X):
                    raise InvalidInput(
                        Error.LENGTHS_DIFFER, name=name, rows=len(values), other="X", others=len(X)
                    )
            for values in (weight, offset):
                if values is not None:
                    absent = absent | np.isnan(values)
            tally.check(self.missing, "error" if self.features is None else self.features.unknown)
            keep = ~(absent | np.isnan(X).any(axis=1))
            groups = self._groups(keep)
            left, names = int((~keep).sum()), self.response_names
            if not left:
                return ShardRows(X, y, weight, offset=offset, groups=groups, response_names=names)
            weight, offset = (None if a is None else a[keep] for a in (weight, offset))
            found = ShardRows(X[keep], y[keep], weight, left, offset, groups)
            return replace(found, missing=tally.missing, response_names=names)

    def _response(self, tally: Tally) -> tuple[Floats, Floats]:
        """Return y, and where it is missing."""
        if np.ndim(self.y) < 2:
            column = array(self.y, "y")
            return target_values(column, "y", tally, is_text(column.type))
        y = np.asarray(to_numpy(self.y), np.float64)
        for column in y.T:
            tally.add("y", column)
        return y, np.asarray(np.isnan(y).any(axis=1))

    def _groups(self, keep: Floats) -> Floats | None:
        if self.groups is None:
            return None
        there = self.X if self.groups not in self.beside and is_table(self.X) else self.beside
        if self.groups not in names_of(there):
            raise InvalidInput(Error.NO_GROUPS_KNOWN, column=self.groups)
        column = array(as_arrow(there, [self.groups]).column(self.groups), self.groups)
        return kept_labels(*labels(column, self.groups), keep, self.groups)

    def _features(self, tally: Tally) -> Floats:
        if is_table(self.X):
            spec = self.features or FeatureSpec.of_names(names_of(self.X))
            return spec.encode_table(self.X, tally)
        X = np.asarray(to_numpy(self.X), np.float64)
        if X.ndim != 2:
            raise InvalidInput(Error.NOT_A_MATRIX, name="X", shape=X.shape)
        places = {f"x{j}": range(j, j + 1) for j in range(X.shape[1])}
        if self.features is not None:
            places = self.features.layout.of_columns
        for name, place in places.items():
            tally.add(name, X[:, place[0]])  # where a level is missing, so are the others
        tally.n_rows = len(X)
        return X


def grouped_by(shard: Shard, column: str) -> Shard:
    """Return a shard that reads the labels in a column with its rows."""
    if not isinstance(shard, ArrayShard | FileShard):
        raise ShardError(Error.NO_GROUPS_KNOWN, where=f"shard {shard.name!r}", column=column)
    return replace(shard, groups=column)


class Piece(NamedTuple):
    """Some rows of a data file.

    Attributes
    ----------
    path : str
        Absolute path, or URL.
    start : int
    stop : int or None
        The row after the last; None for the end of the file.
    """

    path: str
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class FileShard:
    """Rows of Parquet or CSV files, read when they are needed, the needed columns only.

    Attributes
    ----------
    name : str
    pieces : tuple of Piece
        Where the rows are.
    target : str
        Column of the response.
    features : FeatureSpec
    weight : str, optional
        Column of case weights.
    labels : bool
        Whether the target is text, for a classifier.
    site : tuple of (str, str), optional
        Column, and the value that it has in the rows of this shard.
    size : int, optional
        Rows, where they have been counted.
    missing : {"error", "drop"}
        What to do about rows with missing values.
    groups, ids : str, optional
        Columns to be read with the rows: of the groups they belong to, and of whose they are.
    sep : str, optional
        What separates columns of CSV files; by default as their headers have it.
    offset : str, optional
        Column of the known part of the experts' linear predictors.
    responses : tuple of Column
        Columns of several responses, or of one with its trials; empty for the target alone.

    Examples
    --------
    >>> from otmoe.data.features import FeatureSpec
    >>> from otmoe.data.shards import FileShard, Piece
    >>> FileShard("lyon", (Piece("lyon.parquet"),), "y", FeatureSpec.of_names(["age"])).target
    'y'
    """

    name: str
    pieces: tuple[Piece, ...]
    target: str
    features: FeatureSpec = field(repr=False)
    weight: str | None = None
    labels: bool = False
    site: tuple[str, str] | None = None
    size: int | None = None
    missing: Missing = "error"
    groups: str | None = None
    sep: str | None = None
    offset: str | None = None
    ids: str | None = None
    responses: tuple[Column, ...] = ()

    @property
    def asked(self) -> tuple[Column, ...]:
        """The columns of each response."""
        return self.responses or ((self.target, None),)

    @property
    def response_names(self) -> tuple[str, ...]:
        """Names of several responses; none where there is one."""
        return labels_of(self.asked)

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if they would have to be read to be counted.

        Parquet files are opened for it, but not read.
        """
        if self.size is not None or self.site is not None:
            return self.size
        total = 0
        for path, start, stop in self.pieces:
            if stop is None:
                if kind_of(path) == "csv":
                    return None
                with self._named(path):
                    stop = open_source(path, self.sep).n_rows or 0
            total += stop - start
        return total

    def _named(self, path: str) -> AbstractContextManager[None]:
        """Turn what goes wrong with a file into an error that names it, and the shard."""
        several = len({piece.path for piece in self.pieces}) > 1
        return named(f"{self.name}: {names_for([path])[0]}" if several else self.name)

    def read(self) -> ShardRows:
        """Return the rows, or raise a :class:`ShardError` that names the shard.

        Returns
        -------
        ShardRows
        """
        n_rows, spec = self.n_rows, self.features
        with named(self.name):
            beside = self.groups, self.offset, self.ids
            found = Gathered(self.asked, self.weight, self.labels, spec.layout, n_rows, *beside)
            for some in self._abreast(n_rows):
                also = [] if found.end else self._beside
                found.begin(some)
                for batch in self._batches(some, also):
                    found.add(batch)
            rows = found.rows(self.missing, spec.unknown)
            release()
            return replace(rows, response_names=self.response_names)

    @property
    def _beside(self) -> list[str]:
        """Columns that are not features."""
        names = [*columns_of(self.asked), self.weight, self.offset, self.groups, self.ids]
        return list(dict.fromkeys(name for name in names if name is not None))

    @property
    def _numbers(self) -> list[str]:
        """Features that are numbers, which a column of labels may be as well."""
        return [column.name for column in self.features.columns if column.kind == "number"]

    def _abreast(self, n_rows: int | None) -> list[FeatureSpec]:
        """Cut the features into those that are read at a time."""
        whole = any(kind_of(piece.path) != "parquet" for piece in self.pieces)
        if whole or n_rows is None:
            return [self.features.base]
        columns = self.features.columns
        return [
            replace(self.features, columns=columns[i : i + _ABREAST], terms=())
            for i in range(0, len(columns), _ABREAST)
        ]

    def _batches(self, features: FeatureSpec, also: list[str]) -> Iterator[pa.RecordBatch]:
        columns = [*features.names, *also]
        categories = [c.name for c in features.columns if c.kind == "category"]
        if self.labels:
            categories.append(self.target)
        labels = dict.fromkeys(name for name in (self.groups, self.ids) if name is not None)
        categories += [name for name in labels if name not in self._numbers]
        if self.site is not None:
            columns.append(self.site[0])
            categories.append(self.site[0])
        for path, start, stop in self.pieces:
            with self._named(path):
                source = open_source(path, self.sep)
                for batch in source.batches(list(dict.fromkeys(columns)), categories, start, stop):
                    if self.site is not None:
                        name, value = self.site
                        here = pc.equal(
                            texts(batch.column(name), name), pa.scalar(value, pa.large_string())
                        )
                        batch = batch.filter(here)
                    yield batch
