"""Influence of every site on the others: each is left out in turn (maths 20)."""

from __future__ import annotations

import numpy as np

from otmoe.aggregation.densities import nearest_model, on_users_scale
from otmoe.aggregation.problem import Problem
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.iterations import newton_serves
from otmoe.model.ensemble import Ensemble
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput

# Bounds of time; the table of `python -m benchmarks attacks` was made with these.
_COVARIATES = 1000  # of all sites, at which models are judged
_MOST_SITES = 50  # that are left out in turn
_MOST_WORK = 1e9  # pseudo-rows times squared parameters times models, above which none is


def influence_by_site(problem: Problem, model: MoE) -> dict[str, float]:
    """Return the influence of every site by its name, NaN where numbers end."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = influences(problem, model)
    except (InvalidInput, ArithmeticError, np.linalg.LinAlgError):
        found = np.full(len(problem.models), np.nan)
    pairs = zip(problem.messages, problem.which, strict=True)
    return {message.site: float(found[u]) if u >= 0 else np.nan for message, u in pairs}


def influences(problem: Problem, model: MoE) -> Floats:
    """Return the nats per row by which the others would be served better without each model, (U,).

    Densities are merged again without it, starting from the given model, and evaluated under the
    others' own models. NaN if nothing was left out: for an ensemble, for a single model, if it
    would take longer than merging, or, with many models, for those of least weight.

    Parameters
    ----------
    problem : Problem
    model : MoE
        The merged one.
    """
    n_models = len(problem.models)
    found = np.full(n_models, np.nan)
    if isinstance(model, Ensemble) or n_models < 2 or not newton_serves(model):
        return found
    each = model.n_parameters**2 * min(n_models, _MOST_SITES)
    if min(problem.n_covariates, _COVARIATES) * each > _MOST_WORK:  # with a single row for each x
        return found
    rows = problem.few_rows(_COVARIATES)
    if len(rows.weight) * each > _MOST_WORK:
        return found
    together = on_users_scale(rows, nearest_model(rows, model), model)
    weight, total = problem.weight, rows.weight.sum()
    site = np.repeat(rows.site, np.diff(rows.start))
    for u in np.argsort(-weight, kind="stable")[:_MOST_SITES]:
        others = np.arange(n_models) != u
        rest = rows.of_sites(others) if 0 < rows.weight[others[site]].sum() < total else None
        if rest is None:
            continue
        without = on_users_scale(rest, nearest_model(rest, together), model)
        gain = rest.losses(together, n_models) - rest.losses(without, n_models)
        known = others & np.isfinite(gain)
        if weight[known].sum() > 0:
            found[u] = float(np.average(gain[known], weights=weight[known]))
    return found
