# Long because all kernels for CUDA tensors are here, as those for NumPy are in kernels.py.
"""Compiled kernels for CUDA tensors; :mod:`otmoe.arrays.numerics` and pairs are their only callers.

Designs and weights lie column by column, so that neighbouring threads read neighbouring rows.
Chunks of rows are summed in a fixed order, so that results repeat to the last bit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

MOST_COLUMNS = 64
"""Columns up to which an accumulator fits the registers of two warps."""

_CHUNKS = 264  # of rows, for programs that fill a multiprocessor: two for each of a large card
_PROGRAMS = 3168  # of a warp or two: many for each of its multiprocessors
_LEAST = 256  # rows of a chunk: its sums are written, and read again
_TILE = 16  # rows per step of a sum
_ROWS = 128  # rows of a program that writes a result for each
_MOST_PAIRS, _MOST_PRODUCTS = 32, 128  # of predictors, and of columns, that a program sums up


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
def _normalised(value, known):  # type: ignore[no-untyped-def]
    """Return the softmax over experts, (experts, rows), and the logs of its denominators."""
    value = tl.where(known[:, None], value, -float("inf"))
    top = tl.max(value, axis=0)
    e = tl.where(known[:, None], tl.exp(value - top[None, :]) + 1e-130, 0.0)
    total = tl.sum(e, axis=0)
    return e / total[None, :], top + tl.log(total)


@triton.jit
def _softmax_kernel(a, prob, log_sum, n, n_kinds, K: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    which = tl.arange(0, K)
    inside = rows < n
    known = which < n_kinds
    place = which[:, None].to(tl.int64) * n + rows[None, :]
    mask = known[:, None] & inside[None, :]
    share, total = _normalised(tl.load(a + place, mask=mask, other=0.0), known)
    tl.store(prob + place, share, mask=mask)
    tl.store(log_sum + rows, total, mask=inside)


@triton.jit
def _tile(x, rows, columns, n, p):  # type: ignore[no-untyped-def]
    """Return some rows of a design, (columns, rows); 0 outside of it."""
    mask = (columns[:, None] < p) & (rows[None, :] < n)
    return tl.load(x + columns[:, None].to(tl.int64) * n + rows[None, :], mask=mask, other=0.0)


@triton.jit
def _add_linear(  # type: ignore[no-untyped-def]
    x, w, out, begin, n, p, rows_per_chunk, n_weights,
    P: tl.constexpr, J: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    columns, which = tl.arange(0, P), tl.arange(0, J)
    total = tl.zeros((J, P), tl.float64)
    for step in range(0, rows_per_chunk, TILE):
        rows = begin + step + tl.arange(0, TILE)
        features = _tile(x, rows, columns, n, p)
        total += tl.dot(_tile(w, rows, which, n, n_weights), tl.trans(features))
    tl.store(out + which[:, None] * P + columns[None, :], total)


@triton.jit
def _add_gram(  # type: ignore[no-untyped-def]
    high, low, rest, scale, square, side, corner, SPLIT: tl.constexpr
):
    scaled = high * scale[None, :]
    square += tl.dot(scaled, tl.trans(high))
    if SPLIT:
        side += tl.dot(scaled, tl.trans(rest))
        corner += tl.dot(low * scale[None, :], tl.trans(rest))
    return square, side, corner


@triton.jit
def _store_gram(  # type: ignore[no-untyped-def]
    out, square, side, corner,
    H: tl.constexpr, L: tl.constexpr, W: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    high, low, rest = tl.arange(0, H), tl.arange(0, L), tl.arange(0, W)
    tl.store(out + high[:, None] * H + high[None, :], square)
    if SPLIT:
        tl.store(out + H * H + high[:, None] * W + rest[None, :], side)
        tl.store(out + H * (H + W) + low[:, None] * W + rest[None, :], corner)


@triton.jit
def _sums_kernel(  # type: ignore[no-untyped-def]
    x, w, linear, out, n, p, rows_per_chunk, n_grams, n_linear, size,
    H: tl.constexpr, L: tl.constexpr, W: tl.constexpr, SPLIT: tl.constexpr,
    P: tl.constexpr, J: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    # Two weights a program share the rows they read; other programs of the chunk find them cached.
    # The last one of them adds up all linear weights.
    first = 2 * tl.program_id(0).to(tl.int64)
    second = first + 1
    begin = tl.program_id(1) * rows_per_chunk
    out += tl.program_id(1).to(tl.int64) * size
    each = (H * H + (H + L) * W) if SPLIT else H * H
    if first < n_grams:
        end = tl.where(second < n_grams, n, 0)
        square, other_square = tl.zeros((H, H), tl.float64), tl.zeros((H, H), tl.float64)
        side, other_side = tl.zeros((H, W), tl.float64), tl.zeros((H, W), tl.float64)
        corner, other_corner = tl.zeros((L, W), tl.float64), tl.zeros((L, W), tl.float64)
        for step in range(0, rows_per_chunk, TILE):
            rows = begin + step + tl.arange(0, TILE)
            high = _tile(x, rows, tl.arange(0, H), n, p)
            low, rest = high, high
            if SPLIT:
                low = _tile(x, rows, H + tl.arange(0, L), n, p)
                rest = _tile(x, rows, H + tl.arange(0, W), n, p)
            scale = tl.load(w + first * n + rows, mask=rows < n, other=0.0)
            square, side, corner = _add_gram(high, low, rest, scale, square, side, corner, SPLIT)
            scale = tl.load(w + second * n + rows, mask=rows < end, other=0.0)
            other_square, other_side, other_corner = _add_gram(
                high, low, rest, scale, other_square, other_side, other_corner, SPLIT
            )
        _store_gram(out + first * each, square, side, corner, H, L, W, SPLIT)
        if second < n_grams:
            out += second * each
            _store_gram(out, other_square, other_side, other_corner, H, L, W, SPLIT)
    else:
        out += n_grams * each
        _add_linear(x, linear, out, begin, n, p, rows_per_chunk, n_linear, P, J, TILE)


@triton.jit
def _products(x, left, right, rows, which, n, n_products):  # type: ignore[no-untyped-def]
    """Return products of two columns of a design at some rows, (products, rows).

    Gram matrices of many weights are a product of these with the weights; symmetric ones have half
    the entries, and no column is padded.
    """
    known = which < n_products
    one = tl.load(left + which, mask=known, other=0).to(tl.int64)
    other = tl.load(right + which, mask=known, other=0).to(tl.int64)
    mask = known[:, None] & (rows[None, :] < n)
    value = tl.load(x + one[:, None] * n + rows[None, :], mask=mask, other=0.0)
    return value * tl.load(x + other[:, None] * n + rows[None, :], mask=mask, other=0.0)


@triton.jit
def _pair_kernel(  # type: ignore[no-untyped-def]
    x, left, right, t, less, more, pairs, out, n, rows_per_chunk, n_pairs, n_products,
    J: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    which = tl.program_id(0) * J + tl.arange(0, J)
    entries = tl.program_id(1) * Q + tl.arange(0, Q)
    chunk = tl.program_id(2)
    known = which < n_pairs
    first = tl.load(pairs + 4 * which, mask=known, other=0).to(tl.int64)[:, None] * n
    second = tl.load(pairs + 4 * which + 1, mask=known, other=0).to(tl.int64)[:, None] * n
    has_less = known & (tl.load(pairs + 4 * which + 2, mask=known, other=0) > 0)
    extra = tl.load(pairs + 4 * which + 3, mask=known, other=-1).to(tl.int64)
    total = tl.zeros((J, Q), tl.float64)
    for start in range(0, rows_per_chunk, TILE):
        rows = chunk * rows_per_chunk + start + tl.arange(0, TILE)
        inside = (rows < n)[None, :]
        place = rows[None, :]
        mask = known[:, None] & inside
        scale = tl.load(t + first + place, mask=mask, other=0.0)
        scale *= tl.load(t + second + place, mask=mask, other=0.0)
        mask = has_less[:, None] & inside
        taken = tl.load(less + first + place, mask=mask, other=0.0)
        scale -= taken * tl.load(less + second + place, mask=mask, other=0.0)
        mask = (extra >= 0)[:, None] & inside
        scale += tl.load(more + extra[:, None] * n + place, mask=mask, other=0.0)
        total += tl.dot(scale, tl.trans(_products(x, left, right, rows, entries, n, n_products)))
    place = (chunk * n_pairs + which[:, None]).to(tl.int64) * n_products + entries[None, :]
    mask = known[:, None] & (entries[None, :] < n_products)
    tl.store(out + place, total, mask=mask)


@triton.jit
def _parts(model, p, n_experts):  # type: ignore[no-untyped-def]
    """Return where coefficients of gate and experts begin, and precisions; constants follow."""
    coef = model + n_experts * p
    return model, coef, coef + n_experts * p


@triton.jit
def _gaussian(  # type: ignore[no-untyped-def]
    x, y, w, model, rows, which, n, p, n_experts,
    K: tl.constexpr, ROWS: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    """Return the E-step of Gaussian experts, in one read of the rows.

    Responsibilities, gate probabilities, scores in the mean and halves of the squared residuals in
    variances, (experts, rows); log densities and weights, (rows,).
    """
    inside = rows < n
    known = which < n_experts
    gate, coef, precision = _parts(model, p, n_experts)
    mean = tl.zeros((K, ROWS), tl.float64)
    logit = tl.zeros((K, ROWS), tl.float64)
    place = x + rows
    for j in range(p):
        value = tl.load(place, mask=inside, other=0.0)[None, :]
        place += n
        mean += tl.load(coef + which * p + j, mask=known, other=0.0)[:, None] * value
        logit += tl.load(gate + which * p + j, mask=known, other=0.0)[:, None] * value
    scale = tl.load(precision + which, mask=known, other=0.0)[:, None]
    residual = tl.load(y + rows, mask=inside, other=0.0)[None, :] - mean
    score = residual * scale
    half = 0.5 * score * residual
    joint = logit + tl.load(precision + n_experts + which, mask=known, other=0.0)[:, None] - half
    prob, gate_sum = _normalised(logit, known)
    share, joint_sum = _normalised(joint, known)
    weight = tl.where(inside, 1.0, 0.0).to(tl.float64)
    if WEIGHTED:
        weight = tl.load(w + rows, mask=inside, other=0.0)
    return share, prob, score, half, joint_sum - gate_sum, weight


@triton.jit
def _fit_kernel(  # type: ignore[no-untyped-def]
    x, y, w, model, square, linear, n, p, n_experts,
    K: tl.constexpr, ROWS: tl.constexpr, WEIGHTED: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    which = tl.arange(0, K)
    share, prob, score, half, density, weight = _gaussian(
        x, y, w, model, rows, which, n, p, n_experts, K, ROWS, WEIGHTED
    )
    known = which < n_experts
    inside = rows < n
    share *= weight[None, :]
    at = which[:, None].to(tl.int64) * n + rows[None, :]
    mask = known[:, None] & inside[None, :]
    each = n_experts.to(tl.int64) * n
    tl.store(square + at, share, mask=mask)
    tl.store(linear + at, share * score, mask=mask)
    tl.store(linear + each + at, share - prob * weight[None, :], mask=mask)
    tl.store(linear + 2 * each + at, share * (half - 0.5), mask=mask)
    tl.store(linear + 3 * each + rows, density * weight, mask=inside)
    i, j = which[:, None], which[None, :]
    pair = n_experts + i * n_experts - i * (i + 1) // 2 + j - i - 1
    products = (prob * weight[None, :])[:, None, :] * prob[None, :, :]
    at = pair[:, :, None].to(tl.int64) * n + rows[None, None, :]
    mask = ((i < j) & (j < n_experts))[:, :, None] & inside[None, None, :]
    tl.store(square + at, products, mask=mask)


@triton.jit
def _score_kernel(  # type: ignore[no-untyped-def]
    x, y, w, model, t, less, more, linear, sums, n, p, n_experts,
    K: tl.constexpr, ROWS: tl.constexpr, WEIGHTED: tl.constexpr, MATRIX: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    which = tl.arange(0, K)
    share, prob, score, half, density, weight = _gaussian(
        x, y, w, model, rows, which, n, p, n_experts, K, ROWS, WEIGHTED
    )
    known = which < n_experts
    free = which < n_experts - 1
    here = (rows < n)[None, :]
    total = weight[None, :]
    # A predictor's row: gates but the last, then experts.
    of_gate = which[:, None].to(tl.int64) * n + rows[None, :]
    of_expert = of_gate + (n_experts - 1).to(tl.int64) * n
    gates, experts = free[:, None] & here, known[:, None] & here
    moved = share * score
    spread = share * (half - 0.5)
    tl.store(linear + of_gate, total * (share - prob), mask=gates)
    tl.store(linear + of_expert, total * moved, mask=experts)
    n_pairs = n_experts * (n_experts + 1) // 2
    sums += tl.program_id(0) * (2 * n_experts + 1 + (n_pairs if MATRIX else 0))
    tl.store(sums, tl.sum(density * weight, axis=0))
    tl.store(sums + 1 + which, tl.sum(total * share, axis=1), mask=known)
    tl.store(sums + 1 + n_experts + which, tl.sum(total * spread, axis=1), mask=known)
    if MATRIX:
        root = tl.sqrt(weight)[None, :]
        tl.store(t + of_gate, root * share, mask=gates)
        tl.store(t + of_expert, root * moved, mask=experts)
        tl.store(less + of_gate, root * prob, mask=gates)
        scale = tl.load(_parts(model, p, n_experts)[2] + which, mask=known, other=0.0)[:, None]
        tl.store(more + of_gate, total * (prob - share), mask=gates)
        tl.store(more + of_expert, -total * moved, mask=gates)
        last = of_expert + (n_experts - 1).to(tl.int64) * n
        tl.store(more + last, total * (share * scale - moved * score), mask=experts)
        # with the logarithms of variances: pairs of a linear predictor i and a variance j
        i, j = which[:, None], which[None, :]
        same = tl.where(i == j, 1.0, 0.0).to(tl.float64)[:, :, None]
        other = (total * spread)[None, :, :]
        first = (2 * n_experts - 1 + i * n_experts + j)[:, :, None].to(tl.int64) * n
        at = first + rows[None, None, :]
        both = (known[:, None] & known[None, :])[:, :, None] & here[:, None, :]
        mask = both & free[:, None, None]
        tl.store(linear + at, other * (share[:, None, :] - same), mask=mask)
        at += (n_experts * (n_experts - 1)).to(tl.int64) * n
        own = (total * moved)[:, None, :]
        value = moved[:, None, :] * other + same * own * (1.5 - half[:, None, :])
        tl.store(linear + at, value, mask=both)
        pairs = other * spread[:, None, :]
        pairs += same * (total * (share * half - spread * (half - 0.5)))[:, None, :]
        pair = i * n_experts - i * (i - 1) // 2 + j - i
        mask = (i <= j) & known[None, :]
        tl.store(sums + 1 + 2 * n_experts + pair, tl.sum(pairs, axis=2), mask=mask)


def _chunked(n: int, chunks: int) -> tuple[int, int]:
    """Return the rows of a chunk, a multiple of a tile, and how many chunks there are."""
    rows = triton.cdiv(max(triton.cdiv(n, chunks), _LEAST), _TILE) * _TILE
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


def weighted_sums(X: Any, weights: Any, linear: Any) -> Any:
    """Return ``X.T @ diag(w) @ X`` for every column w of `weights`, then ``linear.T @ X``.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    weights : CUDA tensor of shape (n, J), float64
    linear : CUDA tensor of shape (n, L), float64

    Returns
    -------
    CUDA tensor of shape (J p p + L p,)
        One after another, so that a single copy takes them elsewhere.
    """
    features, scales, lines = (a.T.contiguous() for a in (X, weights, linear))
    (p, n), n_grams, n_linear = features.shape, scales.shape[0], lines.shape[0]
    shape, size, index = _layout(p, n_grams, n_linear, X.device)
    programs = triton.cdiv(n_grams, 2) + (n_linear > 0)
    rows, chunks = _chunked(n, triton.cdiv(_PROGRAMS, programs))
    out = _empty(X, chunks, size)
    _sums_kernel[(programs, chunks)](
        features, scales, lines, out, n, p, rows, n_grams, n_linear, size, **shape,
        TILE=_TILE, num_warps=1 if p <= 32 else 2,
    )  # fmt: skip
    return out.sum(0)[index]


@cache
def _layout(p: int, n_grams: int, n_linear: int, device: Any) -> tuple[dict[str, int], int, Any]:
    """Return the shape of a program, the numbers of a chunk, and where the sums are in these.

    Columns are the first H, a power of two, and a rest of at most W: neither is that padded to H,
    nor is what is below the diagonal there summed up, which halves the products of 21 columns.
    """
    H = max(16, (1 << (p - 1).bit_length()) // 2)
    W = _power(p - H, 8)
    L = max(W, 16)  # the rest where it is the left factor, which has 16 rows at least
    P, J = _power(p, 16), _power(n_linear, 16)
    each = H * H + (H + L) * W if p > H else H * H
    row, column = np.sort(np.indices((p, p)), axis=0)
    beside = H * H + row * W + column - H  # the corner comes next, row by row
    gram = np.where(column < H, row * H + column, beside)
    grams = each * np.arange(n_grams)[:, None, None] + gram
    lines = each * n_grams + P * np.arange(n_linear)[:, None] + np.arange(p)
    index = torch.asarray(np.concatenate([grams.ravel(), lines.ravel()]), device=device)
    shape = {"H": H, "L": L, "W": W, "SPLIT": p > H, "P": P, "J": J}
    return shape, each * n_grams + (J * P if n_linear else 0), index


@cache
def _columns(p: int, device: Any) -> tuple[Any, ...]:
    """Return the pairs of columns whose products have a sum of their own, (p (p + 1) / 2,) each."""
    left, right = np.triu_indices(p)
    return tuple(torch.asarray(side.astype(np.int32), device=device) for side in (left, right))


@cache
def _pairs(n_predictors: int, n_less: int, terms: tuple[int, ...], device: Any) -> Any:
    """Return both predictors of every pair, whether it has the second term, and its third."""
    first, second = np.triu_indices(n_predictors)
    table = np.stack([first, second, second < n_less, np.array(terms)], axis=1)
    return torch.asarray(table.astype(np.int32), device=device)


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
    CUDA tensor of shape (A (A + 1) / 2, p (p + 1) / 2)
        Upper triangles, row by row.
    """
    features = X.T.contiguous()
    p, n = features.shape
    first, second = np.triu_indices(t.shape[0])
    terms = tuple(where[first, second].tolist())
    pairs = _pairs(t.shape[0], less.shape[0], terms, X.device)
    left, right = _columns(p, X.device)
    rows, chunks = _chunked(n, _CHUNKS)
    out = _empty(X, chunks, len(first), len(left))
    J = _power(min(len(first), _MOST_PAIRS), 16)
    Q = _power(min(len(left), _MOST_PRODUCTS), 16)
    grid = (triton.cdiv(len(first), J), triton.cdiv(len(left), Q), chunks)
    _pair_kernel[grid](
        features, left, right, t, less, more, pairs, out, n, rows, len(first), len(left),
        J=J, Q=Q, TILE=_TILE, num_warps=4,
    )  # fmt: skip
    return out.sum(0)


