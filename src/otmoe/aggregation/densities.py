"""Whole models merged, not experts: the nearest model in Kullback-Leibler divergence (maths 17)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from otmoe.aggregation.contribution import Outcome
from otmoe.aggregation.expected import PseudoRows
from otmoe.aggregation.methods import reduction
from otmoe.aggregation.problem import Problem
from otmoe.arrays.newton import solve_psd
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.information import Information
from otmoe.likelihood.iterations import Run, newton_serves, run_newton
from otmoe.likelihood.search import Search
from otmoe.likelihood.statistics import RowPasses, Statistics
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.text.sentences import Status

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_TOL = 1e-3  # squared distance to the maximum, in standard errors
_MAX_ITER = 25
_WARM_UP = 2  # EM iterations before Newton's method
_LEAD = 40  # covariates for every parameter that lead the way, where there are many more
_NEAR = 2.0  # squared distance in standard errors, for every parameter, up to which that serves
_CHORDS = 4  # steps by the curvature of these

_NARROW = 0.25  # of the least dispersion of any site

_NONE = Ridge(0.0, 0.0)  # sites' models are held by their own


def kl(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Return the model that the sites' own expect to be most likely (maths 17)."""
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
    rows = problem.expected_rows
    run = nearest_model(rows, start.model)
    model = _on_users_scale(rows, run, start.model)
    if model.experts.smallest_dispersion < _narrowest(problem):
        return replace(start, status=Status.DENSITIES_GIVEN_UP(start=start.status), trace=())
    trace = _lost(rows, run)
    code = Status.DENSITIES_MERGED if run.converged else Status.DENSITIES_STOPPED
    status = code(iterations=run.n_iter, lost=trace[-1])
    timings = {**start.timings, "kl": perf_counter() - begin}
    return Outcome(model, status, trace, run.converged, start.warnings, timings)


def one_expert(problem: Problem) -> Outcome:
    """Return the same with a single expert, which is the answer where sites share no more."""
    rows, some = problem.expected_rows, problem.models[0]
    experts = type(some.experts).blank(1, some.n_features + 1, _classes(some))
    gate = SoftmaxGate.blank(1, some.n_features + 1, None)
    blank = replace(some, gate=gate, experts=experts)
    run = _led(rows, blank)
    end = _lost(rows, run)[-1:]
    model = _on_users_scale(rows, run, some)
    return Outcome(model, Status.ONE_EXPERT(lost=end[0]), end, run.converged)


def nearest_model(rows: PseudoRows, start: MoE) -> Run:
    """Return the iterations to the most likely model of pseudo-rows.

    Some of the covariates lead to where their maximum is, and what they know of the curvature
    there serves for the steps on all of them.

    Parameters
    ----------
    rows : PseudoRows
    start : MoE
        On the user's scale.
    """
    model = rows.scaling.from_user(start)
    step = len(rows.X) // max(_LEAD * model.n_parameters, 1)
    if step < 2 or not newton_serves(model):
        return _led(rows, model)
    first = _led(rows.thinned(step), model)
    if first.information is None or not first.converged:
        return _led(rows, first.model)
    passes = _Chords(RowPasses(rows), first.information.matrix)
    if passes.distance(first.model) > _NEAR * model.n_parameters:
        return _led(rows, first.model)
    run = run_newton(passes, first.model, ridge=_NONE, max_iter=_CHORDS, tol=_TOL)
    return run if run.converged else run.then(_led(rows, run.model))


def _led(rows: PseudoRows, model: MoE) -> Run:
    search = Search(RowPasses(rows), _NONE, _MAX_ITER, _TOL, rows.total_weight, _WARM_UP)
    return search.run(model, lambda stage: None)


@dataclass(frozen=True)
class _Chords:
    """Passes that take the information from elsewhere."""

    passes: RowPasses
    matrix: Floats

    def statistics(self, model: MoE) -> Statistics:
        return self.passes.statistics(model)

    def information(self, model: MoE, *, matrix: bool = True) -> Information:
        found = self.passes.information(model, matrix=False)
        return replace(found, matrix=self.matrix) if matrix else found

    def distance(self, model: MoE) -> float:
        """Return the squared distance to the maximum, in standard errors."""
        score = self.information(model, matrix=False).score
        return float(score @ solve_psd(self.matrix, score))


def _narrowest(problem: Problem) -> float:
    """Return the dispersion below which an expert has settled on single nodes of the grid.

    A model between others is no narrower than they are.
    """
    return _NARROW * min(model.experts.smallest_dispersion for model in problem.models)


def _on_users_scale(rows: PseudoRows, run: Run, like: MoE) -> MoE:
    """Return where a run has ended, with features and classes named as in another model."""
    model = rows.scaling.to_user(run.model)
    return replace(model, feature_names=like.feature_names, classes=like.classes)


def _lost(rows: PseudoRows, run: Run) -> tuple[float, ...]:
    """Return the nats per row that the models of a run lose to the sites' own, step by step."""
    own = float(rows.weight @ rows.own) / rows.total_weight
    jacobian = rows.scaling.log_jacobian
    return tuple(own - (height / rows.total_weight + jacobian) for height in run.trace)


def _classes(model: MoE) -> int:
    return type(model.experts).n_classes_of(np.shape(model.experts.coef)) or 2
