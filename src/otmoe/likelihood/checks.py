"""What is degenerate about a fit: a word for each kind of it, with the expert concerned."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.optimize import linprog

from otmoe.arrays.newton import RANK_TOLERANCE
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.agreement import Agreement
from otmoe.likelihood.iterations import Run
from otmoe.likelihood.stage import Stage, least_mass, rows_needed
from otmoe.likelihood.statistics import VARIANCE_FLOOR
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice
from otmoe.text.sentences import Warn

LOOKED_AT = 2000
"""Rows of a stage on which experts are compared."""

_IDENTICAL = 1e-3  # mean difference of two experts' log densities where either answers
_SEPARABLE = 0.9  # share of an expert's rows it must class rightly for them to be separable


def degeneracies(
    run: Run,
    stage: Stage | None,
    n_rows: int,
    total: float,
    correlation: Floats,
    agreement: Agreement | None,
    names: tuple[str, ...] | None = None,
) -> tuple[Notice, ...]:
    """Return what the user should know about a fit.

    Parameters
    ----------
    run : Run
        Where it ended; experts in the order of the model that the user gets.
    stage : Stage, optional
        Some of its rows, where they are here.
    n_rows, total : int and float
        Number of all rows, sum of their weights.
    correlation : ndarray of shape (p, p)
        Of the standardised design, intercept first.
    agreement : Agreement, optional
    names : tuple of str, optional
        Of the features.
    """
    p, model = len(correlation), run.model
    rank = int(np.linalg.matrix_rank(correlation, tol=RANK_TOLERANCE, hermitian=True))
    found = []
    if rank < p:
        found.append(Warn.RANK_DEFICIENT(columns=p, rank=rank))
    elif n_rows < model.n_free:
        found.append(Warn.FEW_ROWS(rows=n_rows, parameters=model.n_free))
    lost = np.flatnonzero(run.mass < least_mass(total, model))
    if len(lost):
        found.append(
            Warn.EXPERTS_WITHOUT_ROWS(lost=len(lost), experts=model.n_experts, which=_listed(lost))
        )
    elif np.any(run.mass < rows_needed(model, total)):
        k = int(np.argmin(run.mass - rows_needed(model, total)))
        coefficients = len(model.expert_columns[k])
        found.append(Warn.EXPERT_BY_CHANCE(expert=k, rows=run.mass[k], coefficients=coefficients))
    variance = model.experts.dispersion
    if variance is not None:
        floor = np.flatnonzero(variance <= VARIANCE_FLOOR * (1 + 1e-6))
        if len(floor):
            code = Warn.NO_OVERDISPERSION if model.experts.discrete else Warn.VARIANCE_AT_FLOOR
            found.append(code(floor=VARIANCE_FLOOR, which=_listed(floor)))
            if stage is not None and not model.experts.discrete and _has_two_values(stage):
                found.append(Warn.TWO_VALUES())
    if stage is not None:
        found += [Warn.IDENTICAL_EXPERTS(first=j, second=k) for j, k in identical(model, stage)]
    if stage is not None and model.experts.classifies:
        for k, feature in separated(model, stage):
            term = f"x{feature}" if names is None else names[feature]
            found.append(Warn.SEPARATED(expert=k, term=term))
    if agreement is not None:
        found += found_once(agreement)
    return tuple(found)


def _has_two_values(stage: Stage) -> bool:
    """Say whether a y of one column takes two values."""
    y = np.asarray(stage.block.y)
    return y.ndim == 1 and len(np.unique(y[stage.weight > 0])) == 2


def found_once(agreement: Agreement) -> list[Notice]:
    """Return a warning if of several searches one alone ended in the maximum that was taken."""
    if agreement.searches <= 1 or agreement.agreed > 1:
        return []
    agreed, searches = agreement.agreed, agreement.searches
    return [Warn.FOUND_ONCE(agreed=agreed, searches=searches, gap=agreement.gap)]


def identical(model: MoE, stage: Stage) -> list[tuple[int, int]]:
    """Return pairs of experts that say the same wherever either of them answers."""
    if model.n_experts == 1:
        return []
    block = stage.block
    at = stage.posterior(model)
    log_prob = np.asarray(model.experts.expected_log_prob(at.eta, model.experts.observe(block.y)))
    r = np.asarray(at.responsibilities) * stage.weight[:, None]
    found = []
    for j, k in combinations(range(model.n_experts), 2):
        weight = r[:, j] + r[:, k]
        apart = weight @ np.abs(log_prob[:, j] - log_prob[:, k])
        if weight.sum() > 0 and apart <= _IDENTICAL * weight.sum():
            found.append((j, k))
    return found


def separated(model: MoE, stage: Stage) -> list[tuple[int, int]]:
    """Return experts whose rows a plane divides by class, and the feature it is steepest in."""
    at = stage.posterior(model)
    r = np.asarray(at.responsibilities)
    y = np.asarray(stage.block.y)
    mean = np.asarray(model.experts.response(at.eta).mean)
    best = np.argmax(mean, axis=-1) if mean.ndim == 3 else (mean > 0.5).astype(int)
    found = []
    for k in range(model.n_experts):
        mine, seen = (r[:, k] >= 0.5) & (stage.weight > 0), model.expert_columns[k]
        if mine.sum() < 2 or len(seen) < 2 or np.mean(best[mine, k] == y[mine]) < _SEPARABLE:
            continue
        X = stage.block.X[mine][:, seen]
        for c in np.unique(y[mine]):
            sign = np.where(y[mine] == c, 1.0, -1.0)
            if np.all(sign > 0):
                continue  # one class alone: its intercept is held, no slope runs off
            plane = _plane(X * sign[:, None])
            if plane is not None:
                found.append((k, seen[1 + int(np.argmax(np.abs(plane[1:])))] - 1))
                break
    return found


def _plane(Z: Floats) -> Floats | None:
    """Return b with Z b >= 1 in every row, if there is one."""
    p = Z.shape[1]
    end = linprog(np.zeros(p), A_ub=-Z, b_ub=-np.ones(len(Z)), bounds=[(None, None)] * p)
    return np.asarray(end.x) if end.status == 0 else None


def _listed(experts: Floats) -> str:
    return ", ".join(str(int(k)) for k in experts)
