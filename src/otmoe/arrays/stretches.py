"""Stretches of rows that belong together: where they begin, and sums over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from otmoe.arrays.numerics import Floats


def starts_of(codes: Floats) -> Floats:
    """Return where stretches of equal codes (n,) begin, and the end, (G + 1,)."""
    if len(codes) == 0:
        return np.zeros(1, dtype=np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1, [len(codes)]])


def summed(values: Floats, starts: Floats) -> Floats:
    """Return values (n,) or (n, K) summed over stretches, (G,) or (G, K), column by column."""
    return np.add.reduceat(values.T, starts[:-1], axis=-1).T


def spread_out(values: Floats, starts: Floats) -> Floats:
    """Return values of stretches (G,) or (G, K) at each of their rows, column by column."""
    place = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return np.take(values.T, place, axis=-1).T


def whole(slices: Iterable[slice], starts: Floats) -> Iterator[slice]:
    """Move the ends of blocks of rows to where a stretch ends, so that none is cut."""
    begin = 0
    for some in slices:
        end = int(starts[np.searchsorted(starts, some.stop)])
        if end > begin:
            yield slice(begin, end)
        begin = end
