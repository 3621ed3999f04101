"""Array namespaces, row blocks, weighted Gram products, safeguarded Newton.

Row-sized arrays stay in the caller's namespace (NumPy, torch, any array-API library); sums over
rows come back as NumPy arrays. Blocks of rows are laid out feature by feature ("F order"), so that
reductions over experts and dot products over rows both run along contiguous memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from typing import Any

import array_api_compat
import numpy as np
from scipy import linalg

try:
    from otmoe import _kernels
except ImportError:  # a Python that numba does not support yet: the plain version serves
    _kernels = None  # type: ignore[assignment]

Array = Any
"""An array of the caller's namespace; shapes are given in docstrings."""

Floats = np.ndarray
"""A NumPy array of parameters or of sums over rows."""

_BLOCK_BYTES = 2**19  # one block's features: half of a core's second-level cache
_DEVICE_BLOCK_BYTES = 2**28
RANK_TOLERANCE = 1e-11
"""Eigenvalues below this fraction of the largest count as zero."""


# -- arrays ------------------------------------------------------------------------------------


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace the arrays share."""
    return array_api_compat.array_namespace(*arrays)


def like(values: Any, reference: Array) -> Array:
    """Return `values` as float64 in the namespace and on the device of `reference`."""
    if isinstance(reference, np.ndarray):
        return np.asarray(values, dtype=np.float64)
    xp = namespace(reference)
    device = array_api_compat.device(reference)
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values, dtype=np.float64)
    return xp.asarray(values, dtype=xp.float64, device=device)


def to_numpy(array: Array) -> Floats:
    """Copy an array of any namespace to NumPy (no copy if it is NumPy's already)."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "detach"):  # torch, possibly on a GPU
        array = array.detach().cpu()
    return np.asarray(array)


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
    return (like(coef, X) @ X.T).T


def log_softmax(eta: Array) -> Array:
    """Log of the softmax over the second axis, (n, K) -> (n, K)."""
    return eta - logsumexp(eta)[:, None]


def logsumexp(a: Array) -> Array:
    """Log of the sum of exponentials over the second axis, (n, K) -> (n,).

    A row whose entries are all -inf gives -inf.
    """
    xp = namespace(a)
    top = xp.max(a, axis=1)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    return top + xp.log(xp.sum(xp.exp(a - top[:, None]), axis=1))


# -- rows, block by block ----------------------------------------------------------------------


def row_blocks(n_rows: int, n_columns: int, *, on_device: bool = False) -> Iterator[slice]:
    """Cut `n_rows` into blocks that fit the cache; the cuts depend on the shape alone."""
    budget = _DEVICE_BLOCK_BYTES if on_device else _BLOCK_BYTES
    size = max(budget // (8 * max(n_columns, 1)) // 256 * 256, 256)
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
        columns = np.empty((d + 1, n))
        columns[0] = 1.0
        if center is None or scale is None:
            columns[1:] = X.T
        else:
            np.subtract(X.T, center[:, None], out=columns[1:])
            columns[1:] /= scale[:, None]
        return columns.T
    xp = namespace(X)
    features = xp.astype(X.T, xp.float64)
    if center is not None and scale is not None:
        features = (features - like(center[:, None], X)) / like(scale[:, None], X)
    return xp.concat([xp.ones_like(features[:1, :]), features]).T


def block_sum(function: Callable[[Any], Any], blocks: Iterator[Any], pool: Executor | None) -> Any:
    """Sum `function` over blocks, in the order of the blocks whatever the number of threads."""
    results = map(function, blocks) if pool is None else pool.map(function, blocks)
    return reduce(operator.add, results)


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
    if isinstance(X, np.ndarray) and _kernels is not None:
        p = X.shape[1]
        out = np.zeros((weights.shape[1], p, p))
        _kernels.weighted_gram(np.ascontiguousarray(X.T), np.ascontiguousarray(weights.T), out)
        upper = np.triu_indices(p, 1)
        out[:, upper[1], upper[0]] = out[:, upper[0], upper[1]]
        return out
    return weighted_gram_plain(X, weights)


def weighted_gram_plain(X: Array, weights: Array) -> Array:
    """Array-API version of :func:`weighted_gram`: one matrix product over all weighted copies of X."""
    xp = namespace(X, weights)
    n, p = X.shape
    n_weights = weights.shape[1]
    features = X.T  # (p, n)
    scaled = xp.reshape(weights.T[:, None, :] * features[None, :, :], (n_weights * p, n))
    return xp.reshape(scaled @ X, (n_weights, p, p))


# -- linear algebra on parameters ----------------------------------------------------------------


def solve_psd(H: Floats, g: Floats) -> Floats:
    """Solve ``H d = g`` for a symmetric positive semidefinite H; minimum norm where H is singular.

    Parameters
    ----------
    H : ndarray of shape (P, P)
    g : ndarray of shape (P,)

    Returns
    -------
    ndarray of shape (P,)

    Examples
    --------
    >>> solve_psd(np.array([[1.0, 1.0], [1.0, 1.0]]), np.array([2.0, 2.0]))
    array([1., 1.])
    """
    scale = np.max(np.abs(np.diagonal(H)), initial=0.0)
    if scale == 0.0:
        return np.zeros_like(g)
    try:
        factor = linalg.cho_factor(H, lower=True)
        if np.min(np.diagonal(factor[0])) ** 2 > RANK_TOLERANCE * scale:
            return np.asarray(linalg.cho_solve(factor, g))
    except linalg.LinAlgError:
        pass
    values, vectors = linalg.eigh(H)
    keep = values > RANK_TOLERANCE * values[-1]
    return np.asarray(vectors[:, keep] @ ((vectors[:, keep].T @ g) / values[keep]))


@dataclass(frozen=True)
class NewtonPoint:
    """An objective to be maximised, at one point.

    Attributes
    ----------
    value : float
    score : ndarray of shape (P,)
        Gradient.
    information : ndarray of shape (P, P)
        Minus the Hessian, or an approximation of it.
    detail : object
        Whatever else the caller wants to find in the result.
    """

    value: float
    score: Floats
    information: Floats
    detail: Any = None


@dataclass(frozen=True)
class NewtonResult:
    """Where :func:`newton` stopped and why.

    Attributes
    ----------
    theta : ndarray of shape (P,)
    point : NewtonPoint
        The objective there.
    decrement : float
        ``g' I^-1 g``: the squared distance to the maximum, in standard errors, where the objective
        is a log-likelihood; infinite while the information is not positive definite.
    trace : tuple of float
        The objective at the start and after every accepted step.
    n_evaluations : int
    converged : bool
    """

    theta: Floats
    point: NewtonPoint
    decrement: float
    trace: tuple[float, ...]
    n_evaluations: int
    converged: bool


def newton(
    evaluate: Callable[[Floats], NewtonPoint],
    start: Floats,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
    report: Callable[[int, float], None] | None = None,
) -> NewtonResult:
    """Maximise by Newton's method with Levenberg-Marquardt damping.

    With score g and information I at theta, a step d solves ``(I + mu |diag I|) d = g``. It is
    taken if the objective does not fall; otherwise mu grows eightfold and the step is tried again.
    The iteration ends when the decrement ``g' I^-1 g`` is below `tol`, or when no step can raise
    the objective any more.

    Parameters
    ----------
    evaluate : callable, theta -> NewtonPoint
    start : ndarray of shape (P,)
    tol : float
        Bound on the decrement, in units of the objective.
    max_iter : int
        Bound on the number of evaluations after the first.
    report : callable, optional
        Called as report(number of accepted steps, objective).

    Returns
    -------
    NewtonResult
    """
    theta = np.asarray(start, dtype=np.float64)
    point = evaluate(theta)
    trace = [point.value]
    n_evaluations = 0
    damping = 0.0
    while True:
        # 1) the step at the present damping, and the undamped decrement
        step, decrement, damping = _damped_step(point, damping)
        # 2) stop where the quadratic model promises less than tol
        if decrement < tol:
            return NewtonResult(theta, point, decrement, tuple(trace), n_evaluations, True)
        if n_evaluations >= max_iter or not np.all(np.isfinite(step)):
            return NewtonResult(theta, point, decrement, tuple(trace), n_evaluations, False)
        # 3) try it; 4) take it and trust the model more, or damp
        candidate = evaluate(theta + step)
        n_evaluations += 1
        if candidate.value >= point.value:
            theta, point = theta + step, candidate
            trace.append(point.value)
            if report is not None:
                report(len(trace) - 1, point.value)
            damping = 0.0 if damping < 1e-4 else damping / 8
        elif point.score @ step < 1e-11 * (1.0 + abs(point.value)):
            # The promised gain is lost in the rounding of the objective: this is the maximum.
            done = decrement < 1e3 * tol
            return NewtonResult(theta, point, decrement, tuple(trace), n_evaluations, done)
        else:
            damping = max(8 * damping, 1e-3)


def _damped_step(point: NewtonPoint, damping: float) -> tuple[Floats, float, float]:
    """Return the step, the undamped decrement and the damping that made the system definite."""
    g, information = point.score, point.information
    diagonal = np.abs(np.diagonal(information))
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    H = information * scale[:, None] * scale  # unit diagonal: blocks of any units are comparable
    b = g * scale
    values, vectors = linalg.eigh(H)
    b = vectors.T @ b
    cut = RANK_TOLERANCE * max(abs(values[-1]), 1e-300)
    live = np.abs(values) > cut  # directions in which the objective changes at all
    definite = not np.any(values[live] < 0)
    decrement = float(np.sum(b[live] ** 2 / values[live])) if definite else np.inf
    if not definite:
        damping = max(damping, -1.5 * values[0])
    d = np.zeros_like(b)
    d[live] = b[live] / (values[live] + damping)
    return scale * (vectors @ d), decrement, damping
