"""Tables written to a data file, batch by batch, whole or not at all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import csv
from pyarrow.parquet import ParquetWriter

from otmoe.data.shards.files import kind_of
from otmoe.text.outputs import whole

_GROUP = 1 << 17  # rows of a row group


def write_batches(
    path: str | os.PathLike[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> int:
    """Write batches to Parquet, CSV or Arrow, as the name says, and return the number of rows.

    If anything fails, also in making the batches, an older file stays as it was.

    Parameters
    ----------
    path : str or path
        Its folder has to exist. ``.csv.gz`` is packed on the way.
    schema : pyarrow Schema
    batches : iterable of RecordBatch
    """
    name = os.fspath(path)
    kind = kind_of(name)
    n_rows = 0
    with whole(path) as file, _writer(file, name, kind, schema) as writer:
        for table in _groups(schema, batches):
            writer.write_table(table)
            n_rows += table.num_rows
    return n_rows


@contextmanager
def _writer(file: BinaryIO, name: str, kind: str, schema: pa.Schema) -> Iterator[Any]:
    if kind == "parquet":
        with ParquetWriter(file, schema) as writer:
            yield writer
    elif kind == "arrow":
        with pa.ipc.new_file(file, schema) as writer:
            yield writer
    elif name.lower().endswith(".gz"):
        with (
            gzip.GzipFile("", "wb", fileobj=file) as packed,
            csv.CSVWriter(packed, schema) as writer,
        ):
            yield writer
    else:
        with csv.CSVWriter(file, schema) as writer:
            yield writer


def _groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches, so that row groups are not too small."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= _GROUP:
            yield pa.Table.from_batches(held, schema)
            held = []
    if held:
        yield pa.Table.from_batches(held, schema)
