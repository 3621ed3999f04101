"""The values of y with their weights, for what sums of y cannot tell; they add up (maths 10)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from otmoe.arrays.numerics import Floats

MOST = 2**14
"""Values that are kept; where there are more, close ones are replaced by their mean."""


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True)
class Values:
    """Distinct values of y and their weights; with an offset, distinct pairs.

    Attributes
    ----------
    y : ndarray of shape (B,)
        Sorted.
    weight : ndarray of shape (B,)
    offset : ndarray of shape (B,)
        Empty if there is none.
    """

    y: Floats = field(default_factory=_none)
    weight: Floats = field(default_factory=_none)
    offset: Floats = field(default_factory=_none)

    @classmethod
    def of(
        cls, y: Floats, weight: Floats, most: int = MOST, offset: Floats | None = None
    ) -> Values:
        """Return the values that occur, but not more than so many.

        Parameters
        ----------
        y, weight : ndarray of shape (n,)
        most : int
        offset : ndarray of shape (n,), optional
        """
        if offset is not None and len(offset):
            some = weight > 0
            return _pairs(y[some], offset[some], weight[some], most)
        found, place = np.unique(y[weight > 0], return_inverse=True)
        total = np.bincount(place, weight[weight > 0], len(found))
        while len(found) > most:
            found, total = _fewer(found, total, most)
        return cls(found, total)

    def __add__(self, other: Values) -> Values:
        pairs = zip(
            (self.y, self.weight, self.offset),
            (other.y, other.weight, other.offset),
            strict=True,
        )
        y, weight, offset = (np.concatenate(pair) for pair in pairs)
        return Values.of(y, weight, offset=offset)


def _pairs(y: Floats, offset: Floats, weight: Floats, most: int) -> Values:
    """Return distinct pairs; where there are too many, those of a cell become their mean."""
    pairs, place = np.unique(np.stack([y, offset]), axis=1, return_inverse=True)
    if pairs.shape[1] > most:
        first = _classes(y, weight, int(np.sqrt(most)))
        second = _classes(offset, weight, most // (int(first.max()) + 1))
        _, place = np.unique(np.stack([first, second]), axis=1, return_inverse=True)
    place = place.ravel()
    total = np.bincount(place, weight)
    means = [np.bincount(place, weight * values) / total for values in (y, offset)]
    return Values(means[0], total, means[1])


def _classes(x: Floats, weight: Floats, most: int) -> Floats:
    """Return the class of each value (n,); few values are one each.

    Classes are narrow where there are many rows and, in the tails, nowhere wide: their edges are
    equidistant in the mean of the rank and the place in the range.
    """
    found, place = np.unique(x, return_inverse=True)
    if len(found) <= most:
        return np.asarray(place)
    total = np.cumsum(np.bincount(place, weight))
    at = 0.5 * total / total[-1] + 0.5 * (found - found[0]) / (found[-1] - found[0])
    return np.asarray(np.minimum((at * most).astype(int), most - 1)[place])


def _fewer(y: Floats, weight: Floats, most: int) -> tuple[Floats, Floats]:
    """Return sorted values after some neighbours, the closest of all pairs, have been joined."""
    pairs = len(y) // 2
    gap = y[1 : 2 * pairs : 2] - y[: 2 * pairs : 2]
    joined = np.argsort(gap, kind="stable")[: min(len(y) - most, (pairs + 1) // 2)]
    second = np.zeros(len(y), dtype=bool)
    second[2 * joined + 1] = True
    place = np.cumsum(~second) - 1
    total = np.bincount(place, weight)
    return np.bincount(place, weight * y) / total, total
