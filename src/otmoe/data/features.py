"""Which columns are the features, and how they become numbers: written once, the same everywhere.

``docs/shards.md`` describes the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats
from otmoe.data.columns import Column, ColumnRecord, check_column, guess
from otmoe.data.tables import BATCH, as_arrow, names_of
from otmoe.text.document import Document
from otmoe.text.errors import InvalidInput, InvalidType, fail
from otmoe.text.records import (
    List,
    Record,
    Version,
    check_distinct,
    typed,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, shown

MAX_LEVELS = 50
"""Levels of a category above which it is refused, unless more are asked for."""


class FeaturesRecord(Record):
    """The columns in order, and what to do about a value that is no level of its category."""

    columns: List[ColumnRecord]
    unknown: Literal["error", "reference"] = "error"


class FeaturesFileRecord(FeaturesRecord):
    """A specification alone, in a file of its own."""

    otmoe: Literal["features"]
    schema_version: Version


def check_features(record: FeaturesRecord, source: str, place: str = "") -> None:
    """Check that the parts of a specification agree.

    Parameters
    ----------
    record : FeaturesRecord
    source : str
        Where it comes from; an error begins with it.
    place : str
        Where it lies in its document, with a dot at the end.
    """
    if not record.columns:
        fail(source, f"{place}columns", Error.NO_COLUMNS)
    for i, column in enumerate(record.columns):
        check_column(column, source, f"{place}columns[{i}]")
    columns = [Column.from_record(column) for column in record.columns]
    check_distinct([column.name for column in columns], f"{place}columns", source)
    # a number called "wind=N" beside a category "wind" with a level "N"
    check_distinct([n for c in columns for n in c.feature_names], f"{place}feature_names", source)


@dataclass
class Tally:
    """What was wrong with the rows read so far, so that one sentence can give the whole count.

    Attributes
    ----------
    n_rows : int
    missing, infinite, negative : Counter
        Rows by column; a negative weight is wrong, a negative feature is not.
    unknown : dict
        Counter of values that are no level, by column.
    """

    n_rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    infinite: Counter[str] = field(default_factory=Counter)
    negative: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, name: str, values: Floats) -> None:
        """Count the missing and the infinite numbers of a column."""
        finite = np.isfinite(values)
        if not finite.all():
            self.missing[name] += int(np.isnan(values).sum())
            self.infinite[name] += int(np.isinf(values).sum())

    def check(self, missing: str = "error", unknown: str = "error") -> None:
        """Raise a ValueError about what may not be."""
        for name, count in self.missing.items():
            if count == self.n_rows > 0 and missing != "keep":
                raise InvalidInput(Error.COLUMN_EMPTY, column=name, rows=count)
            if count and missing == "error":
                raise InvalidInput(Error.COLUMN_MISSING, column=name, count=count, rows=self.n_rows)
        for name, count in self.infinite.items():
            if count:
                raise InvalidInput(Error.COLUMN_INFINITE, column=name, count=count)
        for name, count in self.negative.items():
            if count:
                raise InvalidInput(Error.COLUMN_NEGATIVE, column=name, count=count)
        for name, values in self.unknown.items():
            if values and unknown == "error":
                most = ", ".join(f"{shown(value)} ({n} rows)" for value, n in values.most_common(3))
                more = f" and {len(values) - 3} more" if len(values) > 3 else ""
                raise InvalidInput(Error.COLUMN_LEVELS, column=name, values=most, more=more)


@dataclass(frozen=True)
class FeatureSpec(Document):
    """The columns that are features, in order, and how they become numbers.

    It is checked when it is made, whether from a sample, by hand or from a file.

    Attributes
    ----------
    columns : tuple of Column
    unknown : {"error", "reference"}
        What a value is that is no level of its category: a mistake, or the reference level.

    Examples
    --------
    >>> from otmoe.data.features import Column, FeatureSpec
    >>> spec = FeatureSpec((
    ...     Column("age", center=40.0, scale=10.0),
    ...     Column("wind", "category", levels=("N", "NE", "S"), reference="S"),
    ... ))
    >>> spec.feature_names
    ('age', 'wind=N', 'wind=NE')
    >>> spec.encode({"wind": ["NE", "S"], "age": [50, 35]})
    array([[ 1. ,  0. ,  1. ],
           [-0.5,  0. ,  0. ]])
    >>> FeatureSpec.from_json(spec.to_json()) == spec
    True
    """

    kind: ClassVar[str] = "features"
    called: ClassVar[str] = "features"
    other_kinds: ClassVar[dict[str, Error]] = {
        "model": Error.FEATURES_INSIDE,
        "local model": Error.FEATURES_INSIDE,
    }

    columns: tuple[Column, ...]
    unknown: Literal["error", "reference"] = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        for column in self.columns:
            if not isinstance(column, Column):
                raise InvalidType(Error.NOT_A_COLUMN, value=shown(column))
        check_features(typed(FeaturesRecord, self.body(), "features"), "features")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the d encoded features."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(column.name for column in self.columns)

    # -- encoding ----------------------------------------------------------------------------

    def encode(self, table: Any, *, missing: Literal["error", "keep"] = "error") -> Floats:
        """Return the features of some rows.

        The order of the table's columns does not matter, and it may have others.

        Parameters
        ----------
        table : pyarrow Table or RecordBatch, pandas or polars frame, or mapping of n values by name
        missing : {"error", "keep"}
            What becomes of a missing value: a ValueError that names the column and counts the
            rows, or features that are NaN.

        Returns
        -------
        ndarray of float64 of shape (n, d)
        """
        tally = Tally()
        X = self.encode_table(table, tally)
        tally.check(missing, self.unknown)
        return X

    def encode_table(self, table: Any, tally: Tally) -> Floats:
        """Return features, NaN where missing, and count what is wrong with them.

        Parameters
        ----------
        table : as in :meth:`encode`, of n rows
        tally : Tally
            New; its :meth:`Tally.check` raises.

        Returns
        -------
        ndarray of float64 of shape (n, d)
        """
        arrow = as_arrow(table, self.names)
        X = np.empty((arrow.num_rows, len(self.feature_names)))
        for batch in arrow.to_batches(max_chunksize=BATCH):
            begin = tally.n_rows
            self.encode_batch(batch, tally, X[begin : begin + batch.num_rows])
        return X

    def encode_batch(self, batch: pa.RecordBatch, tally: Tally, out: Floats) -> None:
        """Write the features of a batch, NaN where missing, and count what is wrong with them.

        Parameters
        ----------
        batch : RecordBatch of n rows
        tally : Tally
            Its :meth:`Tally.check` raises, once all batches are in.
        out : ndarray of shape (n, d)
        """
        j = 0
        for column in self.columns:
            part = out[:, j : j + len(column.feature_names)]
            others = column.fill(batch.column(column.name), part)
            tally.add(column.name, part[:, 0])
            if others:
                tally.unknown.setdefault(column.name, Counter()).update(others)
            j += part.shape[1]
        tally.n_rows += batch.num_rows

    # -- making one --------------------------------------------------------------------------

    @classmethod
    def of_names(cls, names: Sequence[str]) -> Self:
        """Return the specification of plain numbers."""
        return cls(tuple(Column(name) for name in names))

    @classmethod
    def from_sample(
        cls,
        table: Any,
        columns: Sequence[str] | None = None,
        *,
        center: bool = False,
        max_levels: int = MAX_LEVELS,
    ) -> Self:
        """Return a specification that suits some rows.

        Numbers and truth values stay numbers; text and dictionary columns become categories, their
        levels sorted and the first of them the reference. Levels that are not in the sample are
        not known: add them to the file by hand.

        Parameters
        ----------
        table : pyarrow Table or RecordBatch, pandas or polars frame, or mapping of n values by name
        columns : sequence of str, optional
            The features, in order; by default all columns.
        center : bool
            Whether to centre numbers at their mean in the sample and divide them by their
            standard deviation there.
        max_levels : int
            A category with more is refused.
        """
        names = names_of(table) if columns is None else list(columns)
        arrow = as_arrow(table, names)
        return cls(tuple(guess(arrow.column(n), n, center, max_levels) for n in names))

    # -- files -------------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version; models carry the same."""
        return {"columns": [column.document() for column in self.columns], "unknown": self.unknown}

    @classmethod
    def from_record(cls, record: FeaturesRecord) -> Self:
        """Return the specification of a checked record."""
        return cls(tuple(map(Column.from_record, record.columns)), record.unknown)

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the specification of a parsed document, checked."""
        record = typed(FeaturesFileRecord, document, source)
        check_features(record, source)
        spec = cls.from_record(record)
        limits.check("features", len(spec.feature_names), source)
        return spec
