"""Which columns are features, and how they become numbers: the same specification everywhere.

``docs/shards.md`` describes the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats
from otmoe.data.columns import Column, ColumnRecord, check_column, guess
from otmoe.data.splines import knots_of
from otmoe.data.tables import BATCH, as_arrow, names_of, numbers
from otmoe.data.tally import Tally
from otmoe.data.terms import Interaction, Layout, Spline, Term, TermRecord, check_terms, term_of
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
    """The columns in order, terms of them, and what a value is that is no level of its category."""

    columns: List[ColumnRecord]
    unknown: Literal["error", "reference"] = "error"
    terms: List[TermRecord] = []


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
    check_terms(record.terms, columns, source, f"{place}terms")
    # a number called "wind=N" beside a category "wind" with a level "N"
    names = Layout(tuple(columns), tuple(map(term_of, record.terms))).names
    check_distinct(list(names), f"{place}feature_names", source)


@dataclass(frozen=True)
class FeatureSpec(Document):
    """The columns that are features, in order, and how they become numbers.

    It is checked when it is made, whether from a sample, by hand or from a file.

    Attributes
    ----------
    columns : tuple of Column
    unknown : {"error", "reference"}
        How to treat a value that is not a level of its category: an error, or the reference level.
    terms : tuple of Spline or Interaction
        Terms computed from the columns' features, which follow them.

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
    terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "terms", tuple(self.terms))
        for column in self.columns:
            if not isinstance(column, Column):
                raise InvalidType(Error.NOT_A_COLUMN, value=shown(column))
        for term in self.terms:
            if not isinstance(term, Spline | Interaction):
                raise InvalidType(Error.NOT_A_TERM, value=shown(term))
        check_features(typed(FeaturesRecord, self.body(), "features"), "features")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the d encoded features."""
        return self.layout.names

    @cached_property
    def layout(self) -> Layout:
        """Where the features of columns and of terms stand."""
        return Layout(self.columns, self.terms)

    @property
    def term_features(self) -> dict[str, tuple[str, ...]]:
        """The features of each term, for joint tests.

        A spline is the whole curve, the slope included; ``spline(x), nonlinear`` is its departure
        from a straight line.
        """
        return self.layout.term_features

    @property
    def curve_features(self) -> dict[str, tuple[str, ...]]:
        """The features of each spline, the slope included, and of each product with a spline.

        Tables show a joint test of each in the place of its coefficients.
        """
        splines = {term.name for term in self.terms if isinstance(term, Spline)}
        products = (term for term in self.terms if isinstance(term, Interaction))
        curves = splines | {term.name for term in products if splines.intersection(term.of)}
        return {name: part for name, part in self.term_features.items() if name in curves}

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
            How to treat a missing value: raise a ValueError that names the column and counts the
            rows, or return NaN.

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
        self.layout.derive(out)
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
        splines: Mapping[str, int] | None = None,
        interactions: Sequence[tuple[str, str]] = (),
        missing: Literal["error", "indicator"] = "error",
    ) -> Self:
        """Return a specification derived from some rows.

        Numbers and booleans stay numbers; text and dictionary columns become categories, with
        sorted levels, the first of which is the reference. Levels that are not in the sample are
        unknown: add them to the file manually.

        Parameters
        ----------
        table : pyarrow Table or RecordBatch, pandas or polars frame, or mapping of n values by name
        columns : sequence of str, optional
            The features, in order; by default all columns.
        center : bool
            Whether to centre numbers at their mean in the sample and divide them by their
            standard deviation there.
        max_levels : int
            A category with more levels is refused.
        splines : mapping of str to int, optional
            Degrees of freedom of the curves of some numbers; 1 would be a straight line. Knots are
            quantiles of the sample.
        interactions : sequence of pairs of str
            Columns whose products are also features.
        missing : {"error", "indicator"}
            How to treat missing values in columns in which the sample has some: as an error; or
            impute the mean and add an indicator feature, and make missing a level of a category.
        """
        if missing not in ("error", "indicator"):
            raise InvalidInput(
                Error.NOT_ONE_OF, name="missing", value=missing, choices=["error", "indicator"]
            )
        names = names_of(table) if columns is None else list(columns)
        arrow = as_arrow(table, names)
        indicator = missing == "indicator"
        spec = cls(tuple(guess(arrow.column(n), n, center, max_levels, indicator) for n in names))
        return spec.with_terms(table, splines or {}, interactions)

    def with_terms(
        self,
        sample: Any,
        splines: Mapping[str, int],
        interactions: Sequence[tuple[str, str]] = (),
    ) -> Self:
        """Return the specification with further terms.

        Parameters
        ----------
        sample : pyarrow Table or RecordBatch, frame, or mapping of n values by name
            Its quantiles are the knots.
        splines : mapping of str to int
            Degrees of freedom by number, at least 2.
        interactions : sequence of pairs of str
            Names of columns, or ``spline(column)``.
        """
        kinds = {column.name: column.kind for column in self.columns}
        terms: list[Term] = []
        for name, df in splines.items():
            if kinds.get(name) != "number":
                raise InvalidInput(Error.SPLINE_OF_NO_NUMBER, column=shown(name))
            values = as_arrow(sample, [name]).column(name)
            x = np.concatenate([numbers(chunk, name) for chunk in values.chunks])
            terms.append(Spline(name, knots_of(x, df, name)))
        terms += map(Interaction, interactions)
        return replace(self, terms=(*self.terms, *terms))

    def numbers(self, X: Floats) -> dict[str, Floats]:
        """Return the columns that are numbers, in their own units, from features (n, d).

        Such as the points that sketches of several sites give: a sample for :meth:`with_terms`.
        """
        places = self.layout.of_columns
        return {
            column.name: X[:, places[column.name][0]] * column.scale + column.center
            for column in self.columns
            if column.kind == "number"
        }

    @property
    def base(self) -> Self:
        """The specification without its terms."""
        return replace(self, terms=()) if self.terms else self

    # -- files -------------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version; models carry the same."""
        found = {"columns": [c.document() for c in self.columns], "unknown": self.unknown}
        return found | ({"terms": [term.document() for term in self.terms]} if self.terms else {})

    @classmethod
    def from_record(cls, record: FeaturesRecord) -> Self:
        """Return the specification of a checked record."""
        columns = tuple(map(Column.from_record, record.columns))
        return cls(columns, record.unknown, tuple(map(term_of, record.terms)))

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the specification of a parsed document, checked."""
        record = typed(FeaturesFileRecord, document, source)
        check_features(record, source)
        spec = cls.from_record(record)
        limits.check("features", len(spec.feature_names), source)
        return spec
