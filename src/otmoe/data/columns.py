"""One column of a table, and the features it becomes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Self

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats
from otmoe.data.tables import codes, described, is_number, is_text, numbers, texts
from otmoe.text.errors import InvalidInput, fail
from otmoe.text.records import List, Name, Number, Positive, Record, check_distinct
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown


class ColumnRecord(Record):
    """The fields of a column. Which it has depends on its kind."""

    name: Name
    kind: Literal["number", "category"]
    center: Number | None = None
    scale: Positive | None = None
    levels: List[Name] | None = None
    reference: Name | None = None
    impute: Number | None = None
    missing_level: Name | None = None


def check_column(record: ColumnRecord, source: str, path: str) -> None:
    """Check that the fields of a column agree.

    Parameters
    ----------
    record : ColumnRecord
    source, path : str
        Where it comes from, and its place there; an error begins with them.
    """
    foreign = {
        "category": ("center", "scale", "impute"),
        "number": ("levels", "reference", "missing_level"),
    }
    for name in foreign[record.kind]:
        if getattr(record, name) is not None:
            fail(source, f"{path}.{name}", Error.WRONG_KIND_OF_COLUMN, kind=record.kind)
    if record.kind == "number":
        return
    if record.levels is None or len(record.levels) < 2:
        fail(source, f"{path}.levels", Error.FEW_LEVELS)
    check_distinct(record.levels, f"{path}.levels", source)
    for name in ("reference", "missing_level"):
        value = getattr(record, name)
        if value is not None and value not in record.levels:
            fail(source, f"{path}.{name}", Error.REFERENCE_UNKNOWN, value=shown(value))


@dataclass(frozen=True)
class Column:
    """One column of a table, and the features it becomes.

    Attributes
    ----------
    name : str
    kind : {"number", "category"}
    levels : tuple of str
        Of a category: its values, in order.
    reference : str, optional
        The level that is all zeros, by default the first.
    center, scale : float
        Of a number: the feature is (x - center) / scale.
    impute : float, optional
        Of a number: what stands for a missing value, in the units of the column; a second feature,
        ``column=missing``, is one there. Without it, a missing value is a mistake.
    missing_level : str, optional
        Of a category: the level of a missing value.
    """

    name: str
    kind: Literal["number", "category"] = "number"
    levels: tuple[str, ...] = ()
    reference: str | None = None
    center: float = 0.0
    scale: float = 1.0
    impute: float | None = None
    missing_level: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))

    @property
    def shown_levels(self) -> tuple[str, ...]:
        """The levels that have a feature of their own: all but the reference."""
        reference = self.levels[0] if self.reference is None else self.reference
        return tuple(level for level in self.levels if level != reference)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features: that of the column, or ``column=level``."""
        if self.kind == "number":
            return (self.name,) if self.impute is None else (self.name, f"{self.name}=missing")
        return tuple(f"{self.name}={level}" for level in self.shown_levels)

    def document(self) -> dict[str, Any]:
        """Return the column as it stands in a file."""
        document: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if (self.center, self.scale) != (0.0, 1.0):
            document |= {"center": self.center, "scale": self.scale}
        if self.levels:
            document["levels"] = list(self.levels)
        if self.reference is not None:
            document["reference"] = self.reference
        if self.impute is not None:
            document["impute"] = self.impute
        if self.missing_level is not None:
            document["missing_level"] = self.missing_level
        return document

    @classmethod
    def from_record(cls, record: ColumnRecord) -> Self:
        """Return the column of a checked record."""
        return cls(
            record.name,
            record.kind,
            tuple(record.levels or ()),
            record.reference,
            0.0 if record.center is None else record.center,
            1.0 if record.scale is None else record.scale,
            record.impute,
            record.missing_level,
        )

    def fill(self, values: pa.Array, out: Floats) -> Counter[str]:
        """Write n values as features, NaN where missing, and count those that are not levels.

        Parameters
        ----------
        values : pyarrow Array of length n
        out : ndarray of shape (n, number of features)
        """
        if self.kind == "number":
            out[:, 0] = numbers(values, self.name)
            if self.impute is not None:
                out[:, 1] = np.isnan(out[:, 0])
                out[out[:, 1] == 1, 0] = self.impute
            if (self.center, self.scale) != (0.0, 1.0):
                out[:, 0] -= self.center
                out[:, 0] /= self.scale
            return Counter()
        found, others = codes(values, self.levels, self.name)
        if self.missing_level is not None:
            found = np.where(found == -2, self.levels.index(self.missing_level), found)
        for j, level in enumerate(self.shown_levels):
            out[:, j] = found == self.levels.index(level)
        out[found == -2] = np.nan
        return others


