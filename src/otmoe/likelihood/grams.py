"""Gram matrices of experts: what a site adds to its parameters so that they can be pooled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.statistics import e_step
from otmoe.model.experts import Experts
from otmoe.model.experts.values import FitStatistics
from otmoe.model.mixture import MoE


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
        return cls._of_sums(model.experts, e_step(model, rows).experts)

    @classmethod
    def expected(cls, experts: Experts, X: Floats, weight: Floats) -> Self:
        """Return the Grams that experts expect before y is known.

        Parameters
        ----------
        experts : Experts
        X : ndarray of shape (n, p)
            Design.
        weight : ndarray of shape (n, K)
            Of the experts at each row.
        """
        response = experts.response(experts.predictor(X))
        return cls._of_sums(experts, experts.statistics(X, response, weight))

    @classmethod
    def _of_sums(cls, experts: Experts, sums: FitStatistics) -> Self:
        K, Q, _, p, _ = sums.information.shape
        matrices = sums.information.swapaxes(2, 3).reshape(K, Q * p, Q * p)
        return cls(sums.weight, matrices * experts.coef_unit[:, None, None] ** 2)

    def take(self, order: Any) -> Self:
        """Return the Grams of some experts, in that order."""
        return type(self)(self.counts[order], self.matrices[order])

    @property
    def n_floats(self) -> int:
        """Numbers that are sent."""
        size = self.matrices.shape[-1]
        return len(self.counts) * (1 + size * (size + 1) // 2)
