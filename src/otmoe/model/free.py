"""What is free in the parameters of a model: theta = C psi (maths 21)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.model.mixture import MoE


@dataclass(frozen=True)
class Free:
    """The free parameters psi of a structure, theta = C psi; theta itself where there is none.

    Attributes
    ----------
    basis : ndarray of shape (P, q), optional
        C; None for the identity.
    fixed : ndarray of shape (P,), optional
        What is added to C psi: parameters of experts that have nothing to choose.
    """

    basis: Floats | None = None
    fixed: Floats | None = None

    @classmethod
    def of(cls, model: MoE) -> Self:
        """Return those of a model."""
        fixed = np.where(model.held, model.to_vector(), 0.0) if model.zeros else None
        return cls(model.basis, fixed)

    def theta(self, psi: Floats) -> Floats:
        """Return a step of the parameters, (P,)."""
        return psi if self.basis is None else self.basis @ psi

    def point(self, psi: Floats) -> Floats:
        """Return the parameters themselves, (P,)."""
        return self.theta(psi) if self.fixed is None else self.theta(psi) + self.fixed

    def psi(self, theta: Floats) -> Floats:
        """Return what is free in parameters (P,), (q,); their projection if they lack it."""
        return theta if self.basis is None else np.linalg.lstsq(self.basis, theta)[0]

    def score(self, score: Floats) -> Floats:
        """Return a gradient in theta as one in psi, (q,)."""
        return score if self.basis is None else self.basis.T @ score

    def matrix(self, matrix: Floats) -> Floats:
        """Return a quadratic form in theta as one in psi, (q, q)."""
        return matrix if self.basis is None else self.basis.T @ matrix @ self.basis