def _gaussian_arguments(X: Any, y: Any, weight: Any, gate: Any, coef: Any, var: Any) -> Any:
    """Return what both kernels of the E-step begin with, and their shape."""
    features = X.T.contiguous()
    K = coef.shape[0]
    size = _power(K, 2)
    rows = max(16, min(_ROWS, 2048 // size**2))
    parts = np.concatenate([gate.ravel(), coef.ravel(), 1 / var, -0.5 * np.log(2 * np.pi * var)])
    model = torch.asarray(parts).to(X.device, non_blocking=True)
    known = y if weight is None else weight.contiguous()
    grid = (triton.cdiv(X.shape[0], rows),)
    shape = {"K": size, "ROWS": rows, "WEIGHTED": weight is not None}
    return (features, y.contiguous(), known, model), grid, shape


def gaussian_fit(X: Any, y: Any, weight: Any, gate: Any, coef: Any, var: Any) -> tuple[Any, Any]:
    """Return the row weights of an EM iteration of Gaussian experts, in one read of the rows.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    y : CUDA tensor of shape (n,), float64
    weight : CUDA tensor of shape (n,), optional
    gate, coef : ndarray of shape (K, p)
    var : ndarray of shape (K,)

    Returns
    -------
    square : CUDA tensor of shape (n, K + K (K - 1) / 2)
        Responsibilities, then pairs of the gate.
    linear : CUDA tensor of shape (n, 3 K + 1)
        Scores of the means, of the gate, and of the logarithms of variances; log densities.
    """
    (n, p), K = X.shape, len(var)
    begin, grid, shape = _gaussian_arguments(X, y, weight, gate, coef, var)
    square, linear = _empty(X, K * (K + 1) // 2, n), _empty(X, 3 * K + 1, n)
    _fit_kernel[grid](*begin, square, linear, n, p, K, **shape)
    return square.T, linear.T


def gaussian_scores(
    X: Any, y: Any, weight: Any, gate: Any, coef: Any, var: Any, matrix: bool
) -> tuple[Any, ...]:
    """Return the scores of Gaussian experts at every row, and the parts of the information.

    Predictors are those of the gate but the last, then those of the experts, A = 2 K - 1.

    Parameters
    ----------
    X : CUDA tensor of shape (n, p), float64
    y : CUDA tensor of shape (n,), float64
    weight : CUDA tensor of shape (n,), optional
    gate, coef : ndarray of shape (K, p)
    var : ndarray of shape (K,)
    matrix : bool
        Whether the information is asked for; otherwise `t`, `less` and `more` are empty.

    Returns
    -------
    linear : CUDA tensor of shape (n, A), or (n, A + A K)
        Scores; then pairs of a predictor and the logarithm of a variance.
    sums : CUDA tensor of shape (1 + 2 K,), or (1 + 2 K + K (K + 1) / 2,)
        Log-likelihood, rows of each expert, scores of the logarithms of variances; then pairs of
        these.
    t, less, more : CUDA tensor of shape (A, n), (K - 1, n), (3 K - 2, n)
        The form of :class:`otmoe.arrays.pairs.Form`; `more` has gates, gates with their experts,
        experts.
    """
    (n, p), K = X.shape, len(var)
    A = 2 * K - 1
    begin, grid, shape = _gaussian_arguments(X, y, weight, gate, coef, var)
    t, less, more = (_empty(X, size if matrix else 0, n) for size in (A, K - 1, 3 * K - 2))
    linear = _empty(X, A * (1 + K) if matrix else A, n)
    sums = _empty(X, grid[0], 1 + 2 * K + (K * (K + 1) // 2 if matrix else 0))
    _score_kernel[grid](
        *begin, t, less, more, linear, sums, n, p, K, **shape, MATRIX=matrix
    )  # fmt: skip
    return linear.T, sums.sum(0), t, less, more
