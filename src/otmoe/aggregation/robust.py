"""Merging for those who expect liars: what less than half of the sites send cannot decide (maths 18).

Every distinct model has one vote, whatever number of rows its site claims, unless the coordinator
gives weights. Experts are matched to those of the model that most others agree with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otmoe.aggregation.consistency import near_copies
from otmoe.aggregation.contribution import Outcome
from otmoe.aggregation.densities import nearest_model, on_users_scale
from otmoe.aggregation.disagreement import divergences
from otmoe.aggregation.expected import PseudoRows
from otmoe.aggregation.methods import check_same_weights
from otmoe.aggregation.problem import Problem
from otmoe.aggregation.starts import FEW
from otmoe.arrays.numerics import Floats, design
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Error, Status, Warn

TRIMMED = 0.25
"""Share of the votes that the trimmed mean leaves out on each side of every parameter."""

_POINTS = 200  # at which models are compared
_MAX_ITER = 30  # of Weiszfeld's algorithm
_TOL = 1e-3  # relative change of the weights at which it ends


@dataclass(frozen=True)
class Ballot:
    """Models with one vote each, their experts matched.

    Attributes
    ----------
    models : tuple of V MoE
        Experts in the order of those of the reference.
    vote : ndarray of shape (V,)
        Adding up to one.
    known : ndarray of bool of shape (V, p)
        Columns of the design whose coefficients each could estimate.
    fixed : ndarray of shape (V, p)
        The value of the others, else zero.
    reference : str
        The site whose experts the others were matched to.
    warnings : tuple of Notice
    """

    models: tuple[MoE, ...]
    vote: Floats
    known: Floats
    fixed: Floats
    reference: str
    warnings: tuple[Notice, ...]


def ballot(problem: Problem, rng: np.random.Generator, method: str) -> Ballot:
    """Return the models that vote, matched to the one that most of the others agree with."""
    check_same_weights(problem)
    chosen, vote = votes(problem)
    equal = [u for u in chosen if problem.models[u].n_experts == problem.n_experts]
    if not equal:
        raise InvalidInput(Error.NO_MIDDLE, experts=problem.n_experts)
    others = [problem.name(u) for u in chosen if u not in equal]
    warnings: tuple[Notice, ...] = ()
    if others:
        facts = {"names": listed(others), "experts": problem.n_experts, "method": method}
        warnings = (Warn.OTHER_EXPERTS(sites=tuple(others), **facts),)
    X = np.asarray(problem.sources.few(min(_POINTS, FEW), rng).X, np.float64)
    center = central(problem, equal, X)
    contributes = problem.ensemble.gate.contributes(design(X))
    models = []
    for u in equal:
        here = X
        if contributes is not None and np.any(both := contributes[:, u] & contributes[:, center]):
            here = X[both]
        models.append(problem.models[u].aligned_to(problem.models[center], here))
    p = problem.ensemble.n_features + 1
    known, fixed = np.ones((len(equal), p), bool), np.zeros((len(equal), p))
    for v, u in enumerate(equal):
        for feature, value in problem.constant[u].items():
            known[v, feature + 1], fixed[v, feature + 1] = False, value
    nobody = ~known.any(axis=0)
    known[:, nobody], fixed[:, nobody] = True, 0.0  # nobody knows: as it comes
    share = np.array([vote[chosen.index(u)] for u in equal])
    share /= share.sum()
    return Ballot(tuple(models), share, known, fixed, problem.name(center), warnings)


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
    """Take the weighted median of every parameter, after matching (maths 18)."""
    found = ballot(problem, rng, "median")
    return _coordinatewise(found, 0.5, Status.MEDIAN)


def trimmed(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Average every parameter without the quarter of the votes at each end (maths 18)."""
    found = ballot(problem, rng, "trimmed")
    return _coordinatewise(found, TRIMMED, Status.TRIMMED)


