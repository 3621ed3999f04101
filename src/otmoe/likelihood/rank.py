"""What rows can determine of a model at all: constant and collinear columns (maths 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import linalg

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats
from otmoe.model.mixture import MoE
from otmoe.model.structure import Structure
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


def check_constants(
    structure: Structure | None, constant: Mapping[int, float], names: Sequence[str] | None
) -> None:
    """Refuse constant features where an expert without an intercept would take them for one.

    Parameters
    ----------
    structure : Structure, optional
    constant : mapping from int to float
        Features that are constant, and their value.
    names : sequence of str, optional
        Of the features.
    """
    for seen in (seen for own in (structure.sets if structure else ()) for seen in own):
        for j, value in constant.items():
            if 0 not in seen and j + 1 in seen:
                name = f"x{j}" if names is None else names[j]
                raise InvalidInput(Error.ORIGIN_CONSTANT, feature=str(name), value=value)


def minimum_norm(model: MoE, correlation: Floats) -> MoE:
    """Drop the part of the coefficients that no row can see (constant or collinear columns)."""
    gate, experts, K = model.gate, model.experts, model.n_experts
    columns = list(range(len(correlation))) if gate.columns is None else list(gate.columns)
    seen = correlation[np.ix_(columns, columns)]
    blind = _blind(seen)
    coef = gate.coef.copy()
    coef[:, columns] -= (coef[:, columns] @ blind) @ blind.T
    gate = replace(gate, coef=coef)
    if model.structure is None:
        blind = _blind(correlation)
        coef = experts.coef - (experts.coef @ blind) @ blind.T
        return replace(model, gate=gate, experts=replace(experts, coef=coef))
    C, gram = _free_moments(model, correlation)
    hidden, vector = C @ _blind(gram), np.array(experts.to_vector())
    size = K * experts.n_linear * experts.n_columns
    if hidden.shape[1]:
        vector[:size] -= hidden @ np.linalg.lstsq(hidden, vector[:size])[0]
    return replace(model, gate=gate, experts=experts.with_vector(vector))


def _blind(moments: Floats) -> Floats:
    """Return an orthonormal basis of what no row can see, given second moments of what is seen."""
    values, vectors = linalg.eigh(moments)
    return np.asarray(vectors[:, values <= RANK_TOLERANCE * values[-1]])


def _free_moments(model: MoE, correlation: Floats) -> tuple[Floats, Floats]:
    """Return C of the experts' coefficients, and the second moments of what psi multiplies."""
    experts = model.experts
    K, Q, p = model.n_experts, experts.n_linear, experts.n_columns
    C = (model.structure or Structure()).coefficients(K, Q, p)
    each = C.reshape(K * Q, p, C.shape[1])
    return C, np.einsum("kiq,ij,kjr->qr", each, correlation, each, optimize=True)


def determined(model: MoE, correlation: Floats) -> int:
    """Return the number of parameters that rows can determine at all."""

    def blind(columns: list[int] | slice) -> int:
        part = correlation[columns][:, columns]
        return len(part) - int(np.linalg.matrix_rank(part, tol=RANK_TOLERANCE, hermitian=True))

    gate = slice(None) if model.gate.columns is None else list(model.gate.columns)
    K = model.n_experts
    lost = (K - 1) * blind(gate)
    if model.structure is None:
        return model.n_parameters - lost - K * model.experts.n_linear * blind(slice(None))
    return model.n_free - lost - _blind(_free_moments(model, correlation)[1]).shape[1]
