"""Experts pooled by their Gram matrices: still one upload (maths 13)."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np

from otmoe.aggregation.contribution import Outcome
from otmoe.aggregation.methods import averaged_parameters, check_same_weights, reduction
from otmoe.aggregation.problem import Problem
from otmoe.aggregation.sources import flows
from otmoe.aggregation.starts import FEW
from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Floats, design, namespace
from otmoe.model.experts import Experts, FitStatistics
from otmoe.model.mixture import MoE
from otmoe.model.structure import Structure
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error, Status

SHARP = 0.15
"""Share of log K below which the mean entropy of a gate counts as sharp.

The table of maths 13 decided (`python -m paper.gate_softness`).
"""


def gram(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Pool the experts that the reduction matches, each weighted by its Gram (maths 13).

    Sharp gates are averaged after matching; elsewhere, and where numbers of experts differ, the
    gate is the reduction's.
    """
    check_same_weights(problem)
    lacking = problem.without_grams
    if lacking:
        raise InvalidInput(Error.NO_GRAMS, site=lacking[0], others=_others(lacking))
    return pooled_by_grams(problem, reduction(problem, rng), rng)


def pooled_by_grams(problem: Problem, first: Outcome, rng: np.random.Generator) -> Outcome:
    """Return what :func:`gram` does, with the matches of a reduction that is there already."""
    begin = perf_counter()
    reference = first.model
    targets, aligned = matched(problem, reference, rng)
    experts = _pooled(problem, reference.experts, targets)
    model = replace(reference, experts=experts).tidied()
    if len(aligned) < len(problem.models):
        gate = Status.GATE_UNEQUAL()
    elif not is_sharp(problem, reference):
        gate = Status.GATE_SOFT()
    else:
        model = replace(model, gate=averaged_parameters(problem, aligned).gate)
        gate = Status.GATE_AVERAGED()
    status = Status.POOLED_BY_GRAMS(models=len(problem.messages), gate=gate, reduction=first.status)
    timings = {**first.timings, "gram": perf_counter() - begin}
    return Outcome(model, status, first.trace, first.converged, first.warnings, timings)


def is_sharp(problem: Problem, model: MoE) -> bool:
    """Say whether the gate of a model hardly ever leaves a choice between experts.

    Averaging probabilities, as the reduction does, flattens sharp gates; averaging coefficients
    keeps what small sites exaggerate.
    """
    X = problem.sources.X
    xp = namespace(X)
    log_prob = model.gate.log_prob(design(X))
    entropy = -float(xp.sum(xp.exp(log_prob) * log_prob)) / X.shape[0]
    return entropy < SHARP * np.log(model.n_experts)


def _others(names: list[str]) -> str:
    return "" if len(names) == 1 else f" and {len(names) - 1} others"


def matched(
    problem: Problem, reference: MoE, rng: np.random.Generator
) -> tuple[list[Floats], list[MoE]]:
    """Match the experts of every distinct model to those of the reference.

    Returns
    -------
    targets : list of ndarray of int of shape (K_u,)
        The reference expert of each expert: one to one where a model has as many, else the one
        that receives most of its mass.
    aligned : list of MoE
        Models with as many experts as the reference, in its order.
    """
    few = problem.sources.few(FEW, rng)
    gate = few.ensemble.gate
    mass, _ = flows(few, few.scaling.from_user(reference).experts)
    contributes = gate.contributes(design(few.X))
    targets, aligned = [], []
    for u, model in enumerate(problem.models):
        if model.n_experts != reference.n_experts:
            targets.append(np.argmax(mass[gate.experts_of(u)], axis=1))
            continue
        here = (
            slice(None) if contributes is None or not contributes[:, u].any() else contributes[:, u]
        )
        order = model.order_like(reference, few.X[here])
        targets.append(np.argsort(order))
        aligned.append(model.take(order))
    return targets, aligned


def _pooled(problem: Problem, reference: Experts, targets: list[Floats]) -> Experts:
    """Return the experts whose normal equations are the sum of the sites'.

    Sums are about the reference, so that what no site can tell stays as it is there.
    """
    K, T = reference.n_experts, problem.sources.scaling.transform
    there = coefficients(reference)  # (K, Q p)
    size = there.shape[1]
    T = np.kron(np.eye(size // len(T)), T)  # to standardised columns
    G, v, n = np.zeros((K, size, size)), np.zeros((K, size)), np.zeros(K)
    parts = []
    total = problem.n_rows
    for m, message in enumerate(problem.messages):
        u = int(problem.which[m])
        if u < 0 or message.grams is None:
            continue
        factor = problem.site_weight[m] * total / message.n_samples  # 1 unless weights are given
        experts, k = message.model.experts, targets[u]
        matrices, counts = factor * message.grams.matrices, factor * message.grams.counts
        away = coefficients(experts) - there[k]
        np.add.at(G, k, matrices)
        np.add.at(v, k, np.einsum("kij,kj->ki", matrices, away))
        np.add.at(n, k, counts)
        if experts.n_constant:
            parts.append((k, matrices, counts, away, experts.log_dispersions))
    if problem.structure is None:
        step = solve_psd(T @ G @ T.T, v @ T.T) @ T
    else:
        step = _within(problem.structure, reference, G, v, n)
    vector = reference.to_vector()
    vector[: there.size] += step.ravel()
    pooled = reference.with_vector(vector)
    if not reference.n_constant:
        return pooled
    spread = np.zeros((K, reference.n_constant))
    for k, matrices, counts, away, logs in parts:
        within = counts[:, None] * (np.exp(logs) if reference.has_scale else logs)
        if reference.has_scale:
            gap = away - step[k]
            within = within + np.einsum("ki,kij,kj->k", gap, matrices, gap)[:, None]
        np.add.at(spread, k, within)
    if problem.structure is not None and problem.structure.common_variance:
        spread, n = np.tile(spread.sum(axis=0), (K, 1)), np.full(K, n.sum())
    some = (n > 0)[:, None]
    mean = spread / np.where(some, n[:, None], 1.0)
    logs = np.log(np.where(some, mean, 1.0)) if reference.has_scale else mean
    logs = np.where(some, logs, reference.log_dispersions)
    return pooled.with_vector(np.concatenate([vector[: there.size], logs.T.ravel()]))


def _within(
    structure: Structure, experts: Experts, grams: Floats, slope: Floats, counts: Floats
) -> Floats:
    """Return the step (K, Q p) that solves all normal equations together, within a structure."""
    K, Q, p = experts.n_experts, experts.n_linear, experts.n_columns
    unit = experts.coef_unit**2
    information = (grams / unit[:, None, None]).reshape(K, Q, p, Q, p).swapaxes(2, 3)
    score = (slope / unit[:, None]).reshape(K, Q, p)
    none = np.zeros((K, experts.n_constant))
    sums = FitStatistics(counts, score, information, none, none)
    return coefficients(structure.step(experts, sums)) - coefficients(experts)


def coefficients(experts: Experts) -> Floats:
    """Return the free coefficients, (K, Q p)."""
    size = experts.n_linear * experts.n_columns
    return experts.to_vector()[: experts.n_experts * size].reshape(experts.n_experts, size)
