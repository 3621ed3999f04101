"""Rows to sketch, and a comparison of sketches bit by bit."""

import numpy as np


def clustered(rng, n=3000, d=3, G=2):
    """Return rows of numbers in clusters of unequal size and shape."""
    sizes = rng.multinomial(n, np.arange(1, G + 1) / np.arange(1, G + 1).sum())
    parts = [
        rng.normal(size=(size, d)) @ rng.normal(size=(d, d)) + 6 * rng.normal(size=d)
        for size in sizes
    ]
    return np.concatenate(parts)


def mixed(rng, n=2000):
    """Return a number, a count, a lone dummy, a category of three levels, and a constant.

    The dummy and the category depend on the number, which has two clusters.
    """
    old = rng.random(n) < 0.4
    age = np.where(old, rng.normal(70, 5, n), rng.normal(30, 5, n))
    visits = rng.poisson(np.where(old, 3.0, 0.7)).astype(float)
    ill = (rng.random(n) < np.where(old, 0.8, 0.1)).astype(float)
    level = np.where(old, rng.integers(0, 3, n), 0)
    return np.column_stack([age, visits, ill, level == 1, level == 2, np.full(n, 0.1)])


def same(a, b):
    """Return whether two sketches are the same, bit for bit."""
    parts = [
        (x.tobytes() if isinstance(x, np.ndarray) else repr(x))
        for sketch in (a, b)
        for x in (sketch.weight, sketch.mean, sketch.cov, *sketch.prob, sketch.numbers)
    ]
    other = [
        (s.categories, dict(s.constant), s.whole, s.not_negative, dict(s.units)) for s in (a, b)
    ]
    half = len(parts) // 2
    return parts[:half] == parts[half:] and other[0] == other[1]
