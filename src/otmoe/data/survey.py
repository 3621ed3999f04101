"""What the columns of some sites hold, as counts that may leave a site.

A coordinator who knows them can write the features that all sites share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from otmoe.arrays.numerics import Floats
from otmoe.data.features import MAX_LEVELS
from otmoe.data.shards.files import find, named, names_for
from otmoe.data.shards.sources import open_source
from otmoe.data.tables import check_names, is_number, is_text, labels, texts
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

LEAST = 10
"""Rows below which a count is not told."""


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
        Rows of each value of a text, the most frequent first; None of other kinds, and of texts
        with too many values to be a category.
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
        None where the count is not told.
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
            if site_column is not None:
                check_names([site_column], source.names)
            fields = {f.name: f.type for f in source.fields(source.names)}
            for column, found in fields.items():
                kind = _kind(found)
                if kinds.setdefault(column, kind) != kind and found != pa.null():
                    facts = {"column": column, "kind": kind, "other": kinds[column]}
                    raise InvalidInput(Error.KINDS_DIFFER, **facts)
            words = [column for column in fields if kinds[column] == "text"]
            for batch in source.batches(
                source.names, [*words, *([site_column] if site_column else [])]
            ):
                for place, part in _by_site(batch, site, site_column):
                    sites.setdefault(place, _Counts()).add(part, kinds)
    return tuple(
        SurveyedSite(place, counts.n_rows, tuple(counts.columns(kinds, site_column, max_levels)))
        for place, counts in sorted(sites.items())
    )


def guarded(found: SurveyedSite, least: int = LEAST) -> SurveyedSite:
    """Return a survey without counts of fewer rows than `least`, nor sums that give them away.

    The rows of a column fall into cells: missing, and each level or any value. A cell with fewer
    rows is hidden; and while those hidden have fewer than `least` together, which the total would
    tell, so is the smallest of the others.

    Parameters
    ----------
    found : SurveyedSite
    least : int
        1 hides nothing.
    """
    if found.n_rows is None or found.n_rows < least:
        columns = tuple(SurveyedColumn(c.name, c.kind, None) for c in found.columns)
        return SurveyedSite(found.site, None if found.n_rows else 0, columns)
    n = found.n_rows
    return replace(found, columns=tuple(_guarded(column, n, least) for column in found.columns))


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
class _Counts:
    """What has been counted of one site."""

    n_rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    there: Counter[str] = field(default_factory=Counter)
    levels: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, kinds: Mapping[str, str]) -> None:
        self.n_rows += batch.num_rows
        for name in batch.schema.names:
            column = batch.column(name)
            self.there[name] += batch.num_rows
            self.missing[name] += int(_absent(column).sum())
            if kinds[name] == "text":
                values = texts(column, name).drop_null().value_counts()
                counts = {str(item["values"]): item["counts"].as_py() for item in values}
                self.levels.setdefault(name, Counter()).update(counts)

    def columns(
        self, kinds: Mapping[str, str], site_column: str | None, max_levels: int
    ) -> Iterator[SurveyedColumn]:
        for name, kind in kinds.items():
            if name == site_column:
                continue
            missing = self.missing[name] + self.n_rows - self.there[name]  # a file may lack it
            levels = self.levels.get(name, Counter()) if kind == "text" else None
            distinct = None if levels is None else len(levels)
            if levels is not None and len(levels) > max_levels:
                levels = None
            listed = None if levels is None else dict(levels.most_common())
            yield SurveyedColumn(name, kind, missing, listed, distinct=distinct)


def _absent(column: pa.Array) -> Floats:
    """Return where a value is missing, also where a number is none."""
    return pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
