"""Grams in messages: their fields, the checks on them, and both ways of conversion."""

from __future__ import annotations

from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.grams import Grams
from otmoe.text.errors import fail
from otmoe.text.records import List, Record, Row, adds_up
from otmoe.text.sentences import Error

_INDEFINITE = 1e-8  # of the largest eigenvalue: what rounding may leave below zero


class GramsRecord(Record):
    """Rows assigned to each expert, and upper triangles of its Gram matrix, row by row."""

    counts: Row
    triangles: List[Row]


def grams_document(grams: Grams) -> dict[str, Any]:
    """Return Grams as they stand in a message."""
    upper = np.triu_indices(grams.matrices.shape[-1])
    return {
        "counts": grams.counts.tolist(),
        "triangles": [matrix[upper].tolist() for matrix in grams.matrices],
    }


def grams_of(record: GramsRecord) -> Grams:
    """Return the Grams of a record that :func:`check_grams` has let pass."""
    triangles = np.array(record.triangles, np.float64)
    size = _size(triangles.shape[1])
    upper = np.triu_indices(size)
    matrices = np.zeros((len(triangles), size, size))
    matrices[:, upper[0], upper[1]] = triangles
    matrices[:, upper[1], upper[0]] = triangles
    return Grams(np.array(record.counts, np.float64), matrices)


def check_grams(
    record: GramsRecord, n_experts: int, size: int, n_samples: float, source: str
) -> None:
    """Check that Grams fit the model beside them.

    Parameters
    ----------
    record : GramsRecord
    n_experts : int
    size : int
        Columns of a matrix, Q p.
    n_samples : float
    source : str
        Where the record comes from; an error begins with it.
    """
    for name in ("counts", "triangles"):
        found = len(getattr(record, name))
        if found != n_experts:
            fail(source, f"grams.{name}", Error.LENGTH, length=found, wanted=n_experts)
    for k, count in enumerate(record.counts):
        if count < 0:
            fail(source, f"grams.counts[{k}]", Error.NOT_ROWS, value=count)
    total = sum(record.counts)
    if not adds_up(total, n_samples):
        fail(source, "grams.counts", Error.SUM_NOT_ROWS, total=total, rows=n_samples)
    for k, triangle in enumerate(record.triangles):
        wanted = size * (size + 1) // 2
        if len(triangle) != wanted:
            fail(
                source,
                f"grams.triangles[{k}]",
                Error.TRIANGLE,
                length=len(triangle),
                size=size,
                wanted=wanted,
            )
    for k, matrix in enumerate(grams_of(record).matrices):
        if np.any(np.diagonal(matrix)) and not is_semidefinite(matrix, np.diagonal(matrix)):
            fail(source, f"grams.triangles[{k}]", Error.NOT_A_GRAM)


def is_semidefinite(matrix: Floats, size: Floats) -> bool:
    """Say whether a symmetric matrix has no negative eigenvalue but by rounding.

    Parameters
    ----------
    matrix : ndarray of shape (p, p)
    size : ndarray of shape (p,)
        Squares of the units of its rows and columns; 1 if it is not a positive number.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.sqrt(np.where(size > 0, size, 1.0))
        unit = matrix / scale[:, None] / scale
    return not unit.size or bool(
        np.all(np.isfinite(unit)) and np.linalg.eigvalsh(unit)[0] >= -_INDEFINITE * len(unit)
    )


def _size(n: int) -> int:
    """Return the columns of a symmetric matrix whose upper triangle has n numbers."""
    return int((np.sqrt(8 * n + 1) - 1) / 2 + 0.5)
