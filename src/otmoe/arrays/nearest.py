"""Relaxed transport plans: at every row each source goes, whole, to the target nearest to it.

Which target is nearest depends on the family, in one of two forms; what the targets then receive
does not (maths 11). NumPy arrays go through compiled kernels, others through array-API versions
that hold all (n, L, K) costs of a block.
"""

from __future__ import annotations

import numpy as np

from otmoe.arrays import numerics
from otmoe.arrays.numerics import Array, Floats, like, namespace


def nearest_square(
    mean: Array, var: Array | float, center: Array, precision: Floats, constant: Floats
) -> tuple[Array, Array]:
    """Return the target that maximises ``constant - precision / 2 * ((mean - center)^2 + var)``.

    Parameters
    ----------
    mean : array of shape (n, L)
    var : array broadcastable to (n, L)
    center : array of shape (n, K)
    precision, constant : ndarray of shape (K,)

    Returns
    -------
    index : array of int of shape (n, L)
        The first of the best.
    value : array of shape (n, L)
        What it reaches.

    Examples
    --------
    >>> index, _ = nearest_square(
    ...     np.array([[0.1, 0.9]]), 0.0, np.array([[0.0, 1.0]]), np.ones(2), np.zeros(2)
    ... )
    >>> index
    array([[0, 1]], dtype=int32)
    """
    if isinstance(mean, np.ndarray) and numerics.kernels is not None:
        index, value = _outputs(mean.shape)
        numerics.kernels.nearest_square(
            np.ascontiguousarray(mean.T),
            _columns(var, mean.shape[1]),
            np.ascontiguousarray(center.T),
            precision,
            constant,
            index,
            value,
        )
        return index.T, value.T
    xp = namespace(mean)
    square = (mean[:, :, None] - center[:, None, :]) ** 2
    square += var if isinstance(var, float) else var[:, :, None]
    return _best(xp, like(constant, mean) - 0.5 * like(precision, mean) * square)


def nearest_linear(mean: Array, eta: Array, cumulant: Array) -> tuple[Array, Array]:
    """Return the target that maximises ``mean' eta - cumulant``.

    Parameters
    ----------
    mean : array of shape (n, L) or (n, L, Q)
    eta : array of shape (n, K) or (n, K, Q)
    cumulant : array of shape (n, K)

    Returns
    -------
    index : array of int of shape (n, L)
        The first of the best.
    value : array of shape (n, L)
        What it reaches.
    """
    if isinstance(mean, np.ndarray) and numerics.kernels is not None:
        index, value = _outputs(mean.shape[:2])
        numerics.kernels.nearest_linear(
            _terms(mean), _terms(eta), np.ascontiguousarray(cumulant.T), index, value
        )
        return index.T, value.T
    xp = namespace(mean)
    if mean.ndim == 2:
        product = mean[:, :, None] * eta[:, None, :]
    else:
        product = mean @ xp.permute_dims(eta, (0, 2, 1))
    return _best(xp, product - cumulant[:, None, :])


def collected(
    index: Array, weight: Array, mean: Array, var: Array | float | None, n_targets: int
) -> tuple[Array, Array, Array | float]:
    """Return what every target receives: mass, mean response, and variance around that mean.

    Parameters
    ----------
    index : array of int of shape (n, L)
        The target of each source.
    weight : array of shape (n, L)
    mean : array of shape (n, L) or (n, L, Q)
    var : array broadcastable to (n, L), or None if variances are not wanted
    n_targets : int

    Returns
    -------
    mass : array of shape (n, K)
    mean : array of shape (n, K) or (n, K, Q)
        Zero where there is no mass.
    var : array of shape (n, K), or 0
        Within the sources and between them.
    """
    if isinstance(mean, np.ndarray) and numerics.kernels is not None:
        index, weight = np.ascontiguousarray(index.T), np.ascontiguousarray(weight.T)
        terms = _terms(mean)
        n = mean.shape[0]
        mass = np.zeros((n_targets, n))
        total = np.zeros((n_targets, terms.shape[1], n))
        numerics.kernels.collect(index, weight, terms, mass, total)
        some = np.where(mass > 0, mass, 1.0)
        total /= some[:, None, :]
        center = total[:, 0, :].T if mean.ndim == 2 else np.transpose(total, (2, 0, 1))
        if var is None:
            return mass.T, center, 0.0
        spread = np.zeros((n_targets, n))
        numerics.kernels.collect_spread(
            index, weight, terms[:, 0, :], _columns(var, len(index)), total[:, 0, :], spread
        )
        return mass.T, center, (spread / some).T
    xp = namespace(mean)
    targets = xp.arange(n_targets, dtype=index.dtype, device=getattr(index, "device", None))
    zero = xp.zeros_like(weight)[:, :, None]
    sent = xp.where(index[:, :, None] == targets, weight[:, :, None], zero)  # (n, L, K)
    mass = xp.sum(sent, axis=1)
    some = xp.where(mass > 0, mass, xp.ones_like(mass))
    received = xp.permute_dims(sent, (0, 2, 1))  # (n, K, L)
    if mean.ndim == 3:
        return mass, (received @ mean) / some[:, :, None], 0.0
    center = (received @ mean[:, :, None])[:, :, 0] / some
    if var is None:
        return mass, center, 0.0
    square = (mean[:, :, None] - center[:, None, :]) ** 2
    square += var if isinstance(var, float) else var[:, :, None]
    return mass, center, xp.sum(sent * square, axis=1) / some


def _best(xp: object, value: Array) -> tuple[Array, Array]:
    return xp.argmax(value, axis=2), xp.max(value, axis=2)  # type: ignore[attr-defined]


def _outputs(shape: tuple[int, int]) -> tuple[Floats, Floats]:
    n, n_sources = shape
    return np.empty((n_sources, n), dtype=np.int32), np.empty((n_sources, n))


def _columns(var: Array | float, n_sources: int) -> Floats:
    """Return variances by source, (L, n), or (L, 1) where they are the same at every row."""
    var = np.atleast_2d(np.asarray(var, dtype=np.float64)).T
    return np.ascontiguousarray(np.broadcast_to(var, (n_sources, var.shape[1])))


def _terms(a: Floats) -> Floats:
    """Return (n, L) or (n, L, Q) as (L, Q, n)."""
    rows = a.T[:, None, :] if a.ndim == 2 else np.transpose(a, (1, 2, 0))
    return np.ascontiguousarray(rows)
