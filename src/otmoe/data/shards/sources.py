"""Rows of one data file, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyarrow import csv
from pyarrow.parquet import ParquetFile

from otmoe.data.columns import MARKS
from otmoe.data.shards.dialect import sniffed
from otmoe.data.shards.files import kind_of, locate
from otmoe.data.shards.partitions import PartitionedSource, partitions_of
from otmoe.data.tables import BATCH, check_names, is_text
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_BLOCK = 1 << 20  # bytes of CSV read at a time
_HEAD = 1 << 16  # bytes of CSV that tell what separates columns
_SAMPLE = 10_000  # rows that tell what columns hold


class ParquetSource:
    """A Parquet file.

    Parameters
    ----------
    path : str
        Path or URL.
    """

    def __init__(self, path: str) -> None:
        system, inner = locate(path)
        # Without pre_buffer, a row group is not held in memory whole.
        self._file = ParquetFile(
            system.open_input_file(inner), pre_buffer=False, buffer_size=_BLOCK
        )
        self.names: list[str] = list(self._file.schema_arrow.names)

    @property
    def n_rows(self) -> int:
        """Number of rows, from the file's metadata."""
        return int(self._file.metadata.num_rows)

    @property
    def groups(self) -> list[int]:
        """Rows of each row group."""
        metadata = self._file.metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    def fields(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.Field]:
        """Return names and types of the columns that :meth:`batches` would read."""
        check_names(columns, self.names)
        return [self._file.schema_arrow.field(name) for name in columns]

    def sample(self) -> pa.Table:
        """Return the first rows, all columns."""
        batches = self._file.iter_batches(_SAMPLE, use_threads=False)
        batch = next(batches, None)
        schema = self._file.schema_arrow
        return schema.empty_table() if batch is None else pa.Table.from_batches([batch])

    def batches(
        self,
        columns: Sequence[str],
        texts: Sequence[str] = (),
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read some columns of the rows from start to before stop.

        Parameters
        ----------
        columns : sequence of str
        texts : sequence of str
            Those that are text whatever they look like; a Parquet file knows.
        start : int
        stop : int, optional
            By default the end of the file.
        """
        check_names(columns, self.names)
        stop = self.n_rows if stop is None else stop
        ends = list(accumulate(self.groups, initial=0))
        wanted = [i for i in range(len(ends) - 1) if ends[i + 1] > start and ends[i] < stop]
        if not wanted:
            return
        at = ends[wanted[0]]
        for batch in self._file.iter_batches(
            BATCH, row_groups=wanted, columns=list(columns), use_threads=False
        ):
            first, last = max(start - at, 0), min(stop - at, batch.num_rows)
            if first < last:
                yield batch.slice(first, last - first)
            at += batch.num_rows


class ArrowSource:
    """An Arrow file, which Feather is as well; or a stream of Arrow batches in a file.

    Parameters
    ----------
    path : str
        Path or URL.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._schema = self._open().schema
        self.names: list[str] = list(self._schema.names)

    def _open(self) -> Any:
        system, inner = locate(self._path)
        try:
            return pa.ipc.open_file(system.open_input_file(inner))
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(system.open_input_stream(inner))

    def _all(self) -> Iterator[pa.RecordBatch]:
        reader = self._open()
        if hasattr(reader, "get_batch"):
            return (reader.get_batch(i) for i in range(reader.num_record_batches))
        return iter(reader)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.groups)

    @cached_property
    def groups(self) -> list[int]:
        """Rows of each batch of the file."""
        return [batch.num_rows for batch in self._all()]

    def fields(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.Field]:
        """Return names and types of the columns that :meth:`batches` would read."""
        check_names(columns, self.names)
        return [self._schema.field(name) for name in columns]

    def sample(self) -> pa.Table:
        """Return the first rows, all columns."""
        batch = next(self._all(), None)
        if batch is None:
            return self._schema.empty_table()
        return pa.Table.from_batches([batch.slice(0, _SAMPLE)])

    def batches(
        self,
        columns: Sequence[str],
        texts: Sequence[str] = (),
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read some columns of the rows from start to before stop."""
        check_names(columns, self.names)
        at = 0
        for whole in self._all():
            first, last = max(start - at, 0), whole.num_rows
            if stop is not None:
                last = min(stop - at, last)
            at += whole.num_rows
            for begin in range(first, last, BATCH):
                yield whole.slice(begin, min(BATCH, last - begin)).select(list(columns))


class CsvSource:
    """A CSV file with a header, and quotes where needed.

    Parameters
    ----------
    path : str
        Path or URL; ``.gz`` is unpacked on the way.
    sep : str, optional
        What separates columns; by default comma, semicolon, tab or bar, as the header has it.
    """

    n_rows = None

    def __init__(self, path: str, sep: str | None = None) -> None:
        self._path = path
        system, inner = locate(path)
        with system.open_input_stream(inner) as file:
            text = file.read(_HEAD).decode("utf-8", errors="replace")
        self._dialect = sniffed(text, sep)
        with self._open() as reader:
            self._schema = reader.schema
        self.names: list[str] = list(self._schema.names)

    def _open(
        self, columns: Sequence[str] | None = None, types: Any = None, skip: int = 0
    ) -> csv.CSVStreamingReader:
        system, inner = locate(self._path)
        return csv.open_csv(
            system.open_input_stream(inner),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=_BLOCK, skip_rows_after_names=skip
            ),
            parse_options=csv.ParseOptions(delimiter=self._dialect.sep, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types,
                include_columns=columns,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                decimal_point=self._dialect.decimal,
            ),
        )

    @cached_property
    def groups(self) -> list[int]:
        """Number of rows, in one group; the file is read to count them."""
        name = self.names[:1]
        return [sum(batch.num_rows for batch in self.batches(name, texts=name))]

    def fields(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.Field]:
        """Return names and types of the columns that :meth:`batches` would read."""
        check_names(columns, self.names)
        return [pa.field(name, kind) for name, kind in self._types(columns, texts).items()]

    def sample(self) -> pa.Table:
        """Return the first rows, all columns, of types that suit them."""
        with self._open() as reader:
            batch = next(iter(reader), None)
        if batch is None:
            return self._schema.empty_table()
        return pa.Table.from_batches([batch.slice(0, _SAMPLE)])

    def batches(
        self,
        columns: Sequence[str],
        texts: Sequence[str] = (),
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read some columns of the rows from start to before stop.

        Parameters
        ----------
        columns : sequence of str
        texts : sequence of str
            Those that are text whatever they look like; the others are numbers.
        start : int
        stop : int, optional
            By default the end of the file.
        """
        check_names(columns, self.names)
        with self._open(list(columns), self._types(columns, texts), start) as reader:
            left = stop
            if left is not None:
                left -= start
            batches = iter(reader)
            while left is None or left > 0:
                try:
                    batch = next(batches, None)
                except pa.ArrowInvalid as error:
                    raise self._explained(error) from error
                if batch is None:
                    return
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                yield batch

    def _types(self, columns: Sequence[str], texts: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the types to read columns as; the first rows alone do not determine them."""
        types = {}
        for name in columns:
            guess = self._schema.field(name).type
            kept = is_text(guess) or pa.types.is_temporal(guess) or pa.types.is_boolean(guess)
            types[name] = pa.string() if name in texts else guess if kept else pa.float64()
        return types

    def _explained(self, error: pa.ArrowInvalid) -> ValueError:
        found = re.search(r"CSV column #(\d+).*invalid value '(.*)'", str(error))
        if found is None:
            return error
        name = self.names[int(found[1])]
        if found[2].strip() in MARKS:
            return InvalidInput(Error.STRAY_MARK, column=name, mark=found[2].strip())
        return InvalidInput(Error.NOT_NUMBERS, column=name, kind=repr(found[2][:40]))


Source = ParquetSource | ArrowSource | CsvSource | PartitionedSource
"""A data file that has been opened."""


def open_source(path: str, sep: str | None = None) -> Source:
    """Open a data file; what separates columns matters to CSV alone."""
    kind = kind_of(path)
    source: Source
    if kind == "csv":
        source = CsvSource(path, sep)
    else:
        source = ParquetSource(path) if kind == "parquet" else ArrowSource(path)
    values = partitions_of(path)
    return PartitionedSource(source, values) if values else source


def release() -> None:
    """Give back what Arrow keeps for the next file: fitting comes first."""
    pa.default_memory_pool().release_unused()
