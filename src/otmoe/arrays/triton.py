"""Compiled kernels for CUDA tensors; :mod:`otmoe.arrays.numerics` and pairs are their only callers.

Designs and weights lie column by column, so that neighbouring threads read neighbouring rows.
Chunks of rows are summed in a fixed order, so that results repeat to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

MOST_COLUMNS = 64
"""Columns up to which an accumulator fits the registers of two warps."""

_CHUNKS = 264  # sums of rows: two for each multiprocessor of a large card
_TILE = 32  # rows per step of a sum
_ROWS = 128  # rows of a program that writes a result for each


@triton.jit
def _design_kernel(  # type: ignore[no-untyped-def]
    x, of_row, of_column, center, factor, out, n, d, D: tl.constexpr, ROWS: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, D)
    known = columns < d
    mask = (rows[:, None] < n) & known[None, :]
    place = x + rows[:, None].to(tl.int64) * of_row + columns[None, :] * of_column
    value = tl.load(place, mask=mask, other=0.0).to(tl.float64)
    value -= tl.load(center + columns, mask=known, other=0.0)[None, :]
    value *= tl.load(factor + columns, mask=known, other=0.0)[None, :]
    to = out + (columns[:, None] + 1).to(tl.int64) * n + rows[None, :]
    tl.store(to, tl.trans(value), mask=known[:, None] & (rows[None, :] < n))
    tl.store(out + rows, tl.full((ROWS,), 1.0, tl.float64), mask=rows < n)


@triton.jit
def _times_kernel(x, coef, out, n, p, n_coef, K: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    which = tl.arange(0, K)
    inside = rows < n
    known = which < n_coef
    total = tl.zeros((K, ROWS), tl.float64)
    place = x + rows
    for j in range(p):
        value = tl.load(place, mask=inside, other=0.0)
        place += n
        total += tl.load(coef + which * p + j, mask=known, other=0.0)[:, None] * value[None, :]
    to = out + which[:, None].to(tl.int64) * n + rows[None, :]
    tl.store(to, total, mask=known[:, None] & inside[None, :])


@triton.jit
def _softmax_kernel(a, prob, log_sum, n, n_kinds, K: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    which = tl.arange(0, K)
    inside = rows < n
    known = which < n_kinds
    place = which[:, None].to(tl.int64) * n + rows[None, :]
    mask = known[:, None] & inside[None, :]
    value = tl.load(a + place, mask=mask, other=-float("inf"))
    top = tl.where(inside, tl.max(value, axis=0), 0.0)
    e = tl.where(known[:, None], tl.exp(value - top[None, :]) + 1e-130, 0.0)
    total = tl.sum(e, axis=0)
    tl.store(prob + place, e / total[None, :], mask=mask)
    tl.store(log_sum + rows, top + tl.log(total), mask=inside)


@triton.jit
def _tile(x, rows, columns, n, p):  # type: ignore[no-untyped-def]
    """Return some rows of a design, (columns, rows); 0 outside of it."""
    mask = (columns[:, None] < p) & (rows[None, :] < n)
    return tl.load(x + columns[:, None].to(tl.int64) * n + rows[None, :], mask=mask, other=0.0)


@triton.jit
def _sum_kernel(  # type: ignore[no-untyped-def]
    x, w, out, n, p, rows_per_chunk, n_weights, P: tl.constexpr, J: tl.constexpr, TILE: tl.constexpr
):
    chunk = tl.program_id(0)
    columns = tl.arange(0, P)
    which = tl.arange(0, J)
    total = tl.zeros((J, P), tl.float64)
    for start in range(0, rows_per_chunk, TILE):
        rows = chunk * rows_per_chunk + start + tl.arange(0, TILE)
        features = _tile(x, rows, columns, n, p)
        total += tl.dot(_tile(w, rows, which, n, n_weights), tl.trans(features))
    tl.store(out + chunk * J * P + which[:, None] * P + columns[None, :], total)


@triton.jit
def _gram_kernel(  # type: ignore[no-untyped-def]
    x, w, out, n, p, rows_per_chunk, n_weights, P: tl.constexpr, TILE: tl.constexpr
):
    # Two weights a program share the rows they read; other programs of the chunk find them cached.
    first = 2 * tl.program_id(0).to(tl.int64)
    second = first + 1
    end = tl.where(second < n_weights, n, 0)
    chunk = tl.program_id(1)
    columns = tl.arange(0, P)
    one = tl.zeros((P, P), tl.float64)
    other = tl.zeros((P, P), tl.float64)
    for start in range(0, rows_per_chunk, TILE):
        rows = chunk * rows_per_chunk + start + tl.arange(0, TILE)
        inside = rows < n
        features = _tile(x, rows, columns, n, p)
        across = tl.trans(features)
        scale = tl.load(w + first * n + rows, mask=inside, other=0.0)
        one += tl.dot(features * scale[None, :], across)
        scale = tl.load(w + second * n + rows, mask=rows < end, other=0.0)
        other += tl.dot(features * scale[None, :], across)
    place = out + chunk * n_weights * P * P + columns[:, None] * P + columns[None, :]
    tl.store(place + first * P * P, one)
    if second < n_weights:
        tl.store(place + second * P * P, other)


@triton.jit
def _pair_kernel(  # type: ignore[no-untyped-def]
    x, t, less, more, pairs, out, n, p, rows_per_chunk, n_pairs, P: tl.constexpr, TILE: tl.constexpr
):
    pair = tl.program_id(0)
    chunk = tl.program_id(1)
    first = tl.load(pairs + 4 * pair).to(tl.int64)
    second = tl.load(pairs + 4 * pair + 1).to(tl.int64)
    less_end = n * tl.load(pairs + 4 * pair + 2)
    extra = tl.load(pairs + 4 * pair + 3).to(tl.int64)
    more_end = tl.where(extra >= 0, n, 0)
    columns = tl.arange(0, P)
    total = tl.zeros((P, P), tl.float64)
    for start in range(0, rows_per_chunk, TILE):
        rows = chunk * rows_per_chunk + start + tl.arange(0, TILE)
        inside = rows < n
        features = _tile(x, rows, columns, n, p)
        scale = tl.load(t + first * n + rows, mask=inside, other=0.0)
        scale *= tl.load(t + second * n + rows, mask=inside, other=0.0)
        taken = tl.load(less + first * n + rows, mask=rows < less_end, other=0.0)
        scale -= taken * tl.load(less + second * n + rows, mask=rows < less_end, other=0.0)
        scale += tl.load(more + extra * n + rows, mask=rows < more_end, other=0.0)
        total += tl.dot(features * scale[None, :], tl.trans(features))
    place = out + (chunk * n_pairs + pair) * P * P + columns[:, None] * P + columns[None, :]
    tl.store(place, total)


def _chunked(n: int) -> tuple[int, int]:
    """Return the rows of a chunk, a multiple of a tile, and how many chunks there are."""
    rows = triton.cdiv(triton.cdiv(n, _CHUNKS), _TILE) * _TILE
    return rows, triton.cdiv(n, rows)


def _power(size: int, least: int) -> int:
    return max(least, triton.next_power_of_2(size))


def _empty(like: Any, *shape: int) -> Any:
    return torch.empty(shape, dtype=torch.float64, device=like.device)


def design(X: Any, center: Any, factor: Any) -> Any:
    """Return ones, then ``(X - center) * factor``, laid out column by column.

    Parameters
    ----------
    X : CUDA tensor of shape (n, d)
    center, factor : CUDA tensor of shape (d,), float64

    Returns
    -------
    CUDA tensor of shape (n, d + 1), float64
    """
    n, d = X.shape
    out = _empty(X, d + 1, n)
    _design_kernel[(triton.cdiv(n, _ROWS),)](
        X, X.stride(0), X.stride(1), center, factor, out, n, d,
        D=_power(d, 1), ROWS=_ROWS, num_warps=8,
    )  # fmt: skip
    return out.T


def times(X: Any, coef: Any) -> Any:
    """Return ``X @ coef.T`` laid out column by column.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    coef : CUDA tensor of shape (K, p), float64

    Returns
    -------
    CUDA tensor of shape (n, K)
    """
    features = X.T.contiguous()
    p, n = features.shape
    K = coef.shape[0]
    out = _empty(X, K, n)
    _times_kernel[(triton.cdiv(n, _ROWS),)](
        features, coef.contiguous(), out, n, p, K, K=_power(K, 1), ROWS=_ROWS
    )
    return out.T


def softmax(a: Any) -> tuple[Any, Any]:
    """Return the softmax over the second axis of a CUDA tensor (n, K), and its log denominator."""
    values = a.T.contiguous()
    K, n = values.shape
    prob, log_sum = torch.empty_like(values), _empty(values, n)
    grid = (triton.cdiv(n, _ROWS),)
    _softmax_kernel[grid](values, prob, log_sum, n, K, K=_power(K, 1), ROWS=_ROWS)
    return prob.T, log_sum


def weighted_sum(X: Any, weights: Any) -> Any:
    """Return ``weights.T @ X``.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    weights : CUDA tensor of shape (n, J), float64

    Returns
    -------
    CUDA tensor of shape (J, p)
    """
    features, scales = X.T.contiguous(), weights.T.contiguous()
    (p, n), n_weights = features.shape, scales.shape[0]
    P, J = _power(p, 16), _power(n_weights, 16)
    rows, chunks = _chunked(n)
    out = _empty(X, chunks, J, P)
    _sum_kernel[(chunks,)](features, scales, out, n, p, rows, n_weights, P=P, J=J, TILE=_TILE)
    return out.sum(0)[:n_weights, :p]


def weighted_gram(X: Any, weights: Any) -> Any:
    """Return ``X.T @ diag(w) @ X`` for every column w of `weights`, without scaled copies of X.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    weights : CUDA tensor of shape (n, J), float64

    Returns
    -------
    CUDA tensor of shape (J, p, p)
    """
    features, scales = X.T.contiguous(), weights.T.contiguous()
    (p, n), n_weights = features.shape, scales.shape[0]
    P = _power(p, 16)
    rows, chunks = _chunked(n)
    out = _empty(X, chunks, n_weights, P, P)
    _gram_kernel[(triton.cdiv(n_weights, 2), chunks)](
        features, scales, out, n, p, rows, n_weights, P=P, TILE=_TILE, num_warps=2
    )
    return out.sum(0)[:, :p, :p]


def pair_gram(X: Any, t: Any, less: Any, more: Any, where: Any) -> Any:
    """Return the sums of :func:`otmoe.arrays.pairs.pair_gram`, without the weights of the pairs.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    t : CUDA tensor of shape (A, n)
    less : CUDA tensor of shape (B, n)
    more : CUDA tensor of shape (E, n)
    where : ndarray of int of shape (at least A, at least A)

    Returns
    -------
    CUDA tensor of shape (A (A + 1) / 2, p, p)
    """
    features = X.T.contiguous()
    (p, n), P = features.shape, _power(X.shape[1], 16)
    first, second = np.triu_indices(t.shape[0])
    table = np.stack([first, second, second < less.shape[0], where[first, second]], axis=1)
    pairs = torch.asarray(table.astype(np.int32), device=X.device)
    rows, chunks = _chunked(n)
    out = _empty(X, chunks, len(first), P, P)
    _pair_kernel[(len(first), chunks)](
        features, t, less, more, pairs, out, n, p, rows, len(first), P=P, TILE=_TILE, num_warps=2
    )
    return out.sum(0)[:, :p, :p]
