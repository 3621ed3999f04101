"""Whole models merged, not experts: the nearest model in Kullback-Leibler divergence (maths 17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from otmoe.aggregation.contribution import Outcome
from otmoe.aggregation.covariates import PER_PARAMETER
from otmoe.aggregation.curvature import corrected, sites_agree
from otmoe.aggregation.expected import PseudoRows
from otmoe.aggregation.methods import reduction
from otmoe.aggregation.problem import Problem
from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.ascent import Ascent
from otmoe.likelihood.information import Information
from otmoe.likelihood.iterations import Run, newton_serves
from otmoe.likelihood.statistics import RowPasses
from otmoe.model.free import Free
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error, Status

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_TOL = 1e-3  # squared distance to the maximum in standard errors, for every parameter
_MAX_ITER = 25
_WARM_UP = 2  # EM iterations before Newton's method
_LEAD = 40  # covariates for every parameter that tell the curvature, where there are many more
_NEAR = 4.0  # squared distance in standard errors, for every parameter, up to which that serves
_SECANTS = 20  # steps by the curvature of these, at most
_SHRINKS = 0.25  # squared distance after such a step, of that before, unless it was a poor one
_DAMPING = (0.0, 0.01, 0.1, 1.0, 10.0)  # of a step, in turn

_NARROW = 0.25  # of the least dispersion of any site

_NONE = Ridge(0.0, 0.0)


def kl(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Return the model that the sites' own expect to be most likely (maths 17)."""
    if problem.models[0].expert_per == "group":
        raise InvalidInput(Error.KL_OF_GROUPS)
    return by_densities(problem, reduction(problem, rng))


def by_densities(problem: Problem, start: Outcome) -> Outcome:
    """Return that model, approached from another one.

    Parameters
    ----------
    problem : Problem
    start : Outcome
        With as many experts as are asked for.
    """
    if len(problem.models) == 1 and problem.models[0].n_experts == problem.n_experts:
        status = Status.DENSITIES_MERGED(iterations=0, lost=0.0)
        return replace(start, model=problem.models[0], status=status, trace=(0.0,))
    begin = perf_counter()
    rows, stepped = problem.expected_rows, 0.0
    run = nearest_model(rows, start.model, _prior(problem))
    cost = run.log_likelihood - run.trace[-1]  # of the prior, at the end
    trace = _lost(rows, [height + cost for height in run.trace])
    known = run.information if problem.can_pool_grams and run.converged else None
    if known is not None and sites_agree(problem, trace[-1]):
        at, stepped = corrected(problem, rows, run.model, known.matrix)
        run = replace(run, model=at)
    model = on_users_scale(rows, run, start.model)
    if model.experts.smallest_dispersion < _narrowest(problem):
        return replace(start, status=Status.DENSITIES_GIVEN_UP(start=start.status), trace=())
    code = Status.DENSITIES_MERGED if run.converged else Status.DENSITIES_STOPPED
    status = code(iterations=run.n_iter, lost=trace[-1])
    timings = {**start.timings, "kl": perf_counter() - begin}
    return Outcome(model, status, trace, run.converged, start.warnings, timings, stepped=stepped)


