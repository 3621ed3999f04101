"""Rows of a shard, gathered batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
import pyarrow as pa

from otmoe.arrays.numerics import Floats, row_blocks
from otmoe.data.features import FeatureSpec
from otmoe.data.responses import Column, columns_of, read_responses
from otmoe.data.tables import is_text, labels, numbers
from otmoe.data.tally import Tally
from otmoe.data.terms import Layout
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Error, Warn


@dataclass(frozen=True)
class ShardRows:
    """The rows of a shard.

    Attributes
    ----------
    X : ndarray of float64 of shape (n, d)
    y : ndarray of shape (n,), or (n, C) for successes and failures or several responses
        Numbers as float64, class labels as text.
    weight : ndarray of float64 of shape (n,), optional
    dropped : int
        Rows that were left out because a value is missing.
    offset : ndarray of shape (n,), optional
        Known part of the experts' linear predictors.
    groups : ndarray of str of shape (n,), optional
        Label of the group of each row, where the shard was asked for it.
    ids : ndarray of str of shape (n,), optional
        Whose each row is, where the shard was asked for it.
    missing : mapping of int
        Rows in which a column is missing, by its name, where some were left out.
    response_names : tuple of str
        Names of several responses; none where there is one.
    """

    X: Floats
    y: Floats
    weight: Floats | None = None
    dropped: int = 0
    offset: Floats | None = None
    groups: Floats | None = None
    ids: Floats | None = None
    missing: Mapping[str, int] = field(default_factory=dict)
    response_names: tuple[str, ...] = ()


def rows_dropped(rows: int, kept: int, missing: Mapping[str, int]) -> Notice:
    """Return what to say about rows that were left out.

    Parameters
    ----------
    rows, kept : int
        Rows left out, and the others.
    missing : mapping of int
        Rows in which a column is missing, by its name.
    """
    return Warn.ROWS_DROPPED(rows=rows, total=rows + kept, columns=most_missing(missing))


def most_missing(missing: Mapping[str, int]) -> str:
    """Return in which columns most is missing, as a sentence has it."""
    most = sorted(missing, key=lambda name: (-missing[name], name))
    few = [f"{name} in {missing[name]:,}" for name in most if missing[name]]
    return f" ({listed(few, 3)})" if few else ""


class Gathered:
    """Rows gathered batch by batch, into one array where their number is known.

    Parameters
    ----------
    responses : sequence of Column
    weight : str or None
    as_text : bool
        Whether the target is text.
    layout : Layout
        Where the features stand; those of terms are computed once all others are there.
    n_rows : int or None
    groups, ids : str, optional
        Columns of labels to be read with the target.
    offset : str, optional
        Column of the known part of the linear predictors.
    """

    def __init__(
        self,
        responses: Sequence[Column],
        weight: str | None,
        as_text: bool,
        layout: Layout,
        n_rows: int | None,
        groups: str | None = None,
        offset: str | None = None,
        ids: str | None = None,
    ) -> None:
        self.responses, self.weight_name, self.as_text = responses, weight, as_text
        self.layout, self.n_features, self.n_rows = layout, layout.n_features, n_rows
        self.tally = Tally()
        self.end = 0  # of the features that have been begun
        # Without a number, every batch has an array of its own.
        self.blocks = [np.empty((0 if n_rows is None else n_rows, self.n_features))]
        n_columns = len(columns_of(responses))
        shape = 0 if n_columns == 1 else (0, n_columns)
        self.y = [np.empty(shape, dtype=str if as_text else np.float64)]
        self.weight, self.offset, self.offset_name = [np.empty(0)], [np.empty(0)], offset
        self.absent = [np.empty(0, dtype=bool)]
        self.groups_name, self.ids_name = groups, ids
        self.labels: dict[str, list[tuple[Floats, Floats]]] = {
            name: [(np.empty(0, dtype=str), np.empty(0, dtype=bool))]
            for name in (groups, ids)
            if name is not None
        }

    def begin(self, features: FeatureSpec) -> None:
        """Go back to the first row, for the next few features.

        Target and weights come with the first of them. Unless the number of rows is known, all
        features come at once.
        """
        if self.end:
            self._check_number()
        self.features, self.start = features, self.end
        self.end += len(features.feature_names)
        self.tally.n_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode a batch of rows."""
        X = self._room(batch.num_rows)
        if self.start == 0:
            self._add_target(batch)
        self.features.encode_batch(batch, self.tally, X[:, self.start : self.end])

    def _add_target(self, batch: pa.RecordBatch) -> None:
        y, absent = response_values(batch, self.responses, self.tally, self.as_text)
        if self.weight_name is not None:
            weight = weights(batch.column(self.weight_name), self.weight_name, self.tally)
            absent = absent | np.isnan(weight)
            self.weight.append(weight)
        if self.offset_name is not None:
            offset = tallied(batch.column(self.offset_name), self.offset_name, self.tally)
            absent = absent | np.isnan(offset)
            self.offset.append(offset)
        for name, found in self.labels.items():
            found.append(labels(batch.column(name), name))
        self.y.append(y)
        self.absent.append(absent)

    def _room(self, n: int) -> Floats:
        """Return where the next n rows of features go, (n, d)."""
        if self.n_rows is None:
            self.blocks.append(np.empty((n, self.n_features)))
            return self.blocks[-1]
        at = self.tally.n_rows
        if at + n > self.n_rows:
            self._changed(at + n)
        return self.blocks[0][at : at + n]

    def rows(self, missing: str, unknown: str) -> ShardRows:
        """Return the rows in which nothing is missing, if nothing else is wrong with them.

        Parameters
        ----------
        missing, unknown : str
            As in :meth:`Tally.check`.
        """
        self._check_number()
        self.tally.check(missing, unknown)
        X = self.blocks[0] if self.n_rows is not None else np.concatenate(self.blocks)
        y = np.concatenate(self.y)
        weight = None if self.weight_name is None else np.concatenate(self.weight)
        offset = None if self.offset_name is None else np.concatenate(self.offset)
        keep = ~np.concatenate(self.absent)
        for some in row_blocks(len(X), self.n_features):
            self.layout.derive(X[some])
            keep[some] &= ~np.isnan(X[some]).any(axis=1)
        groups, ids = (self._labels(name, keep) for name in (self.groups_name, self.ids_name))
        if keep.all():
            return ShardRows(X, y, weight, offset=offset, groups=groups, ids=ids)
        left = int((~keep).sum())
        weight, offset = (None if a is None else a[keep] for a in (weight, offset))
        rows = ShardRows(_kept(X, keep), y[keep], weight, left, offset, groups, ids)
        return replace(rows, missing=self.tally.missing)

    def _labels(self, name: str | None, keep: Floats) -> Floats | None:
        if name is None:
            return None
        found, absent = (np.concatenate(parts) for parts in zip(*self.labels[name], strict=True))
        return kept_labels(found, absent, keep, name)

    def _check_number(self) -> None:
        if self.n_rows is not None and self.tally.n_rows != self.n_rows:
            self._changed(self.tally.n_rows)

    def _changed(self, found: int) -> NoReturn:
        raise InvalidInput(Error.ROWS_CHANGED, counted=self.n_rows, found=found)


