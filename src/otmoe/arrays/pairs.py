"""Quadratic forms in the predictors of a row, summed over rows as forms in the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from otmoe.arrays.numerics import (
    Array,
    Floats,
    cuda_kernels,
    kernels,
    like,
    namespace,
    to_numpy,
    weighted_gram,
)


@dataclass(frozen=True)
class Form:
    """A form at every row: entry (a, b), a <= b, is ``t_a t_b - less_a less_b + more_e``.

    Attributes
    ----------
    t : sequence of arrays of shape (n,)
    less : sequence of arrays of shape (n,)
        Of the first predictors; other pairs do not have this term.
    more : sequence of arrays of shape (n,)
    where : ndarray of int of shape (A, A)
        The e of each pair; -1 for those without this term.
    """

    t: Sequence[Array]
    less: Sequence[Array]
    more: Sequence[Array]
    where: Floats

    def at(self, a: int, b: int) -> Array:
        """Return the entry (a, b), a <= b, at every row."""
        value = self.t[a] * self.t[b]
        if b < len(self.less):
            value = value - self.less[a] * self.less[b]
        if self.where[a, b] >= 0:
            value = value + self.more[self.where[a, b]]
        return value


@cache
def upper(size: int) -> tuple[Floats, Floats]:
    """Return rows and columns of the upper triangle, row by row; few sizes come up, and often."""
    return np.triu_indices(size)


def pair_gram(X: Array, form: Form, n_linear: int, starts: Floats | None = None) -> Floats:
    """Return ``X.T @ diag(form_ab) @ X`` for every pair of the first predictors.

    Parameters
    ----------
    X : array of shape (n, p)
    form : Form
    n_linear : int
        Predictors that count, A.
    starts : ndarray of int of shape (n + 1,), optional
        Where the entries of the form begin that belong to each row of X, one after another; by
        default each row has one.

    Returns
    -------
    ndarray of shape (A (A + 1) / 2, p, p)
        Pairs in the order (0, 0), (0, 1), ...
    """
    n, p = form.t[0].shape[0], X.shape[1]
    first, second = upper(n_linear)
    if isinstance(X, np.ndarray) and kernels is not None:
        out = np.zeros((len(first), p, p))
        parts = (np.array(a).reshape(-1, n) for a in (form.t[:n_linear], form.less, form.more))
        if starts is None:
            kernels.pair_gram(np.ascontiguousarray(X.T), *parts, form.where, out)
        else:
            kernels.pair_gram_of_groups(np.ascontiguousarray(X.T), *parts, form.where, starts, out)
        kernels.mirror(out)
        return out
    triton = cuda_kernels(X)
    if triton is not None and starts is None:
        xp, none = namespace(X), like(np.zeros((0, n)), X)
        lists = (form.t[:n_linear], form.less, form.more)
        t, less, more = (xp.stack(list(part)) if len(part) else none for part in lists)
        return unpacked(to_numpy(triton.pair_gram(X, t, less, more, form.where)), p)
    weights = [form.at(int(a), int(b)) for a, b in zip(first, second, strict=True)]
    if starts is not None:
        weights = [np.add.reduceat(weight, starts[:-1]) for weight in weights]
    return to_numpy(weighted_gram(X, namespace(X).stack(weights).T))


def unpacked(sums: Floats, p: int) -> Floats:
    """Return symmetric matrices (J, p, p), given their upper triangles row by row (J, ...)."""
    rows, columns = upper(p)
    out = np.empty((len(sums), p, p))
    out[:, rows, columns] = out[:, columns, rows] = sums
    return out
