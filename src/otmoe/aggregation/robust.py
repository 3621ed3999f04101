"""Merging for those who expect liars: less than half of the sites cannot decide (maths 20).

Every distinct model has one vote, whatever number of rows its site claims, unless the coordinator
gives weights. Experts are matched to those of the model that most others agree with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from otmoe.aggregation.consistency import (
    compared_points,
    covariate_distances,
    near_copies,
)
from otmoe.aggregation.contribution import Outcome
from otmoe.aggregation.covariates import SiteCovariates
from otmoe.aggregation.densities import nearest_model, on_users_scale
from otmoe.aggregation.disagreement import divergences
from otmoe.aggregation.expected import PseudoRows, pseudo_rows
from otmoe.aggregation.methods import check_same_weights
from otmoe.aggregation.problem import Problem
from otmoe.arrays.numerics import Floats, design
from otmoe.likelihood.statistics import RowPasses
from otmoe.model.ensemble import Constant
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Error, Status, Warn

TRIMMED = 0.25
"""Share of the votes that the trimmed mean leaves out on each side of every parameter."""

_POINTS = 200  # at which models are compared
_LEAST_EIGENVALUE = 1e-6  # of the information in units of its diagonal: what points do not tell
_MOST_EXPERTS = 2  # times those asked for, with which a site has a vote in the geometric median
_MAX_ITER = 30  # of Weiszfeld's algorithm
_TOL = 1e-3  # relative change of the weights at which it ends
_NOTHING_SHARED = 1e-6  # four times the overlap of densities below which a model is left out
_TAIL = 2.0  # log of a root of densities from which a rare node would decide


@dataclass(frozen=True)
class Ballot:
    """Models with one vote each, their experts matched.

    Attributes
    ----------
    models : tuple of V MoE
        Experts in the order of those of the reference; coefficients that a site could not estimate
        are the medians of the others'.
    vote : ndarray of shape (V,)
        Adding up to one.
    reference : MoE
        The model that the others were matched to.
    site : str
        Its site.
    X : ndarray of shape (n, d)
        Points at which models are compared.
    warnings : tuple of Notice
    """

    models: tuple[MoE, ...]
    vote: Floats
    reference: MoE
    site: str
    X: Floats
    warnings: tuple[Notice, ...]


def ballot(problem: Problem, rng: np.random.Generator, method: str) -> Ballot:
    """Return the models that vote, matched to the one that most of the others agree with."""
    check_same_weights(problem)
    chosen, vote = votes(problem)
    equal = [v for v, u in enumerate(chosen) if problem.models[u].n_experts == problem.n_experts]
    if not equal:
        raise InvalidInput(Error.NO_MIDDLE, experts=problem.n_experts)
    others = [problem.name(u) for v, u in enumerate(chosen) if v not in equal]
    warnings = _without_vote(problem, others, method)
    X = _points(problem)
    sites = [chosen[v] for v in equal]
    center = central(problem, sites, X)
    contributes = problem.ensemble.gate.contributes(design(X))
    models = []
    for u in sites:
        here = X
        if contributes is not None and np.any(both := contributes[:, u] & contributes[:, center]):
            here = X[both]
        models.append(problem.models[u].aligned_to(problem.models[center], here))
    if any(model.gate.columns != models[0].gate.columns for model in models):
        models = [replace(model, gate=SoftmaxGate(model.gate.coef)) for model in models]
    share = vote[equal] / vote[equal].sum()
    return Ballot(
        tuple(_filled(models, [problem.constant[u] for u in sites], share)),
        share,
        problem.models[center],
        problem.name(center),
        X,
        warnings,
    )


def _filled(models: list[MoE], constant: list[Constant], vote: Floats) -> list[MoE]:
    """Return the models with the others' medians for coefficients that they could not estimate.

    Where a feature had the one value c, a site knows the intercept plus c times the coefficient.
    """
    for j in sorted({j for features in constant for j in features}):
        knowing = [v for v, features in enumerate(constant) if j not in features]
        if not knowing:
            continue  # no site knows it: keep as given
        gate = np.stack([models[v].gate.centred[:, j + 1] for v in knowing])
        experts = np.stack([models[v].experts.coef[..., j + 1] for v in knowing])
        gate, experts = (trimmed_mean(values, vote[knowing], 0.5) for values in (gate, experts))
        for v, features in enumerate(constant):
            if j in features:
                model, value = models[v], features[j]
                parts = []
                for coef, usual in ((model.gate.centred, gate), (model.experts.coef, experts)):
                    new = np.array(coef)
                    new[..., 0] += value * (new[..., j + 1] - usual)
                    new[..., j + 1] = usual
                    parts.append(new)
                filled = SoftmaxGate(parts[0] - parts[0][-1], model.gate.columns)
                models[v] = replace(
                    model, gate=filled, experts=replace(model.experts, coef=parts[1])
                )
    return models


def _without_vote(problem: Problem, names: list[str], method: str) -> tuple[Notice, ...]:
    """Return a warning about sites with other numbers of experts, if there are any."""
    if not names:
        return ()
    facts = {"names": listed(names), "experts": problem.n_experts, "method": method}
    return (Warn.OTHER_EXPERTS(sites=tuple(names), **facts),)


def _points(problem: Problem) -> Floats:
    """Return points at which models are compared, of every site as many, and none far away."""
    return compared_points(problem, _POINTS, covariate_distances(problem)[2])[0]


def votes(problem: Problem) -> tuple[list[int], Floats]:
    """Return one distinct model of each group of near-copies, and its vote.

    All votes are equal where sites weigh by the rows that they claim.
    """
    members = [np.flatnonzero(problem.which == u) for u in range(len(problem.models))]
    group = near_copies([problem.messages[int(m[0])] for m in members])
    chosen = [int(np.flatnonzero(group == g)[0]) for g in range(int(group.max()) + 1)]
    if problem.by_rows:
        return chosen, np.full(len(chosen), 1 / len(chosen))
    vote = np.array([problem.weight[group == g].sum() for g in range(len(chosen))])
    return chosen, vote / vote.sum()


def central(problem: Problem, sites: list[int], X: Floats) -> int:
    """Return the model from which the median of the others differs least, of some."""
    knowing = [u for u in sites if not problem.constant[u] and u not in problem.suspects]
    sites = knowing or sites
    if len(sites) == 1:
        return sites[0]
    cost, _ = divergences([problem.models[u] for u in sites], X)
    filled = np.where(np.isnan(cost), np.inf, cost)
    typical = np.sort(filled, axis=1)[:, max((cost.shape[1] - 2) // 2, 0)]
    return sites[int(np.argmin(typical))]


# -- coordinate by coordinate ----------------------------------------------------------------------


def median(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Take the weighted median of every coordinate, after matching (maths 20)."""
    found = ballot(problem, rng, "median")
    return _coordinatewise(found, 0.5, Status.MEDIAN, models=len(found.models))


