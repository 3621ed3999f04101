"""Summaries of the columns of sites, as counts that may leave a site.

From these a coordinator can define the features that all sites share.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from otmoe.arrays.numerics import Floats
from otmoe.data.columns import stray_mark
from otmoe.data.features import MAX_LEVELS
from otmoe.data.shards.files import find, named, names_for
from otmoe.data.shards.sources import open_source
from otmoe.data.tables import check_names, is_number, is_text, labels, texts
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import OtmoeWarning
from otmoe.text.sentences import Error, Warn


@dataclass(frozen=True)
class SurveyedColumn:
    """A column in the rows of one site.

    Attributes
    ----------
    name : str
    kind : {"number", "text", "time", "other"}
        What it holds; true and false are numbers.
    missing : int or None
        Rows without a value; None where the count is not told.
    levels : mapping of int, or None
        Rows (or people) of each value of a text, the most frequent first; None of other kinds, and
        of texts with too many values to be a category.
    hidden : int
        Values of a text that are not told, because few rows have them.
    distinct : int or None
        How many values a text has.
    """

    name: str
    kind: str
    missing: int | None
    levels: Mapping[str, int] | None = None
    hidden: int = 0
    distinct: int | None = None


@dataclass(frozen=True)
class SurveyedSite:
    """The columns of one site.

    Attributes
    ----------
    site : str
    n_rows : int or None
        Rows, or people where they were counted; None where the count is not told.
    columns : tuple of SurveyedColumn
    """

    site: str
    n_rows: int | None
    columns: tuple[SurveyedColumn, ...]


def survey(
    data: Any,
    *,
    site: str = "all rows",
    site_column: str | None = None,
    max_levels: int = MAX_LEVELS,
    sep: str | None = None,
    allowed: Callable[[str], bool] | None = None,
    id: str | None = None,
) -> tuple[SurveyedSite, ...]:
    """Count what the columns of files hold, site by site; :func:`guarded` hides what is small.

    Files are read once, batch by batch.

    Parameters
    ----------
    data : path, or sequence of paths
        As in :func:`otmoe.shards_from`.
    site : str
        Name of the site, if all rows are of one.
    site_column : str, optional
        Column that says which site a row belongs to.
    max_levels : int
        Values of a text above which they are counted and not listed.
    sep : str, optional
        What separates columns of CSV files; by default as their headers have it.
    allowed : callable, optional
        Says of a column's name whether it may be read; by default all may.
    id : str, optional
        Column that identifies the person of a row: people are then counted instead of rows, and the
        column itself is not surveyed.

    Returns
    -------
    tuple of SurveyedSite
        Sorted by name.
    """
    files = find(data)
    sites: dict[str, _Counts] = {}
    kinds: dict[str, str] = {}
    for file, name in zip(files, names_for(files), strict=True):
        with named(name):
            source = open_source(file, sep)
            roles = [name for name in (site_column, id) if name is not None]
            check_names(roles, source.names)
            used = [n for n in source.names if n in roles or allowed is None or allowed(n)]
            fields = {f.name: f.type for f in source.fields(used)}
            for column, found in fields.items():
                kind = _kind(found)
                if kinds.setdefault(column, kind) != kind and found != pa.null():
                    facts = {"column": column, "kind": kind, "other": kinds[column]}
                    raise InvalidInput(Error.KINDS_DIFFER, **facts)
            words = [column for column in fields if kinds[column] == "text"]
            for batch in source.batches(used, list(dict.fromkeys([*words, *roles]))):
                for place, part in _by_site(batch, site, site_column):
                    sites.setdefault(place, _Counts(id)).add(part, kinds)
    surveyed = {name: kind for name, kind in kinds.items() if name not in (site_column, id)}
    _warn_of_marks([name for name, kind in surveyed.items() if kind == "text"], sites.values())
    return tuple(
        SurveyedSite(place, counts.n_rows, tuple(counts.columns(surveyed, max_levels)))
        for place, counts in sorted(sites.items())
    )


def _warn_of_marks(texts: Iterable[str], sites: Collection[_Counts]) -> None:
    """Warn of columns that would be numbers if it were not for marks such as a dash."""
    notices = []
    for name in texts:
        seen = {cell for counts in sites for cell in counts.cells.get(name, _Tally()).counts}
        mark = stray_mark(value for value in seen if isinstance(value, str))
        if mark is not None:
            notices.append(Warn.MARKS_IN_NUMBERS(column=name, mark=mark))
    if notices:
        warnings.warn(OtmoeWarning("survey", notices), stacklevel=3)


def guarded(found: SurveyedSite, least: int, step: int = 1) -> SurveyedSite:
    """Return a survey without counts of fewer rows than `least`, or sums that reveal them.

    The rows of a column fall into cells: missing, and each level or any value. A cell with fewer
    rows is hidden; and while those hidden have fewer than `least` together, which the total would
    tell, so is the smallest of the others.

    Parameters
    ----------
    found : SurveyedSite
    least : int
        1 hides nothing.
    step : int
        Counts of levels and of missing values are rounded to multiples of this, so that the
        difference of two surveys seldom shows one person. The number of rows is not.
    """
    if found.n_rows is None or found.n_rows < least:
        columns = tuple(SurveyedColumn(c.name, c.kind, None) for c in found.columns)
        return SurveyedSite(found.site, None if found.n_rows else 0, columns)
    kept = (_guarded(column, found.n_rows, least) for column in found.columns)
    return replace(found, columns=tuple(_rounded(column, step) for column in kept))


def _rounded(column: SurveyedColumn, step: int) -> SurveyedColumn:
    def rounded(n: int) -> int:
        return max(step * round(n / step), step) if n else 0

    missing, levels = column.missing, column.levels
    return replace(
        column,
        missing=None if missing is None else rounded(missing),
        levels=None if levels is None else {level: rounded(n) for level, n in levels.items()},
    )


def _guarded(column: SurveyedColumn, n_rows: int, least: int) -> SurveyedColumn:
    assert column.missing is not None  # of what has been counted
    levels = column.levels
    cells: dict[Any, int] = {None: column.missing}
    if levels is None:
        cells[True] = n_rows - column.missing  # any value
    else:
        cells |= levels
    hidden = _hidden(cells, least)
    missing = None if None in hidden else column.missing
    if levels is None:
        return replace(column, missing=None if hidden else missing)
    kept = {level: n for level, n in levels.items() if level not in hidden}
    return replace(column, missing=missing, levels=kept, hidden=len(levels) - len(kept))


def _hidden(cells: Mapping[Any, int], least: int) -> set[Any]:
    """Return the cells of a total that are not told; an empty one tells of no row."""
    order = sorted((name for name in cells if cells[name]), key=lambda name: cells[name])
    hidden = {name for name in order if cells[name] < least}
    for name in order:
        if not hidden or sum(cells[other] for other in hidden) >= least:
            break
        hidden.add(name)
    return hidden


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_number(kind) or pa.types.is_null(kind):
        return "number"
    if is_text(kind):
        return "text"
    return "time" if pa.types.is_temporal(kind) else "other"


def _by_site(
    batch: pa.RecordBatch, site: str, column: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    if column is None:
        yield site, batch
        return
    places, absent = labels(batch.column(column), column)
    if absent.any():
        raise InvalidInput(Error.SITE_MISSING, column=column, count=int(absent.sum()))
    for place in np.unique(places).tolist():
        yield place, batch.filter(pa.array(places == place))


@dataclass
class _Tally:
    """How many rows, or people if they are identified, fall into each cell.

    A cell is a level, None for a missing value, or True for any value of a column that is not text.
    """

    rows: Counter[Any] = field(default_factory=Counter)
    people: set[tuple[Any, str]] = field(default_factory=set)

    def add(self, cells: pa.Array, whose: pa.Array | None) -> None:
        if whose is None:
            for found in cells.value_counts():
                self.rows[found["values"].as_py()] += found["counts"].as_py()
        else:
            pairs = pa.table({"cell": cells, "whose": whose}).group_by(["cell", "whose"])
            found = pairs.aggregate([]).to_pydict()
            self.people.update(zip(found["cell"], found["whose"], strict=True))

    def add_missing(self, other: _Tally) -> None:
        """Add what has no value because a file has no such column."""
        self.rows[None] += other.rows.total()
        self.people.update((None, person) for _, person in other.people)

    @property
    def counts(self) -> Counter[Any]:
        return self.rows + Counter(cell for cell, _ in self.people)

    @property
    def total(self) -> int:
        return self.rows.total() + len({person for _, person in self.people})


@dataclass
class _Counts:
    """What has been counted of one site."""

    id: str | None = None
    cells: dict[str, _Tally] = field(default_factory=dict)
    by_columns: dict[frozenset[str], _Tally] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, kinds: Mapping[str, str]) -> None:
        whose = None if self.id is None else _people(batch.column(self.id), self.id)
        names = frozenset(batch.schema.names)
        every = pa.array(np.ones(batch.num_rows, bool))
        self.by_columns.setdefault(names, _Tally()).add(every, whose)
        for name in batch.schema.names:
            column = batch.column(name)
            if kinds[name] == "text":
                cells = texts(column, name)
            else:
                cells = pa.array(np.ones(batch.num_rows, bool), mask=_absent(column))
            if name != self.id:
                self.cells.setdefault(name, _Tally()).add(cells, whose)

    @property
    def n_rows(self) -> int:
        everybody = _Tally()
        for some in self.by_columns.values():
            everybody.add_missing(some)
        return everybody.total

    def columns(self, kinds: Mapping[str, str], max_levels: int) -> Iterator[SurveyedColumn]:
        for name, kind in kinds.items():
            tally = self.cells.setdefault(name, _Tally())
            for names, some in self.by_columns.items():
                if name not in names:
                    tally.add_missing(some)
            levels = tally.counts
            missing = levels.pop(None, 0)
            if kind != "text":
                yield SurveyedColumn(name, kind, missing)
            elif len(levels) > max_levels:
                yield SurveyedColumn(name, kind, missing, distinct=len(levels))
            else:
                listed = dict(levels.most_common())
                yield SurveyedColumn(name, kind, missing, listed, distinct=len(levels))


def _people(column: pa.Array, name: str) -> pa.Array:
    """Return the person of each row, as text; refuse rows without one."""
    found, absent = labels(column, name)
    if absent.any():
        row, count = int(np.flatnonzero(absent)[0]), int(absent.sum())
        raise InvalidInput(Error.GROUP_MISSING, name=f"column {name!r}", row=row, count=count)
    return pa.array(found)


def _absent(column: pa.Array) -> Floats:
    """Return where a value is missing, also where a number is none."""
    return pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
