"""Columns that stand in the names of folders, as in ``site=a/part-0.parquet``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from otmoe.data.tables import check_names


def partitions_of(path: str) -> dict[str, str]:
    """Return the columns that the folders of a path name, with the value that each row has.

    Examples
    --------
    >>> partitions_of("/data/year=2024/site=Saint%20Lo/part-0.parquet")
    {'year': '2024', 'site': 'Saint Lo'}
    """
    folders = path.partition("?")[0].split("/")[:-1]
    found = (re.fullmatch(r"([A-Za-z_]\w*)=(.+)", folder) for folder in folders)
    return {match[1]: unquote(match[2]) for match in found if match}


class PartitionedSource:
    """A data file with the columns that its folders name; one that the file has itself counts.

    Parameters
    ----------
    source : source of rows
    values : dict of str
        Value of every row, by column.
    """

    def __init__(self, source: Any, values: dict[str, str]) -> None:
        self._source = source
        self._values = {name: v for name, v in values.items() if name not in source.names}
        self.names: list[str] = [*source.names, *self._values]

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where that is known."""
        return self._source.n_rows

    @property
    def groups(self) -> list[int]:
        """Rows of each group."""
        return self._source.groups

    def fields(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.Field]:
        """Return names and types of the columns that :meth:`batches` would read."""
        check_names(columns, self.names)
        inner = [name for name in columns if name not in self._values]
        known = {field.name: field for field in self._source.fields(inner, texts)}
        return [known.get(name) or pa.field(name, pa.string()) for name in columns]

    def sample(self) -> pa.Table:
        """Return the first rows, all columns."""
        found = self._source.sample()
        for name, value in self._values.items():
            found = found.append_column(name, pa.array([value] * found.num_rows, pa.string()))
        return found

    def batches(
        self,
        columns: Sequence[str],
        texts: Sequence[str] = (),
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read some columns of the rows from start to before stop."""
        check_names(columns, self.names)
        inner = [name for name in columns if name not in self._values] or self._source.names[:1]
        for batch in self._source.batches(inner, texts, start, stop):
            found = {
                name: pa.array([self._values[name]] * batch.num_rows, pa.string())
                if name in self._values
                else batch.column(name)
                for name in columns
            }
            yield pa.RecordBatch.from_pydict(found)