def krum(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Average the models that are closest to their neighbours: Multi-Krum (maths 18).

    Parameters are compared on standardised columns, those of the experts in residual deviations.
    """
    found = ballot(problem, rng, "krum")
    n = len(found.models)
    liars = max((n - 3) // 2, 0)
    near = max(n - liars - 2, 1)
    points = np.array([_comparable(problem, model) for model in found.models])
    with np.errstate(over="ignore"):
        distance = np.sum((points[:, None] - points[None]) ** 2, axis=2)
    score = np.sort(distance, axis=1)[:, 1 : near + 1].sum(axis=1)
    chosen = np.sort(np.argsort(score, kind="stable")[:near])
    vote = found.vote[chosen] / found.vote[chosen].sum()
    known = found.known[chosen]
    known[:, ~known.any(axis=0)] = True
    kept = replace(
        found,
        models=tuple(found.models[v] for v in chosen),
        vote=vote,
        known=known,
        fixed=np.where(known, 0.0, found.fixed[chosen]),
    )
    return _coordinatewise(kept, 0.0, Status.KRUM, kept=near, total=n)


def _coordinatewise(found: Ballot, trim: float, status: Status, **facts: int) -> Outcome:
    """Return the model of trimmed means (of medians, for a half) of all parameters."""
    first = found.models[0]

    def center(coefs: list[Floats]) -> Floats:
        values = np.stack(coefs)  # (V, K, p) or (V, K, C, p)
        result = np.empty(values.shape[1:])
        for j in range(1, values.shape[-1]):
            some = found.known[:, j]
            result[..., j] = trimmed_mean(values[some, ..., j], found.vote[some], trim)
        # What a site knows where a feature had the one value c: the intercept plus c times its
        # coefficient; the others' coefficient says how much of that is the intercept.
        shift = np.einsum("vp,v...p->v...", found.fixed, values - result[None])
        result[..., 0] = trimmed_mean(values[..., 0] + shift, found.vote, trim)
        return result

    gate = center([model.gate.centred for model in found.models])
    experts = first.experts
    merged = replace(experts, coef=center([model.experts.coef for model in found.models]))
    if experts.dispersion is not None:
        logs = np.stack([np.log(model.experts.dispersion) for model in found.models])
        size = merged.n_parameters - merged.n_constant * merged.n_experts
        vector = merged.to_vector()
        vector[size:] = trimmed_mean(logs, found.vote, trim)
        merged = merged.with_vector(vector)
    columns = first.gate.columns
    if any(model.gate.columns != columns for model in found.models):
        columns = None
    model = replace(first, gate=SoftmaxGate(gate - gate[-1], columns), experts=merged)
    said = status(models=len(found.models), site=found.reference, **facts)
    return Outcome(model, said, warnings=found.warnings)


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
    trim = min(trim, 0.5 - 1e-9)  # at the median a sliver on both sides of it
    inside = np.minimum(end, 1 - trim) - np.maximum(end - share, trim)
    inside = np.maximum(inside, 0.0)
    return np.asarray(np.sum(inside * ranked, axis=0) / np.sum(inside, axis=0))


def _comparable(problem: Problem, model: MoE) -> Floats:
    """Return the parameters on standardised columns, the experts' in residual deviations."""
    scaled = problem.sources.scaling.from_user(model)
    coef = scaled.experts.coef.reshape(model.n_experts, -1)
    parts = [scaled.gate.centred.ravel()]
    if model.experts.dispersion is not None:
        unit = np.exp(np.mean(np.log(problem.sources.experts.dispersion)))
        parts += [coef.ravel() / np.sqrt(unit), np.log(scaled.experts.dispersion)]
    else:
        parts.append(coef.ravel())
    return np.concatenate(parts)


# -- by densities ----------------------------------------------------------------------------------


def geometric_median(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Minimise the sum of the square roots of what models lose to the result (maths 18).

    By Weiszfeld's algorithm: densities are merged, each model with a weight in proportion to its
    vote over the root of its loss, again and again.
    """
    chosen, vote = votes(problem)
    X = np.asarray(problem.sources.few(min(_POINTS, FEW), rng).X, np.float64)
    equal = [u for u in chosen if problem.models[u].n_experts == problem.n_experts]
    if not equal:
        raise InvalidInput(Error.NO_MIDDLE, experts=problem.n_experts)
    center = central(problem, equal, X)
    model = problem.models[center]
    n_models = len(problem.models)
    rows = _of_equal_weight(problem.expected_rows.thinned(1), n_models)
    chance = problem.n_parameters / (2 * problem.n_rows)
    share = np.zeros(n_models)
    converged, iteration = False, 0
    for iteration in range(1, _MAX_ITER + 1):
        lost = np.nan_to_num(rows.losses(model, n_models), nan=np.inf, posinf=np.inf)
        new = np.zeros(n_models)
        new[chosen] = vote / np.sqrt(np.maximum(lost[chosen], 0.0) + chance)
        new /= new.sum()
        converged = bool(np.abs(new - share).max() <= _TOL * new.max())
        share = new
        if converged:
            break
        run = nearest_model(_weighted(rows, share), model)
        model = on_users_scale(rows, run, model)
    status = Status.GEOMETRIC_MEDIAN if converged else Status.GEOMETRIC_MEDIAN_STOPPED
    said = status(models=len(chosen), site=problem.name(center), iterations=iteration)
    return Outcome(model, said, converged=converged)


def _of_equal_weight(rows: PseudoRows, n_models: int) -> PseudoRows:
    """Return pseudo-rows of which those of each model have weights that add up to one."""
    site = np.repeat(rows.site, np.diff(rows.start))
    total = np.bincount(site, rows.weight, n_models)
    return replace(rows, weight=rows.weight / total[site])


def _weighted(rows: PseudoRows, share: Floats) -> PseudoRows:
    """Return the pseudo-rows with the shares of their models, as many rows in all as there are x.

    Those of models with hardly a share are left out.
    """
    site = np.repeat(rows.site, np.diff(rows.start))
    return replace(rows, weight=len(rows.X) * rows.weight * share[site])
