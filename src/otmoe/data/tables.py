"""Tables of any kind as Arrow batches, and Arrow columns as numbers, text or levels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from array_api_compat import is_array_api_obj

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.sentences import Error

BATCH = 1 << 13
"""Rows of a table that are read or encoded at a time, few enough to stay in cache."""

_TEXT = pa.large_string()


def is_table(data: Any) -> bool:
    """Say whether something has named columns: an Arrow table, a frame, or a mapping of arrays."""
    return isinstance(data, pa.Table | pa.RecordBatch | Mapping) or (
        hasattr(type(data), "columns") and hasattr(type(data), "__getitem__")
    )


def names_of(table: Any) -> list[str]:
    """Return the names of a table's columns."""
    if not is_table(table):
        raise InvalidType(Error.NOT_A_TABLE, kind=type(table).__name__)
    if hasattr(table, "collect"):
        raise InvalidType(Error.LAZY_FRAME)
    if isinstance(table, pa.Table | pa.RecordBatch):
        return list(table.schema.names)
    return list(table if isinstance(table, Mapping) else table.columns)


def check_names(wanted: Sequence[str], there: Sequence[Any]) -> None:
    """Refuse columns that are not there, or there twice."""
    for name in wanted:
        if name not in there:
            raise _no_column(name, [str(other) for other in there])
        if list(there).count(name) > 1:
            raise InvalidInput(Error.COLUMN_TWICE, column=name)


def _no_column(name: str, there: Sequence[str]) -> InvalidInput:
    """Return the error about a column that is not there, with the likeliest that is."""
    if len(there) == 1 and re.search(r"[^\w .()%-]", there[0]):
        return InvalidInput(Error.ONE_COLUMN, column=name, only=there[0][:60])
    same = {other.casefold(): other for other in there}
    near = get_close_matches(name.casefold(), same, n=1)
    hint = f"did you mean {same[near[0]]!r}? " if near else ""
    known = ", ".join(map(repr, there[:20])) + (", ..." if len(there) > 20 else "")
    return InvalidInput(Error.NO_COLUMN, column=name, columns=known or "none at all", hint=hint)


def as_arrow(table: Any, columns: Sequence[str]) -> pa.Table:
    """Return some columns of a table as an Arrow table.

    Parameters
    ----------
    table : pyarrow Table or RecordBatch, pandas or polars frame, or mapping of n values by name
    columns : sequence of str
    """
    columns = list(columns)
    check_names(columns, names_of(table))
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return table.select(columns)
    try:
        if isinstance(table, Mapping):
            return pa.table({name: array(table[name], name) for name in columns})
        part = table[columns]
        if hasattr(part, "iloc"):  # pandas has an index, which is not a column
            return pa.Table.from_pandas(part, preserve_index=False)
        return pa.table(part)
    except pa.ArrowException as error:
        raise InvalidInput(Error.TABLE_UNREADABLE, reason=first_line(error)) from error


def array(values: Any, name: str) -> pa.Array:
    """Return n values of any kind as an Arrow array."""
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if is_array_api_obj(values):
        values = to_numpy(values)
    if getattr(values, "ndim", 1) != 1:
        raise InvalidInput(Error.NOT_A_VECTOR, name=f"column {name!r}", shape=values.shape)
    return pa.array(values, from_pandas=True)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, without its full stop."""
    many = isinstance(error, pa.ArrowException) and error.args  # from pandas, it has two parts
    text = str(error.args[0]) if many else str(error)
    return next(iter(text.splitlines()), type(error).__name__).rstrip(". ")


def is_number(kind: pa.DataType) -> bool:
    """Say whether a type counts as a number: whole, fractional, decimal, true or false."""
    types = pa.types
    return any(
        test(kind)
        for test in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    )


def is_text(kind: pa.DataType) -> bool:
    """Say whether a type is text, or a dictionary of texts."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def described(kind: pa.DataType) -> str:
    """Say in words what a column of some type holds."""
    if is_text(kind):
        return "text"
    if pa.types.is_temporal(kind):
        return f"dates or times ({kind})"
    if pa.types.is_nested(kind):
        return f"lists or objects ({kind})"
    return f"values of type {kind}"


def _decoded(column: pa.Array) -> pa.Array:
    """Return a dictionary column as its values; any other column as it is."""
    if not pa.types.is_dictionary(column.type):
        return column
    values = column.dictionary
    return (values.cast(_TEXT) if is_text(values.type) else values).take(column.indices)


def numbers(column: pa.Array, name: str) -> Floats:
    """Return a column as float64 of shape (n,), NaN where a value is missing."""
    column = _decoded(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not is_number(column.type):
        raise InvalidInput(Error.NOT_NUMBERS, column=name, kind=described(column.type))
    if column.type != pa.float64():
        column = pc.cast(column, pa.float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)


def texts(column: pa.Array, name: str) -> pa.Array:
    """Return a column as Arrow text of length n, null where a value is missing.

    Whole numbers and truth values become text as well, so that codes can be categories.
    """
    column = _decoded(column)
    kind = column.type
    if pa.types.is_floating(kind):  # what a frame makes of whole numbers with gaps
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        try:
            column = pc.cast(column, pa.int64())
        except pa.ArrowInvalid:
            raise InvalidInput(Error.FRACTIONS, column=name) from None
    elif not (
        is_text(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    ):
        raise InvalidInput(Error.NOT_A_CATEGORY, column=name, kind=described(kind))
    return pc.cast(column, _TEXT)


def codes(column: pa.Array, levels: Sequence[str], name: str) -> tuple[Floats, Counter[str]]:
    """Return which level each value is.

    Returns
    -------
    codes : ndarray of int of shape (n,)
        Place among the levels; -1 for other values, -2 where a value is missing.
    others : Counter
        Values that are not levels, and how often they occur.
    """
    values = texts(column, name)
    found = pc.index_in(values, value_set=pa.array(levels, _TEXT))
    result = found.fill_null(-1).to_numpy(zero_copy_only=False).copy()
    result[values.is_null().to_numpy(zero_copy_only=False)] = -2
    others = values.filter(pa.array(result == -1)).value_counts()
    return result, Counter({str(item["values"]): item["counts"].as_py() for item in others})


def labels(column: pa.Array, name: str) -> tuple[Floats, Floats]:
    """Return a column as text of shape (n,), and where a value is missing."""
    encoded = texts(column, name).dictionary_encode()
    missing = encoded.is_null().to_numpy(zero_copy_only=False)
    found = np.array([*encoded.dictionary.to_pylist(), ""], dtype=str)
    return found[encoded.indices.fill_null(len(found) - 1).to_numpy(zero_copy_only=False)], missing
