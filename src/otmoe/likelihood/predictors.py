"""Predictors of a mixture, and the free parameters that belong to each (maths 5)."""

from __future__ import annotations

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.rows import Scaling
from otmoe.model.free import Free
from otmoe.model.mixture import MoE


def predictors_of(model: MoE) -> Floats:
    """Return the predictor to which each free parameter belongs, (P,), numbered from 0."""
    p, linear = model.experts.n_columns, _n_linear(model)
    free = free_entries(model)
    return np.where(free < linear * p, free // p, free - linear * (p - 1))


def free_predictors(model: MoE, free: Free) -> Floats:
    """Return the predictor of each free parameter, (q,); those in common are of one more."""
    owner = predictors_of(model)
    if free.basis is None:
        return owner
    own = [np.unique(owner[column != 0]) for column in free.basis.T]
    return np.array([each[0] if len(each) == 1 else owner.max() + 1 for each in own])


def free_entries(model: MoE) -> Floats:
    """Return the free parameters among all, (P,): structural zeros of the gate are left out.

    All are p for every linear predictor (those of the gate, then of the experts), then the
    constants.
    """
    p, n_constant = model.experts.n_columns, model.n_experts * model.experts.n_constant
    free = np.arange(_n_linear(model) * p + n_constant)
    if model.gate.columns is None:
        return free
    gate, rest = np.split(free, [(model.n_experts - 1) * p])
    return np.concatenate([gate.reshape(-1, p)[:, list(model.gate.columns)].ravel(), rest])


def change_of_scale(model: MoE, scaling: Scaling, other: Scaling) -> Floats:
    """Return the matrix that takes free parameters on one standardisation to another, (P, P)."""
    owner = predictors_of(model)
    zero, found = model.with_vector(np.zeros(len(owner))), np.zeros((len(owner), len(owner)))
    first, sizes = np.unique(owner, return_index=True, return_counts=True)[1:]
    begin, size = np.repeat(first, sizes), np.repeat(sizes, sizes)
    for j in range(sizes.max()):  # no predictor has to do with another: all are tried at once
        each, there = (np.arange(len(owner)) - begin == j).astype(float), size > j
        moved = other.from_user(scaling.to_user(zero.with_vector(each))).to_vector()
        found[there, begin[there] + j] = moved[there]
    return found


def _n_linear(model: MoE) -> int:
    """Return the number of linear predictors: those of the gate and of the experts."""
    return (model.n_experts - 1) + model.n_experts * model.experts.n_linear