def _kept(X: Floats, keep: Floats) -> Floats:
    """Move the rows to be kept to the front, and return these."""
    end = 0
    for some in row_blocks(*X.shape):
        part = X[some][keep[some]]
        X[end : end + len(part)] = part
        end += len(part)
    return X[:end]


def kept_labels(found: Floats, missing: Floats, keep: Floats, name: str) -> Floats:
    """Return the labels of the rows that are kept; refuse one that is missing.

    A row without a label is not dropped: the model was fitted to it.
    """
    if len(found) != len(keep):
        raise InvalidInput(
            Error.LENGTHS_DIFFER,
            name=f"column {name!r}",
            rows=len(found),
            other="X",
            others=len(keep),
        )
    if np.any(missing & keep):
        rows = np.flatnonzero(missing & keep)
        raise InvalidInput(
            Error.GROUP_MISSING, name=f"column {name!r}", row=int(rows[0]), count=len(rows)
        )
    return found[keep]


def response_values(
    batch: pa.RecordBatch, responses: Sequence[Column], tally: Tally, as_text: bool
) -> tuple[Floats, Floats]:
    """Return y of n rows, (n,) or (n, C), and where some of it is missing; and count these."""
    if as_text:
        ((name, _),) = responses
        return target_values(batch.column(name), name, tally, True)
    y = read_responses(responses, lambda n: target_values(batch.column(n), n, tally, False)[0])
    return y, np.isnan(y) if y.ndim == 1 else np.isnan(y).any(axis=1)


def target_values(
    column: pa.Array, name: str, tally: Tally, as_text: bool
) -> tuple[Floats, Floats]:
    """Return n responses, numbers or text, and where they are missing; and count these."""
    if as_text:
        y, missing = labels(column, name)
        tally.missing[name] += int(missing.sum())
        return y, missing
    if is_text(column.type):
        raise InvalidInput(Error.TARGET_TEXT, column=name)
    y = tallied(column, name, tally)
    return y, np.isnan(y)


def weights(column: pa.Array, name: str, tally: Tally) -> Floats:
    """Return n case weights, and count those that are missing or negative."""
    weight = tallied(column, name, tally)
    tally.negative[name] += int((weight < 0).sum())
    return weight


def tallied(column: pa.Array, name: str, tally: Tally) -> Floats:
    """Return n numbers, and count those that are missing or infinite."""
    found = numbers(column, name)
    tally.add(name, found)
    return found