MISSING = "missing"
"""The level of missing values, unless the category has one of that name."""


def guess(
    values: pa.ChunkedArray, name: str, center: bool, max_levels: int, indicator: bool = False
) -> Column:
    """Return the column that a sample of n values suggests; see `FeatureSpec.from_sample`."""
    kind = values.type
    if is_number(kind):
        return _guess_number(values, name, center, indicator)
    if pa.types.is_null(kind) or values.null_count == len(values):
        _refuse_empty(values, name)
    if not is_text(kind) and not pa.types.is_dictionary(kind):
        raise InvalidInput(Error.NO_FEATURE, column=name, kind=described(kind))
    levels = _levels(values, name)
    check_marks(levels, name)
    if len(levels) > max_levels:
        raise InvalidInput(Error.MANY_LEVELS, column=name, levels=len(levels), most=max_levels)
    gap = None
    if indicator and values.null_count:
        gap = MISSING if MISSING not in levels else f"({MISSING})"
        levels = (*levels, gap)
    if len(levels) < 2:
        raise InvalidInput(Error.ONE_LEVEL, column=name, value=shown(levels[0]))
    return Column(name, "category", levels, levels[0], missing_level=gap)


MARKS = ("-", "--", "---", ".", "..", "...", "?", "*", "#", "/", "\u2013", "\u2014")
"""What people write in a column of numbers where a value is missing."""


def check_marks(values: Iterable[str], name: str) -> None:
    """Refuse a column of numbers that is text because of marks for missing values.

    Parameters
    ----------
    values : iterable of str
        Those that occur.
    name : str
    """
    mark = stray_mark(values)
    if mark is not None:
        raise InvalidInput(Error.STRAY_MARK, column=name, mark=mark)


def stray_mark(values: Iterable[str]) -> str | None:
    """Return the mark for missing values among texts that are numbers otherwise, if there is one.

    Examples
    --------
    >>> stray_mark(["27", "-", "32.5"]), stray_mark(["27", "32.5"]), stray_mark(["-", "Lyon"])
    ('-', None, None)
    """
    marks, others = [], 0
    for value in map(str.strip, values):
        if value in MARKS:
            marks.append(value)
        elif not _NUMBER.fullmatch(value):
            return None
        else:
            others += 1
    return marks[0] if marks and others else None


_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")


def _guess_number(values: pa.ChunkedArray, name: str, center: bool, indicator: bool) -> Column:
    x = np.concatenate([np.empty(0), *(numbers(chunk, name) for chunk in values.chunks)])
    gaps = indicator and bool(np.isnan(x).any())
    x = x[np.isfinite(x)]
    if len(x) == 0:
        _refuse_empty(values, name)
    impute = float(x.mean()) if gaps else None
    if not center:
        return Column(name, impute=impute)
    sd = float(x.std())
    return Column(name, center=float(x.mean()), scale=sd if sd > 0 else 1.0, impute=impute)


def _refuse_empty(values: pa.ChunkedArray, name: str) -> NoReturn:
    if len(values) == 0:
        raise InvalidInput(Error.SAMPLE_EMPTY)
    raise InvalidInput(Error.SAMPLE_LACKS_COLUMN, column=name, rows=len(values))


def _levels(values: pa.ChunkedArray, name: str) -> tuple[str, ...]:
    """Return the values of a column, sorted; those that a dictionary declares belong to it."""
    found: set[str | None] = set()
    for chunk in values.chunks:
        part = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk.unique()
        found.update(texts(part, name).to_pylist())
    levels = [level for level in found if level is not None]
    whole = pa.types.is_dictionary(values.type) and pa.types.is_integer(values.type.value_type)
    return tuple(sorted(levels, key=int) if whole else sorted(levels))
