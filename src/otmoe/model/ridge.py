"""The weak prior that keeps coefficients finite where rows do not (maths 3 and 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.model.experts import Experts
from otmoe.model.mixture import MoE

_LEAST_GATE, _LEAST = 3e-4, 0.3  # of a shard (`python -m benchmarks merging`)
# Of experts' slopes where no prior is asked for (`python -m benchmarks constants`)
_HOLD = 1e-5


@dataclass(frozen=True)
class Ridge:
    """Ridges on standardised features, taken from the summed log-likelihood.

    Attributes
    ----------
    gate : float
        Of ``gate / 2 * sum_k |A_k - mean A|^2``.
    experts : float
        Of ``experts / 2 * sum_k |slopes of expert k|^2``, for families without a dispersion.
    """

    gate: float
    experts: float

    @classmethod
    def of(
        cls,
        family: Experts | type[Experts],
        alpha: float | None = None,
        expert_alpha: float | None = None,
    ) -> Self:
        """Return what is asked for, and what the family's tables recommend for the rest."""
        return cls(
            family.alpha if alpha is None else float(alpha),
            family.expert_alpha if expert_alpha is None else float(expert_alpha),
        )

    def shared(self, n_shards: int) -> Self:
        """Return a shard's part of the ridge, so that all together bear it once; never too little.

        A shard of few rows keeps what any fit needs for its coefficients to stay finite.
        """
        gate, experts = self.gate / n_shards, self.experts / n_shards
        return type(self)(
            max(gate, min(self.gate, _LEAST_GATE)), max(experts, min(self.experts, _LEAST))
        )

    @property
    def held(self) -> float:
        """The ridge on the experts' slopes, which is never quite nothing."""
        return max(self.experts, _HOLD)

    def matrix(self, model: MoE) -> Floats:
        """Return the matrix P of the penalty theta' P theta / 2 on the free parameters, (P, P)."""
        gate, P = model.gate.n_parameters, model.n_parameters
        matrix = np.zeros((P, P))
        matrix[:gate, :gate] = model.gate.penalty_matrix(self.gate)
        matrix[gate:, gate:] = model.experts.penalty_matrix(self.held)
        return np.where(model.held | model.held[:, None], 0.0, matrix) if model.zeros else matrix
