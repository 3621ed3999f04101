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
    """

    basis: Floats | None = None

    @classmethod
    def of(cls, model: MoE) -> Self:
        """Return those of a model."""
        return cls(model.basis)

    def theta(self, psi: Floats) -> Floats:
        """Return the parameters, (P,)."""
        return psi if self.basis is None else self.basis @ psi

    def psi(self, theta: Floats) -> Floats:
        """Return what is free in parameters (P,), (q,); their projection if they lack it."""
        return theta if self.basis is None else np.linalg.lstsq(self.basis, theta)[0]

    def score(self, score: Floats) -> Floats:
        """Return a gradient in theta as one in psi, (q,)."""
        return score if self.basis is None else self.basis.T @ score

    def matrix(self, matrix: Floats) -> Floats:
        """Return a quadratic form in theta as one in psi, (q, q)."""
        return matrix if self.basis is None else self.basis.T @ matrix @ self.basis
