"""Rows of a shard, gathered batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from otmoe.features import FeatureSpec, Tally
from otmoe.numerics import Floats
from otmoe.tables import is_text, labels, numbers


@dataclass(frozen=True)
class ShardRows:
    """The rows of a shard.

    Attributes
    ----------
    X : ndarray of float64 of shape (n, d)
    y : ndarray of shape (n,)
        Numbers as float64, class labels as text.
    weight : ndarray of float64 of shape (n,), optional
    dropped : int
        Rows that were left out because a value is missing.
    offset : ndarray of shape (n,), optional
        Known part of the experts' linear predictors.
    """

    X: Floats
    y: Floats
    weight: Floats | None = None
    dropped: int = 0
    offset: Floats | None = None


class Gathered:
    """Rows gathered batch by batch, into one array where their number is known.

    Parameters
    ----------
    features : FeatureSpec
    target : str
    weight : str or None
    as_text : bool
        Whether the target is text.
    n_rows : int or None
    """

    def __init__(
        self,
        features: FeatureSpec,
        target: str,
        weight: str | None,
        as_text: bool,
        n_rows: int | None,
    ) -> None:
        self.features, self.target, self.weight_name = features, target, weight
        self.as_text, self.n_rows = as_text, n_rows
        self.d = len(features.feature_names)
        self.tally = Tally()
        self.kept = 0
        # Without a number, every batch has an array of its own.
        self.blocks = [np.empty((0 if n_rows is None else n_rows, self.d))]
        self.y = [np.empty(0, dtype=str if as_text else np.float64)]
        self.weight = [np.empty(0)]

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode a batch of rows, and keep those in which nothing is missing."""
        X = self._room(batch.num_rows)
        column = batch.column(self.target)
        self.features.encode_batch(batch, self.tally, X)
        y, absent = target_values(column, self.target, self.tally, self.as_text)
        absent = absent | np.isnan(X).any(axis=1)
        if self.weight_name is not None:
            weight = weights(batch.column(self.weight_name), self.weight_name, self.tally)
            absent |= np.isnan(weight)
            self.weight.append(weight[~absent])
        if absent.any():
            y = y[~absent]
            X[: len(y)] = X[~absent]
            if self.n_rows is None:
                self.blocks[-1] = X[: len(y)]
        self.y.append(y)
        self.kept += len(y)

    def _room(self, n: int) -> Floats:
        """Return where the next n rows of features go, (n, d)."""
        if self.n_rows is None:
            self.blocks.append(np.empty((n, self.d)))
            return self.blocks[-1]
        if self.tally.n_rows + n > self.n_rows:
            self._changed(self.tally.n_rows + n)
        return self.blocks[0][self.kept : self.kept + n]

    def rows(self, missing: str) -> ShardRows:
        """Return them all, if nothing is wrong with them.

        Parameters
        ----------
        missing : {"error", "drop"}
        """
        read = self.tally.n_rows
        if self.n_rows is not None and read != self.n_rows:
            self._changed(read)
        self.tally.check(missing, self.features.unknown)
        known = self.n_rows is not None
        return ShardRows(
            self.blocks[0][: self.kept] if known else np.concatenate(self.blocks),
            np.concatenate(self.y),
            None if self.weight_name is None else np.concatenate(self.weight),
            read - self.kept,
        )

    def _changed(self, found: int) -> NoReturn:
        raise ValueError(
            f"{self.n_rows} rows were counted when the shards were made, and {found} are read now: "
            "the files have changed; make the shards again."
        )


def target_values(
    column: pa.Array, name: str, tally: Tally, as_text: bool
) -> tuple[Floats, Floats]:
    """Return n responses, numbers or text, and where they are missing; and count these."""
    if as_text:
        y, missing = labels(column, name)
        tally.missing[name] += int(missing.sum())
        return y, missing
    if is_text(column.type):
        raise ValueError(
            f"column {name!r}, the target, holds text where numbers are meant; mend it."
        )
    y = numbers(column, name)
    tally.add(name, y)
    return y, np.isnan(y)


def weights(column: pa.Array, name: str, tally: Tally) -> Floats:
    """Return n case weights, and count those that are missing or negative."""
    weight = numbers(column, name)
    tally.add(name, weight)
    tally.negative[name] += int((weight < 0).sum())
    return weight
