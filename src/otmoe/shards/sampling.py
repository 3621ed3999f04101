"""Some rows of every data file, to tell what the columns hold."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from otmoe.shards.files import ShardError, find, named, names_for
from otmoe.shards.sources import open_source
from otmoe.tables import first_line

_ROWS = 100_000


def sample_rows(data: Any, n_rows: int = _ROWS) -> pa.Table:
    """Return the first rows of every file, all columns, for :meth:`FeatureSpec.from_sample`.

    A level that occurs in some files only is then known, unless it is rare in them.

    Parameters
    ----------
    data : path, or sequence of paths
        As in :func:`otmoe.shards_from`.
    n_rows : int
        Rows in all, in equal parts; at least 100 of each file, and at most 10,000.

    Returns
    -------
    pyarrow Table
    """
    files = find(data)
    names = names_for(files)
    each = max(n_rows // len(files), 100)
    parts: list[pa.Table] = []
    for file, name in zip(files, names, strict=True):
        with named(name):
            part = open_source(file).sample().slice(0, each)
            first = parts[0].column_names if parts else part.column_names
            missing = [column for column in first if column not in part.column_names]
            if missing:
                raise ValueError(
                    f"there is no column {missing[0]!r}, which {names[0]!r} has; mend it, or leave "
                    "the file out."
                )
            parts.append(part.select(first))
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise ShardError(
            f"the files do not agree on their columns: {first_line(error)}; mend them."
        ) from error
