"""Newton steps within a radius: a quadratic says where to go, and a trust region how far."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import RANK_TOLERANCE, NewtonPoint, units_of
from otmoe.arrays.numerics import Floats

_THIN = 1e-9  # least curvature by which a step is measured; thinner directions are not seen


def bounded_step(
    point: NewtonPoint, radius: float, otherwise: float, blocks: Floats | None = None
) -> tuple[Floats, float]:
    """Return the step that promises most within a radius, and the undamped decrement.

    Where the information is not positive definite, its eigenvalues count by their size: a quadratic
    without a maximum says where to go, and no more than its curvature how far.

    Parameters
    ----------
    point : NewtonPoint
    radius : float
        Bound on the step's :func:`length`; infinite for none.
    otherwise : float
        The radius where there is none, and the information is not positive definite.
    blocks : ndarray of int of shape (P,), optional
        As for :func:`length`.
    """
    scale = units_of(point.information)
    H = point.information * scale[:, None] * scale
    values, vectors, b = _spectrum(H, point.score * scale)
    decrement = _decrement(values, b)
    if radius == decrement == np.inf:
        radius = otherwise
    metric = vectors.T @ _block_sizes(H, blocks) @ vectors
    newton = b / values
    if np.isfinite(decrement) and newton @ metric @ newton <= radius**2:
        return scale * (vectors @ newton), decrement
    # both matrices diagonal: Z' metric Z = 1, Z' information Z = sizes
    sizes, Z = linalg.eigh(np.diag(values), metric)
    sizes, c = np.abs(sizes), Z.T @ b

    def step(damping: float) -> Floats:
        return c / (sizes + damping)

    low, high = 0.0, 1e-6
    while np.linalg.norm(step(high)) > radius:
        low, high = high, 4 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.linalg.norm(step(middle)) > radius else (low, middle)
    return scale * (vectors @ (Z @ step(high))), decrement


def length(information: Floats, step: Floats, blocks: Floats | None = None) -> float:
    """Return the length of a step in standard errors.

    They are those that parameters would have if those of other blocks were known: a direction that
    the columns of one block hardly determine has a large one, and one that two blocks share a small
    one, though the information there may be next to none.

    Parameters
    ----------
    information : ndarray of shape (P, P)
    step : ndarray of shape (P,)
    blocks : ndarray of int of shape (P,), optional
        Block of each parameter; by default each is one of its own.
    """
    scale = units_of(information)
    d = step / scale
    return float(np.sqrt(d @ _block_sizes(information * scale[:, None] * scale, blocks) @ d))


def _block_sizes(H: Floats, blocks: Floats | None) -> Floats:
    """Return the diagonal blocks of H with eigenvalues by their size, and zeros elsewhere."""
    sizes = np.zeros_like(H)
    for block in range(len(H)) if blocks is None else np.unique(blocks):
        here = np.flatnonzero((np.arange(len(H)) if blocks is None else blocks) == block)
        values, vectors = np.linalg.eigh(H[np.ix_(here, here)])
        sizes[np.ix_(here, here)] = (vectors * np.maximum(np.abs(values), _THIN)) @ vectors.T
    return sizes


def _spectrum(H: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """Return eigenvalues that are not 0, their eigenvectors, and b in the basis of these."""
    values, vectors = linalg.eigh(H, driver="evd")
    live = np.abs(values) > RANK_TOLERANCE * np.max(np.abs(values), initial=1e-300)
    values, vectors = values[live], vectors[:, live]
    return values, vectors, vectors.T @ b


def _decrement(values: Floats, b: Floats) -> float:
    """Return ``g' I^-1 g``; infinite where the information is not positive definite."""
    return np.inf if np.any(values < 0) else float(np.sum(b**2 / values))
