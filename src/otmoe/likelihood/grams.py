"""Gram matrices of experts: what a site adds to its parameters so that they can be pooled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import e_step
from otmoe.model.mixture import MoE
from otmoe.text.errors import fail
from otmoe.text.records import List, Record, Row
from otmoe.text.sentences import Error

_SAME = 1e-6  # relative: what a site rounds in its message
_INDEFINITE = 1e-8  # of the largest eigenvalue: what rounding may leave below zero


class GramsRecord(Record):
    """Rows that each expert answers for, and upper triangles of its Gram matrix, row by row."""

    counts: Row
    triangles: List[Row]


@dataclass(frozen=True)
class Grams:
    """Second moments of x, as each expert sees the rows (maths 13).

    With responsibilities r and the curvature v of the expert's log density in its predictor, expert
    k has the count sum_i r_ik and the matrix sum_i r_ik v_ik x_i x_i'. For Gaussian experts v is 1
    (the variance is left out); for experts with C classes the matrix has C - 1 blocks each way.

    Attributes
    ----------
    counts : ndarray of shape (K,)
    matrices : ndarray of shape (K, Q p, Q p)
        Q is the number of linear predictors of an expert: C - 1, or 1.
    """

    counts: Floats
    matrices: Floats

    @classmethod
    def of(cls, model: MoE, rows: Rows) -> Self:
        """Return the Grams of a model's experts, in one pass over the rows.

        Parameters
        ----------
        model : MoE
            On the scale of the rows' blocks.
        rows : Rows
        """
        sums = e_step(model, rows).experts
        dispersion = model.experts.dispersion
        unit = np.ones(model.n_experts) if dispersion is None else dispersion
        K, Q, _, p, _ = sums.information.shape
        matrices = sums.information.swapaxes(2, 3).reshape(K, Q * p, Q * p)
        return cls(sums.weight, matrices * unit[:, None, None])

    def take(self, order: Any) -> Self:
        """Return the Grams of some experts, in that order."""
        return type(self)(self.counts[order], self.matrices[order])

    @property
    def n_floats(self) -> int:
        """Numbers that are sent."""
        size = self.matrices.shape[-1]
        return len(self.counts) * (1 + size * (size + 1) // 2)

    def document(self) -> dict[str, Any]:
        """Return the Grams as they stand in a message."""
        upper = np.triu_indices(self.matrices.shape[-1])
        return {
            "counts": self.counts.tolist(),
            "triangles": [matrix[upper].tolist() for matrix in self.matrices],
        }

    @classmethod
    def from_record(cls, record: GramsRecord) -> Self:
        """Return the Grams of a record that :func:`check_grams` has let pass."""
        triangles = np.array(record.triangles, np.float64)
        size = _size(triangles.shape[1])
        upper = np.triu_indices(size)
        matrices = np.zeros((len(triangles), size, size))
        matrices[:, upper[0], upper[1]] = triangles
        matrices[:, upper[1], upper[0]] = triangles
        return cls(np.array(record.counts, np.float64), matrices)


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
    if abs(total - n_samples) > _SAME * n_samples:
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
    for k, matrix in enumerate(Grams.from_record(record).matrices):
        with np.errstate(over="ignore", invalid="ignore"):
            largest = np.abs(np.diagonal(matrix)).max()
            scale = np.sqrt(np.where(np.diagonal(matrix) > 0, np.diagonal(matrix), 1.0))
            unit = matrix / scale[:, None] / scale
        if largest > 0 and not (
            np.all(np.isfinite(unit)) and np.linalg.eigvalsh(unit)[0] >= -_INDEFINITE * size
        ):
            fail(source, f"grams.triangles[{k}]", Error.NOT_A_GRAM)


def _size(n: int) -> int:
    """Return the columns of a symmetric matrix whose upper triangle has n numbers."""
    return int((np.sqrt(8 * n + 1) - 1) / 2 + 0.5)
