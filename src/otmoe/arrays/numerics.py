# Long because all that depends on the library or the device of an array is here.
"""Array namespaces, row blocks, weighted sums and Gram products.

Row-sized arrays stay in the caller's namespace (NumPy, torch, any array-API library); sums over
rows come back as NumPy arrays. Blocks of rows are laid out feature by feature ("F order"), so that
reductions over experts and dot products over rows both run along contiguous memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import cache, reduce
from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np

kernels: Any
gaussian: Any
copies: Any
"""The compiled kernels, or None on a Python that numba does not support yet."""
try:
    from otmoe.arrays import copies, gaussian, kernels
except ImportError:
    kernels = gaussian = copies = None

Array = Any
"""An array of the caller's namespace; shapes are given in docstrings."""

Floats = np.ndarray
"""A NumPy array of parameters or of sums over rows."""

BLOCK_BYTES = 2**22
"""Of a block of rows: large enough that threads seldom wait for the interpreter lock."""

_DEVICE_BLOCK_BYTES = 2**29  # the same on an accelerator: fewer, larger kernels

FAR = 1e100
"""Distances are cut off here, so that their squares stay finite."""


# -- arrays ------------------------------------------------------------------------------------


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace the arrays share."""
    if all(isinstance(a, np.ndarray) for a in arrays):
        return array_api_compat.numpy
    return array_api_compat.array_namespace(*arrays)


def like(values: Any, reference: Array) -> Array:
    """Return `values` as float64 in the namespace and on the device of `reference`."""
    if isinstance(reference, np.ndarray):
        return np.asarray(values, dtype=np.float64)
    xp = namespace(reference)
    device = array_api_compat.device(reference)
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values, dtype=np.float64)
        if on_accelerator(reference):  # it need not wait for what is under way there
            return xp.asarray(values).to(device, non_blocking=True)
    return xp.asarray(values, dtype=xp.float64, device=device)


def to_numpy(array: Array) -> Floats:
    """Copy an array of any namespace to NumPy (no copy if it is NumPy's already)."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "detach"):  # torch, possibly on a GPU
        array = array.detach().cpu()
    return np.asarray(array)


def take(array: Array, index: Any, axis: int = 0) -> Array:
    """Return the entries at `index` along an axis, in the namespace and on the device of the array.

    Parameters
    ----------
    array : array
    index : ndarray or sequence of int
    axis : int
    """
    if isinstance(array, np.ndarray):
        return array[index] if axis == 0 else np.take(array, index, axis)
    xp = namespace(array)
    place = xp.asarray(index, device=array_api_compat.device(array))
    return xp.take(array, place, axis=axis)


def times(X: Array, coef: Floats) -> Array:
    """Return ``X @ coef.T`` laid out column by column.

    Parameters
    ----------
    X : array of shape (n, p)
    coef : ndarray of shape (K, p)

    Returns
    -------
    array of shape (n, K)
    """
    triton = cuda_kernels(X)
    if triton is not None:
        return triton.times(X, like(coef, X))
    return (like(coef, X) @ X.T).T


def times_each(X: Array, coef: Floats) -> Array:
    """Return ``X @ coef[k].T`` for every k, given X (n, p) and coef (K, Q, p): (n, K, Q)."""
    K, Q, p = coef.shape
    xp = namespace(X)
    rows = xp.reshape(times(X, coef.reshape(K * Q, p)).T, (K, Q, X.shape[0]))
    return xp.permute_dims(rows, (2, 0, 1))


def stack_rows(parts: list[Array]) -> Array:
    """Return arrays (K, n) one above the other, transposed: (n, sum of K), laid out by column."""
    return parts[0].T if len(parts) == 1 else namespace(parts[0]).concat(parts).T


def scaled(a: Array, weight: Array | None) -> Array:
    """Return `a` with row n multiplied by weight n; None means 1 and saves a pass."""
    if weight is None:
        return a
    return a * (weight if a.ndim == 1 else weight[:, None])


def softmax(a: Array) -> tuple[Array, Array]:
    """Return the softmax over the second axis and the log of its denominator.

    Probabilities are never below 1e-130: their products stay clear of subnormal numbers, which are
    a hundred times slower to multiply, and vanish in every sum they enter all the same.

    Parameters
    ----------
    a : array of shape (n, K)

    Returns
    -------
    prob : array of shape (n, K)
    log_sum : array of shape (n,)
        ``log(sum(exp(a), axis=1))``
    """
    triton = cuda_kernels(a)
    if triton is not None:
        return triton.softmax(a)
    xp = namespace(a)
    top = xp.max(a, axis=1)
    e = xp.exp(a - top[:, None])
    e += 1e-130
    total = xp.sum(e, axis=1)
    e /= total[:, None]
    return e, top + xp.log(total)


def log_sum(a: Array) -> Array:
    """Return the log of the sum of exp over the second axis, (n, K) -> (n,); it may be -inf."""
    xp = namespace(a)
    top = xp.max(a, axis=1)
    shift = xp.where(top > -np.inf, top, xp.zeros_like(top))
    total = xp.sum(xp.exp(a - shift[:, None]), axis=1)
    some = total > 0
    return xp.where(some, shift + xp.log(xp.where(some, total, xp.ones_like(total))), -np.inf)


def sample_rows(prob: Floats, rng: np.random.Generator) -> Floats:
    """Draw an index along the last axis with the given probabilities, (..., K) -> (...)."""
    below = np.cumsum(prob, axis=-1) < rng.random(prob.shape[:-1])[..., None]
    return np.minimum(below.sum(axis=-1), prob.shape[-1] - 1)


# -- rows, block by block ----------------------------------------------------------------------


def row_blocks(
    n_rows: int,
    n_columns: int,
    *,
    on_device: bool = False,
    least: int = 296,
    block_bytes: int | None = None,
    even: bool = False,
) -> Iterator[slice]:
    """Cut `n_rows` into blocks that fit the cache; the cuts depend on the shape alone.

    A block has at least `least` rows, however wide they are, and `block_bytes` in all, unless the
    machine decides. If asked, blocks come in pairs of about one length, so that two threads have as
    much to do, and less than half a block is not cut.
    """
    budget = block_bytes or (_DEVICE_BLOCK_BYTES if on_device else BLOCK_BYTES)
    size = max(budget // (8 * max(n_columns, 1)), least)
    if even and 2 * n_rows > size:
        pairs = -(-n_rows // (2 * size))
        size = max(-(-n_rows // (2 * pairs)), least) + 215  # to be rounded up
    if size > 296:
        # Not a multiple of a page: columns that start at one offset in it compete for cache sets.
        # A device reads 16 bytes at a time where columns begin at a multiple of those.
        size = size // 256 * 256 + (0 if on_device else 40)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def design(X: Array, center: Floats | None = None, scale: Floats | None = None) -> Array:
    """Return the design of a block: a column of ones, then X, standardised if asked.

    Parameters
    ----------
    X : array of shape (n, d)
    center, scale : ndarray of shape (d,), optional

    Returns
    -------
    array of shape (n, d + 1), float64, laid out column by column
    """
    n, d = X.shape
    if isinstance(X, np.ndarray):
        columns = _aligned(d + 1, n)
        columns[0] = 1.0
        if center is None or scale is None:
            columns[1:] = X.T
        elif kernels is not None:
            kernels.standardise(X, center, 1 / scale, columns[1:])
        else:
            columns[1:] = (X.T - center[:, None]) * (1 / scale)[:, None]
        return columns.T
    xp = namespace(X)
    triton = cuda_kernels(X)
    if triton is not None:
        shift = np.zeros(d) if center is None else center
        return triton.design(X, like(shift, X), like(np.ones(d) if scale is None else 1 / scale, X))
    rows = xp.astype(X, xp.float64)
    if center is not None and scale is not None:
        rows = rows - like(center, X)[None, :]
    # A product with a scaled selection matrix lays the columns out faster than a transposing copy.
    factor = np.ones(d) if scale is None else 1 / scale
    columns = like(np.vstack([np.zeros(d), np.diag(factor)]), X) @ rows.T
    columns[0, :] = 1.0
    return columns.T


def _aligned(n_rows: int, n_columns: int) -> Floats:
    """Return room for an array (n_rows, n_columns) that begins with a cache line.

    So does every row where their length is a multiple of eight, as that of blocks is: vectors that
    lie across two lines would be read twice.
    """
    flat = np.empty(n_rows * n_columns + 8)
    first = -(flat.__array_interface__["data"][0] // 8) % 8
    return flat[first : first + n_rows * n_columns].reshape(n_rows, n_columns)


def block_sum(function: Callable[[Any], Any], blocks: Iterator[Any], pool: Executor | None) -> Any:
    """Sum `function` over blocks, in the order of the blocks whatever the number of threads."""
    results = map(function, blocks) if pool is None else pool.map(function, blocks)
    return reduce(operator.add, results)


def weighted_sum(X: Array, weights: Array) -> Array:
    """Return ``weights.T @ X``.

    Parameters
    ----------
    X : array of shape (n, p)
        Fastest when ``X.T`` and ``weights.T`` are contiguous.
    weights : array of shape (n, J)

    Returns
    -------
    array of shape (J, p), in the namespace of `X`
    """
    if isinstance(X, np.ndarray) and kernels is not None:
        out = np.zeros((weights.shape[1], X.shape[1]))
        kernels.weighted_sum(np.ascontiguousarray(X.T), np.ascontiguousarray(weights.T), out)
        return out
    triton = cuda_kernels(X)
    if triton is not None and weights.shape[1] <= triton.MOST_COLUMNS:
        return triton.weighted_sums(X, weights[:, :0], weights).reshape(-1, X.shape[1])
    return weights.T @ X


def weighted_gram(X: Array, weights: Array) -> Array:
    """Return ``X.T @ diag(w) @ X`` for every column w of `weights`.

    Parameters
    ----------
    X : array of shape (n, p)
        Fastest when ``X.T`` and ``weights.T`` are contiguous.
    weights : array of shape (n, J)

    Returns
    -------
    array of shape (J, p, p), symmetric, in the namespace of `X`

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [1.0, 3.0]])
    >>> weighted_gram(X, np.array([[1.0], [2.0]]))
    array([[[ 3.,  8.],
            [ 8., 22.]]])
    """
    if isinstance(X, np.ndarray) and kernels is not None:
        p = X.shape[1]
        out = np.zeros((weights.shape[1], p, p))
        kernels.weighted_gram(np.ascontiguousarray(X.T), np.ascontiguousarray(weights.T), out)
        kernels.mirror(out)
        return out
    triton = cuda_kernels(X)
    if triton is not None and weights.shape[1]:
        p = X.shape[1]
        return triton.weighted_sums(X, weights, weights[:, :0]).reshape(-1, p, p)
    return weighted_gram_plain(X, weights)


def weighted_sums(X: Array, weights: Array, linear: Array) -> tuple[Floats, Floats]:
    """Return :func:`weighted_gram` of `weights` and :func:`weighted_sum` of `linear`, in NumPy.

    On a device both are one pass, and one copy of what it finds.
    """
    triton = cuda_kernels(X)
    if triton is None or linear.shape[1] > triton.MOST_COLUMNS:
        return to_numpy(weighted_gram(X, weights)), to_numpy(weighted_sum(X, linear))
    J, p = weights.shape[1], X.shape[1]
    grams, sums = np.split(to_numpy(triton.weighted_sums(X, weights, linear)), [J * p * p])
    return grams.reshape(J, p, p), sums.reshape(-1, p)


def on_accelerator(array: Array) -> bool:
    """Say whether an array lies on a CUDA device."""
    return bool(getattr(array, "is_cuda", False))


def cuda_kernels(X: Array) -> Any:
    """Return the kernels for a CUDA tensor (n, p); None where another way has to be taken."""
    triton = _triton() if on_accelerator(X) else None
    fits = triton is not None and X.shape[0] and 0 < X.shape[1] < triton.MOST_COLUMNS
    return triton if fits else None


@cache
def _triton() -> Any:
    """Return the kernels for CUDA tensors, or None where Triton is missing."""
    try:
        from otmoe.arrays import triton as _triton
    except ImportError:
        return None
    return _triton


def weighted_gram_plain(X: Array, weights: Array) -> Array:
    """Array-API version of :func:`weighted_gram`: one product with all weighted copies of X."""
    xp = namespace(X, weights)
    n, p = X.shape
    n_weights = weights.shape[1]
    features = X.T  # (p, n)
    scaled = xp.reshape(weights.T[:, None, :] * features[None, :, :], (n_weights * p, n))
    return xp.reshape(scaled @ X, (n_weights, p, p))
