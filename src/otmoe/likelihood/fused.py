"""Sums over rows by kernels that read them once: in memory, or on a CUDA device (maths 4, 5).

They exist for two or more Gaussian experts; other families take the way of all arrays.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, cast

import numpy as np

from otmoe.arrays.numerics import (
    Floats,
    copies,
    cuda_kernels,
    gaussian,
    to_numpy,
    weighted_sum,
    weighted_sums,
)
from otmoe.arrays.pairs import unpacked
from otmoe.likelihood.rows import Block
from otmoe.model.experts import GaussianExperts
from otmoe.model.mixture import MoE

_MOST = 16  # experts whose pairs fit the registers of a device


class Sums(NamedTuple):
    """The sums of an EM iteration."""

    log_likelihood: float
    mass: Floats
    constant: Floats
    linear: Floats  # (J, p) of the experts, and of the gate
    gate_linear: Floats
    gram: Floats  # (J, p, p)
    gate_gram: Floats


class Scores(NamedTuple):
    """Sums for score and information, as the parts of `likelihood.information` have them."""

    log_likelihood: float
    mass: Floats
    score: Floats
    gram: Floats
    corner: Floats
    constants: Floats


def fit_sums(model: MoE, block: Block) -> Sums | None:
    """Return the sums of an EM iteration; None where there is no kernel."""
    K, p, columns = model.n_experts, block.X.shape[1], model.gate.columns
    if _in_memory(model, block) and columns is None:
        sums, linear = np.zeros(1 + 2 * K), np.zeros((2 * K, p))
        gram = np.zeros((K * (K + 1) // 2, p, p))
        if block.copies is None:
            gaussian.fit(*_in_rows(model, block), sums, linear, gram)
        else:
            copies.fit(*_in_copies(model, block), sums, linear, gram)
        likelihood, mass, constant = sums[0], sums[1 : 1 + K], sums[1 + K :]
        return Sums(float(likelihood), mass, constant, linear[:K], linear[K:], gram[:K], gram[K:])
    kernels = _of_device(model, block)
    if kernels is None:
        return None
    gram, linear = weighted_sums(block.X, *kernels.gaussian_fit(*_arguments(model, block)))
    # The first column is 1: what is summed up with it are sums of the weights.
    mass, constant = gram[:K, 0, 0].copy(), linear[2 * K : 3 * K, 0]
    gram[:K] /= cast(GaussianExperts, model.experts).var[:, None, None]
    free = slice(None) if columns is None else list(columns)
    return Sums(
        float(linear[3 * K, 0]),
        mass,
        constant,
        linear[:K],
        linear[K : 2 * K, free],
        gram[:K],
        gram[K:, free][:, :, free],
    )


def scores(model: MoE, block: Block, matrix: bool) -> Scores | None:
    """Return the sums of score and, if asked for, information; None where there is no kernel."""
    K, p = model.n_experts, block.X.shape[1]
    A = 2 * K - 1
    if _in_memory(model, block):
        sums = np.zeros(1 + 2 * K + (K * (K + 1) // 2 if matrix else 0))
        summed = np.zeros((A * (1 + K) if matrix else A, p))
        gram = np.zeros((A * (A + 1) // 2 if matrix else 0, p, p))
        if block.copies is None:
            gaussian.scores(*_in_rows(model, block), _where(K), sums, summed, gram)
        else:
            copies.scores(*_in_copies(model, block), sums, summed, gram)
    else:
        kernels = _of_device(model, block)
        if kernels is None:
            return None
        linear, sums, *form = kernels.gaussian_scores(*_arguments(model, block), matrix)
        packed = kernels.pair_gram(block.X, *form, _where(K)) if matrix else None
        summed = to_numpy(weighted_sum(block.X, linear))  # all is under way before this waits
        gram = np.zeros((0, p, p)) if packed is None else unpacked(to_numpy(packed), p)
    sums = to_numpy(sums)
    return Scores(
        float(sums[0]),
        sums[1 : 1 + K],
        np.concatenate([summed[:A].ravel(), sums[1 + K : 1 + 2 * K]]),
        gram,
        summed[A:],
        sums[1 + 2 * K :],
    )


def log_densities(model: MoE, block: Block) -> Floats:
    """Return the log density at every y of rows that have several, without those of weights."""
    if _in_memory(model, block) and block.copies is not None:
        features, starts, y, _, *parameters = _in_copies(model, block)
        out = np.empty(len(y))
        copies.log_densities(features, starts, y, *parameters, out)
        return out
    response = model.experts.observe(block.y)
    return to_numpy(model.posterior(block.X, response, copies=block.copies).log_density)


def _in_memory(model: MoE, block: Block) -> bool:
    """Say whether kernels for NumPy arrays serve."""
    return gaussian is not None and isinstance(block.X, np.ndarray) and _is_plain(model, block)


def _of_device(model: MoE, block: Block) -> Any:
    """Return kernels for a CUDA device; None where there are none for such a model and block."""
    kernels = cuda_kernels(block.X) if block.copies is None else None
    return kernels if _is_plain(model, block) and model.n_experts <= _MOST else None


def _is_plain(model: MoE, block: Block) -> bool:
    plain = block.offset is None and block.groups is None
    return plain and type(model.experts) is GaussianExperts and model.n_experts >= 2


def _arguments(model: MoE, block: Block) -> tuple[Any, ...]:
    experts = cast(GaussianExperts, model.experts)
    return block.X, block.y, block.weight, model.gate.coef, experts.coef, experts.var


def _in_rows(model: MoE, block: Block) -> tuple[Floats, ...]:
    """Return what the kernels for NumPy arrays begin with."""
    X, y, weight, gate, coef, var = _arguments(model, block)
    known = np.zeros(0) if weight is None else weight
    parts = (X.T, y, known, gate, coef, 1 / var, -0.5 * np.log(2 * np.pi * var))
    return tuple(np.ascontiguousarray(part, dtype=np.float64) for part in parts)


def _in_copies(model: MoE, block: Block) -> tuple[Floats, ...]:
    """Return what the kernels for several y of a row begin with."""
    features, y, weight, *parameters = _in_rows(model, block)
    weight = weight if len(weight) else np.ones(len(y))
    return (features, np.asarray(block.starts), y, weight, *parameters)


@cache
def _where(K: int) -> Floats:
    """Return the term of every pair of predictors that a component has for itself, or -1."""
    where = np.full((2 * K - 1, 2 * K - 1), -1)
    gate, expert = np.arange(K - 1), K - 1 + np.arange(K)
    where[gate, gate] = gate
    where[gate, expert[:-1]] = K - 1 + gate
    where[expert, expert] = K - 1 + expert
    return where
