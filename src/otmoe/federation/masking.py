"""Numbers as integers that add up exactly, and masks that cancel in a sum (maths 14).

A number becomes an integer of 128 bits, 64 of them after the binary point, negative ones as two's
complement. Sums are taken modulo 2^128, so that an integer plus a mask that is uniform there is
uniform itself, whatever the number was.

Examples
--------
>>> import numpy as np
>>> from otmoe.federation.masking import added, frozen, negated, thawed
>>> rng = np.random.default_rng(0)
>>> mask = rng.integers(2**64, size=(2, 2), dtype=np.uint64)
>>> one = added(frozen([1.25, -3.0], 2), mask)
>>> two = added(frozen([-0.5, 1e-12], 2), negated(mask))
>>> thawed(added(one, two))
array([ 0.75, -3.  ])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.documents.masked_reply import Words
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_POINT = 2.0**64  # what the lower half counts in
_MOST = 2.0**62  # half of what the higher half holds, for the sum of all sites


def frozen(values: Any, n_sites: int) -> Words:
    """Return numbers as integers whose sum over so many sites cannot overflow.

    Parameters
    ----------
    values : array-like of shape (n,)
    n_sites : int

    Returns
    -------
    ndarray of uint64 of shape (n, 2)
        Exact, but for what is smaller than 2^-64.
    """
    values = np.asarray(values, np.float64)
    most = _MOST / n_sites
    if not np.all(np.abs(values) <= most):  # NaN neither
        raise InvalidInput(Error.TOO_LARGE_TO_MASK, most=most)
    part, whole = np.modf(np.abs(values))
    words = np.stack([(part * _POINT).astype(np.uint64), whole.astype(np.uint64)], axis=-1)
    return np.where(values[:, None] < 0, negated(words), words)


def thawed(words: Words) -> Floats:
    """Return integers (n, 2) as the numbers that they stand for, rounded once, (n,)."""
    negative = words[:, 1] >> np.uint64(63) == 1
    size = np.where(negative[:, None], negated(words), words)
    found = np.array([((high << 64) + low) / 2**64 for low, high in size.tolist()], np.float64)
    return np.where(negative, -found, found)


def added(one: Words, other: Words) -> Words:
    """Return sums modulo 2^128, (n, 2)."""
    low = one[:, 0] + other[:, 0]
    carry = (low < one[:, 0]).astype(np.uint64)
    return np.stack([low, one[:, 1] + other[:, 1] + carry], axis=-1)


def negated(words: Words) -> Words:
    """Return the integers that add up to 0 with these, (n, 2)."""
    low = ~words[:, 0] + np.uint64(1)
    return np.stack([low, ~words[:, 1] + (low == 0).astype(np.uint64)], axis=-1)
