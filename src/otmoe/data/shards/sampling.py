"""Some rows of data files: the first, to tell what columns hold; or a draw of their features."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec
from otmoe.data.shards.files import find, named, names_for
from otmoe.data.shards.sources import open_source
from otmoe.data.tables import first_line
from otmoe.data.tally import Tally
from otmoe.text.arguments import generator
from otmoe.text.errors import InvalidInput, ShardError
from otmoe.text.sentences import Error

_ROWS = 100_000  # of all files together, that levels and units are guessed from


def sample_rows(data: Any, n_rows: int = _ROWS, sep: str | None = None) -> pa.Table:
    """Return the first rows of every file, all columns, for :meth:`FeatureSpec.from_sample`.

    A level that occurs in some files only is then known, unless it is rare in them.

    Parameters
    ----------
    data : path, or sequence of paths
        As in :func:`otmoe.shards_from`.
    n_rows : int
        Rows in all, in equal parts; at least 100 of each file, and at most 10,000.
    sep : str, optional
        What separates columns of CSV files; by default as their headers have it.

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
            part = open_source(file, sep).sample().slice(0, each)
            first = parts[0].column_names if parts else part.column_names
            missing = [column for column in first if column not in part.column_names]
            if missing:
                raise InvalidInput(Error.FILE_LACKS_COLUMN, column=missing[0], other=names[0])
            parts.append(part.select(first))
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise ShardError(Error.FILES_DISAGREE, reason=first_line(error)) from error


def draw_features(
    data: Any,
    features: FeatureSpec,
    n_rows: int,
    *,
    missing: Literal["error", "drop"] = "error",
    random_state: Any = 0,
) -> tuple[Floats, int]:
    """Draw rows of covariates from files, uniformly at random.

    The files are read once, and only the rows drawn and a batch are kept in memory.

    Parameters
    ----------
    data : path, or sequence of paths
        As in :func:`otmoe.shards_from`; a target is not needed.
    features : FeatureSpec
    n_rows : int
        Rows to draw, without replacement; if there are fewer, all are returned, in their order.
    missing : {"error", "drop"}
        What to do about rows in which a feature is missing.
    random_state : int, Generator or None

    Returns
    -------
    X : ndarray of shape (s, d)
    total : int
        Rows from which they were drawn.
    """
    rng = generator(random_state)
    files = find(data)
    X, keys, total = np.empty((0, len(features.feature_names))), np.empty(0), 0
    texts = [column.name for column in features.columns if column.kind == "category"]
    for file, name in zip(files, names_for(files), strict=True):
        with named(name):
            tally = Tally()
            for batch in open_source(file).batches(list(features.names), texts):
                part = np.empty((batch.num_rows, X.shape[1]))
                features.encode_batch(batch, tally, part)
                part = part[~np.isnan(part).any(axis=1)]
                total += len(part)
                # The rows with the smallest of random keys are a draw without replacement.
                X, keys = np.concatenate([X, part]), np.append(keys, rng.random(len(part)))
                if len(X) > n_rows:
                    kept = np.sort(np.argpartition(keys, n_rows)[:n_rows])
                    X, keys = X[kept], keys[kept]
            tally.check(missing, features.unknown)
    return X, total