def trimmed(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Average every coordinate without the quarter of the votes at each end (maths 20)."""
    found = ballot(problem, rng, "trimmed")
    return _coordinatewise(found, TRIMMED, Status.TRIMMED, models=len(found.models))


def krum(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Average the models that are closest to their neighbours: Multi-Krum (maths 20).

    The distance of parameters is the divergence of what they predict: each counts as much as it
    matters.
    """
    found = ballot(problem, rng, "krum")
    n = len(found.models)
    near = max(n - max((n - 3) // 2, 0) - 2, 1)
    cost, _ = divergences(found.models, found.X)
    distance = np.sort(np.where(np.isnan(cost), np.inf, cost), axis=1)
    some = max(round(near * cost.shape[1] / n), 1)  # of many models, each is compared with some
    chosen = np.sort(np.argsort(distance[:, :some].sum(axis=1), kind="stable")[:near])
    vote = found.vote[chosen] / found.vote[chosen].sum()
    kept = replace(found, models=tuple(found.models[v] for v in chosen), vote=vote)
    return _coordinatewise(kept, 0.0, Status.KRUM, kept=near, total=n)


def _coordinatewise(found: Ballot, trim: float, status: Status, **facts: Any) -> Outcome:
    """Return the model of trimmed means (of medians, for a half) in uncorrelated coordinates.

    Errors of an intercept and a slope go together where x is far from zero: the median of each
    would fit no rows. The information of the reference gives coordinates in which they do not.
    """
    reference = replace(found.reference, gate=_gate_like(found.models[0], found.reference))
    rows = pseudo_rows([reference], [SiteCovariates(found.X, np.ones(len(found.X)))])
    scaled = [rows.scaling.from_user(model) for model in found.models]
    matrix = RowPasses(rows).information(rows.scaling.from_user(reference)).matrix
    size = np.sqrt(np.maximum(np.diagonal(matrix), 1e-300))
    values, turn = np.linalg.eigh(matrix / size[:, None] / size)
    root = np.sqrt(np.maximum(values, _LEAST_EIGENVALUE))
    vectors = np.array([model.to_vector() for model in scaled])
    coordinates = (vectors * size) @ turn * root
    with np.errstate(over="ignore"):
        middle = trimmed_mean(coordinates, found.vote, trim)
    vector = (middle / root) @ turn.T / size
    first = scaled[0]
    model = rows.scaling.to_user(first.with_vector(vector))
    like = found.reference
    model = replace(model, feature_names=like.feature_names, classes=like.classes)
    return Outcome(model, status(**facts, site=found.site), warnings=found.warnings)


def _gate_like(model: MoE, reference: MoE) -> SoftmaxGate:
    """Return the gate of the reference with the columns of another model's."""
    return SoftmaxGate(reference.gate.coef, model.gate.columns)


def trimmed_mean(values: Floats, weight: Floats, trim: float) -> Floats:
    """Return the mean of values (V, ...) without a share `trim` of the weight at each end.

    With a trim of a half it is the weighted median, the mean of both middle values of an even
    number of equal votes.

    Examples
    --------
    >>> trimmed_mean(np.array([0.0, 1.0, 2.0, 1e9]), np.full(4, 0.25), 0.25)
    array(1.5)
    >>> trimmed_mean(np.array([0.0, 1.0, 2.0, 1e9]), np.full(4, 0.25), 0.5)
    array(1.5)
    """
    order = np.argsort(values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, axis=0)
    share = (weight / weight.sum())[order]
    end = np.cumsum(share, axis=0)
    trim = min(trim, 0.5 - 1e-6)  # at the median a sliver on both sides of it
    inside = np.minimum(end, 1 - trim) - np.maximum(end - share, trim)
    inside = np.where(inside > 1e-12, inside, 0.0)  # rounding must not add models
    return np.asarray(np.sum(inside * ranked, axis=0) / np.sum(inside, axis=0))


# -- by densities ----------------------------------------------------------------------------------


def geometric_median(
    problem: Problem, rng: np.random.Generator, covariates: int | None = None
) -> Outcome:
    """Minimise the sum of the Hellinger distances of all models to the result (maths 20).

    By Weiszfeld's algorithm: densities are merged, each model with a weight in proportion to its
    vote over its distance, and what it expects in so far as the result expects it too. With a
    number of `covariates`, about as many are used, and not all.
    """
    chosen, vote = votes(problem)
    equal = [u for u in chosen if problem.models[u].n_experts == problem.n_experts]
    if not equal:
        raise InvalidInput(Error.NO_MIDDLE, experts=problem.n_experts)
    center = central(problem, equal, _points(problem))
    few = [problem.models[u].n_experts <= _MOST_EXPERTS * problem.n_experts for u in chosen]
    others = [problem.name(u) for u, counts in zip(chosen, few, strict=True) if not counts]
    chosen = [u for u, counts in zip(chosen, few, strict=True) if counts]
    vote = vote[few] / vote[few].sum()
    warnings = _without_vote(problem, others, "geometric_median")
    model = problem.models[center]
    n_models = len(problem.models)
    if len(chosen) == 1:
        said = Status.GEOMETRIC_MEDIAN(models=1, site=problem.name(center), iterations=0)
        return Outcome(model, said, warnings=warnings)
    rows = problem.expected_rows
    if covariates is not None:
        rows = rows.thinned(max(len(rows.X) // covariates, 1))
    rows = _of_equal_weight(rows, n_models)
    site = np.repeat(rows.site, np.diff(rows.start))
    chance = problem.n_parameters / (2 * problem.n_rows)
    share = np.zeros(n_models)
    converged, iterations = False, 0
    while not converged and iterations < _MAX_ITER:
        iterations += 1
        root = np.exp(np.minimum(0.5 * rows.log_ratio(model), _TAIL))  # of the ratio of densities
        apart = 4 * (1 - np.bincount(site, rows.weight * root, n_models))
        new = np.zeros(n_models)
        new[chosen] = vote / np.sqrt(np.maximum(apart[chosen], 0.0) + chance)
        new /= new.sum()
        converged = bool(np.abs(new - share).max() <= _TOL * new.max())
        share = new
        if converged:
            break
        weight = rows.weight * root * share[site]
        weighted = replace(rows, weight=len(rows.X) * weight / weight.sum())
        shared = weighted.of_sites(apart < 4 - _NOTHING_SHARED)
        model = on_users_scale(shared, nearest_model(shared, model), model)
    status = Status.GEOMETRIC_MEDIAN if converged else Status.GEOMETRIC_MEDIAN_STOPPED
    said = status(models=len(chosen), site=problem.name(center), iterations=iterations)
    return Outcome(model, said, converged=converged, warnings=warnings)


def _of_equal_weight(rows: PseudoRows, n_models: int) -> PseudoRows:
    """Return pseudo-rows of which those of each model have weights that add up to one."""
    site = np.repeat(rows.site, np.diff(rows.start))
    total = np.bincount(site, rows.weight, n_models)
    return replace(rows, weight=rows.weight / total[site])


ROBUST: dict[str, Callable[[Problem, np.random.Generator], Outcome]] = {
    "median": median,
    "trimmed": trimmed,
    "geometric_median": geometric_median,
    "krum": krum,
}
"""Methods in which every site has one vote."""