def one_expert(problem: Problem, *, roughly: bool = False) -> Outcome:
    """Return the same with a single expert, which is the answer where sites share no more.

    It has few parameters: roughly, few covariates say what it is, as many for each of these as
    whole models have.
    """
    rows, some = problem.expected_rows, problem.models[0]
    if roughly:
        size = some.experts.take([0]).n_parameters
        wanted = PER_PARAMETER * size * len(problem.models)
        rows = rows.thinned(max(len(rows.X) // wanted, 1))
    experts = type(some.experts).blank(1, some.n_features + 1, _classes(some))
    gate = SoftmaxGate.blank(1, some.n_features + 1, None)
    structure = problem.structure and problem.structure.relaxed().at(rows.scaling.transform[:, 0])
    blank = replace(some, gate=gate, experts=experts, structure=structure)
    run = _led(rows, blank, _prior(problem))
    end = _lost(rows, (run.log_likelihood,))
    model = on_users_scale(rows, run, some)
    return Outcome(model, Status.ONE_EXPERT(lost=end[0]), end, run.converged)


def _prior(problem: Problem) -> Ridge:
    """Return the prior of the fit of all rows, where it holds experts of classes and counts.

    Sites' models are held by their own; where they differ, their mixture can be likeliest at
    coefficients so large that the fit of all rows is far from it.
    """
    prior = Ridge.of(problem.models[0].experts)
    if prior.experts == 0:
        return _NONE
    share = problem.expected_rows.total_weight / problem.n_rows
    return Ridge(prior.gate * share, prior.experts * share)


def nearest_model(rows: PseudoRows, start: MoE, ridge: Ridge = _NONE) -> Run:
    """Return the iterations to the most likely model of pseudo-rows.

    With many covariates, a subset of them gives the initial curvature.

    Parameters
    ----------
    rows : PseudoRows
    start : MoE
        On the user's scale.
    ridge : Ridge, optional
    """
    model = rows.scaling.from_user(start)
    step = len(rows.X) // max(_LEAD * model.n_parameters, 1)
    if step < 2 or not newton_serves(model):
        return _led(rows, model, ridge)
    some = RowPasses(rows.thinned(step)).information(model)
    penalty = np.zeros_like(some.matrix) if ridge == _NONE else ridge.matrix(model)
    run = _secants(_Penalised(RowPasses(rows), penalty), model, some.matrix)
    return run if run.converged else run.then(_led(rows, run.model, ridge))


def _led(rows: PseudoRows, model: MoE, ridge: Ridge) -> Run:
    tol = _TOL * model.n_parameters
    search = Ascent(RowPasses(rows), ridge, _MAX_ITER, tol, rows.total_weight, _WARM_UP)
    return search.run(model, lambda stage: None)


@dataclass(frozen=True)
class _Penalised:
    """The information of pseudo-rows, with that of a prior: theta' P theta / 2 is its cost."""

    passes: RowPasses
    penalty: Floats  # P

    def information(self, model: MoE, *, matrix: bool = True) -> Information:
        found = self.passes.information(model, matrix=matrix)
        return replace(
            found,
            log_likelihood=found.log_likelihood - self.cost(model),
            score=found.score - self.penalty @ model.to_vector(),
            matrix=found.matrix + self.penalty if matrix else found.matrix,
        )

    def cost(self, model: MoE) -> float:
        """Return what the prior takes from the log-likelihood."""
        theta = model.to_vector()
        return 0.5 * float(theta @ self.penalty @ theta)


def _secants(passes: _Penalised, model: MoE, matrix: Floats) -> Run:
    """Go on from an information that is nearly right, corrected by what every step shows (BFGS).

    A pass for the score alone takes a tenth of the time of one for the information too, which is
    made where steps by the corrected one gain too little.

    Parameters
    ----------
    passes : _Penalised
    model : MoE
        Standardised.
    matrix : ndarray of shape (P, P)
    """
    free = Free.of(model)
    at = passes.information(model, matrix=False)
    trace, last, decrement, fresh = [at.log_likelihood], np.inf, np.inf, False
    tol, near = (bound * len(matrix) for bound in (_TOL, _NEAR))
    for _ in range(_SECANTS):
        step = free.theta(solve_psd(free.matrix(matrix), free.score(at.score)))
        decrement = float(at.score @ step)
        if decrement <= tol:
            break
        slow = decrement > min(_SHRINKS * last, near)
        there = None if slow and not fresh else _risen(passes, model, at, matrix, damped=fresh)
        if there is None:
            if fresh:
                break
            matrix, last, fresh = passes.information(model).matrix, np.inf, True
            continue
        model, step, found = there
        bend, known = at.score - found.score, matrix @ step
        if step @ bend > 0:
            matrix = matrix + np.outer(bend, bend) / (step @ bend)
            matrix -= np.outer(known, known) / (step @ known)
        at, last, fresh = found, decrement, False
        trace.append(at.log_likelihood)
    end, converged = replace(at, matrix=matrix), decrement <= tol
    height = at.log_likelihood + passes.cost(model)
    return Run(model, height, at.mass, tuple(trace), converged, decrement, end)


def _risen(
    passes: _Penalised, model: MoE, at: Information, matrix: Floats, *, damped: bool
) -> tuple[MoE, Floats, Information] | None:
    """Return a step that gains and the model there, of more and more damped ones; or none."""
    free = Free.of(model)
    inside, score = free.matrix(matrix), free.score(at.score)
    for damping in _DAMPING if damped else (0.0,):
        step = solve_psd(inside + damping * np.diag(np.abs(np.diag(inside))), score)
        step = free.theta(step)
        there = model.with_vector(model.to_vector() + step)
        if np.all(np.isfinite(there.to_vector())):
            found = passes.information(there, matrix=False)
            if found.log_likelihood >= at.log_likelihood:
                return there, step, found
    return None


def _narrowest(problem: Problem) -> float:
    """Return the dispersion below which an expert has settled on single nodes of the grid.

    A model between others is not narrower than they are.
    """
    return _NARROW * min(model.experts.smallest_dispersion for model in problem.models)


def on_users_scale(rows: PseudoRows, run: Run, like: MoE) -> MoE:
    """Return where a run has ended, with features and classes named as in another model."""
    model = rows.scaling.to_user(run.model).tidied()
    return replace(model, feature_names=like.feature_names, classes=like.classes)


def _lost(rows: PseudoRows, heights: Sequence[float]) -> tuple[float, ...]:
    """Return the nats per row lost to the sites' own models, for log-likelihoods of all rows."""
    own = float(rows.weight @ rows.own) / rows.total_weight
    jacobian = rows.scaling.log_jacobian
    return tuple(own - (height / rows.total_weight + jacobian) for height in heights)


def _classes(model: MoE) -> int:
    return type(model.experts).n_classes_of(np.shape(model.experts.coef)) or 2
