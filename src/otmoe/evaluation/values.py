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
    """Distinct values of y and their weights.

    Attributes
    ----------
    y : ndarray of shape (B,)
        Sorted.
    weight : ndarray of shape (B,)
    """

    y: Floats = field(default_factory=_none)
    weight: Floats = field(default_factory=_none)

    @classmethod
    def of(cls, y: Floats, weight: Floats, most: int = MOST) -> Values:
        """Return the values that occur, but not more than so many.

        Parameters
        ----------
        y, weight : ndarray of shape (n,)
        most : int
        """
        found, place = np.unique(y[weight > 0], return_inverse=True)
        total = np.bincount(place, weight[weight > 0], len(found))
        while len(found) > most:
            found, total = _fewer(found, total, most)
        return cls(found, total)

    def __add__(self, other: Values) -> Values:
        return Values.of(
            np.concatenate([self.y, other.y]), np.concatenate([self.weight, other.weight])
        )


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
