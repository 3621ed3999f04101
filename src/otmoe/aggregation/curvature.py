"""Merged densities corrected by what the sites' Grams know of their rows (maths 17)."""

from __future__ import annotations

import numpy as np

from otmoe.aggregation.covariates import SiteCovariates
from otmoe.aggregation.gram import coefficients, matched
from otmoe.aggregation.problem import Problem
from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Floats, design
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Scaling
from otmoe.model.free import Free
from otmoe.model.mixture import MoE

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_FARTHEST = 1.0  # squared distance in standard errors, for every parameter, from which it is none


def corrected(problem: Problem, scaling: Scaling, model: MoE, matrix: Floats) -> tuple[MoE, float]:
    """Return the model after one Newton step by the curvature that the sites observed.

    A site's model expects the Gram E G of an expert where its rows gave G, and pseudo-rows have the
    former. To second order the site's log-likelihood has the latter: what it lacks is the quadratic
    form of G - E G in the distance of the merged expert from the site's own (maths 17).

    Parameters
    ----------
    problem : Problem
        All sites sent Grams.
    scaling : Scaling
        Of `model` and `matrix`.
    model : MoE
        The most likely one of the pseudo-rows.
    matrix : ndarray of shape (P, P)
        Their information there.

    Returns
    -------
    model : MoE
    nats : float
        Per row that the step costs by what the sites' models expect; 0 where it is not taken.
    """
    targets, _ = matched(problem, scaling.to_user(model), np.random.default_rng(problem.seed))
    experts = model.experts
    there = coefficients(experts)  # (K, Q p)
    T = np.kron(np.eye(experts.n_linear), scaling.transform)
    slope, spread = np.zeros_like(there), np.zeros(len(there))
    for u, (own, more) in enumerate(zip(problem.models, _surplus(problem), strict=True)):
        away = there[targets[u]] - coefficients(scaling.from_user(own).experts)
        pull = np.einsum("lij,lj->li", T @ more @ T.T, away)
        np.add.at(slope, targets[u], -pull)
        np.add.at(spread, targets[u], np.sum(away * pull, axis=1))
    score = np.zeros(len(matrix))
    free = slice(len(score) - experts.n_parameters, None)
    unit = experts.coef_unit**2
    logs = np.tile(0.5 * spread / unit * experts.has_scale, experts.n_constant)
    score[free] = np.concatenate([(slope / unit[:, None]).ravel(), logs])
    within = Free.of(model)
    step = within.theta(solve_psd(within.matrix(matrix), within.score(score)))
    away = float(score @ step)
    if not away <= _FARTHEST * len(score):
        return model, 0.0
    return model.with_vector(model.to_vector() + step), 0.5 * away / problem.n_rows


def _surplus(problem: Problem) -> list[Floats]:
    """Return G - E G of the experts of every distinct model, each (K_u, Q p, Q p)."""
    total = problem.n_rows
    surplus = [-_expected(model, at) for model, at in problem.fitted_places]
    for m, message in enumerate(problem.messages):
        u = int(problem.which[m])
        if u >= 0 and message.grams is not None:
            # 1 unless weights are given
            factor = problem.site_weight[m] * total / message.n_samples
            surplus[u] = surplus[u] + factor * message.grams.matrices
    return surplus


def _expected(model: MoE, at: SiteCovariates) -> Floats:
    X = design(at.X)
    weight = np.asarray(model.gate.prob(X)) * at.weight[:, None]
    return Grams.expected(model.experts, X, weight).matrices
