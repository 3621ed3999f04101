"""The aggregators: each takes a Problem and returns an Outcome."""

from __future__ import annotations

from dataclasses import fields, replace
from time import perf_counter

import numpy as np

from otmoe.aggregation.contribution import Outcome
from otmoe.aggregation.gate import gated
from otmoe.aggregation.greedy import greedy_labels
from otmoe.aggregation.mm import EMPTY, descend
from otmoe.aggregation.problem import Problem
from otmoe.aggregation.sources import costs
from otmoe.aggregation.starts import FEW, search
from otmoe.arrays.numerics import Floats, design
from otmoe.model.divergence import kl, transport_costs
from otmoe.model.experts import Experts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error, Status, Warn

# These three bound time; `python -m benchmarks constants` halves and doubles them.
_FINALISTS = 4  # middle models that are compared once more, on more points
_CANDIDATES = 256  # models of which the middle one is chosen

# Hard and soft experts of sites that agree had .8 to 1.6 of it, from the first start as from the
# best of nine; where experts overlap, or sites differ, it is exceeded and all starts are tried.
_EXPLAINED = 2.0  # times R_c that chance explains, below which no other start is sought
_CHANCE = 0.05  # nats that chance may explain for that: ten rows for each parameter

PROBLEMS = 500_000
"""Transport problems that choosing the middle model may solve."""

GREEDY_LIMIT = 1500
"""Experts that may be merged greedily."""

_NO_SAY = 1e-12  # lambda_m(x) below which what a site says at x is not looked at: it is divided by


def reduction(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Minimise the relaxed transport divergence to f^W by MM (the paper's R; maths 11)."""
    clock = {}
    begin = perf_counter()
    sources, K, labels = problem.sources, problem.n_experts, None
    structure = problem.structure_here
    if structure is not None and structure.labelled:  # who is who is known
        labels, start = by_columns(problem, rng)
        runs = [descend(sources.few(FEW, rng), start, labels, structure=structure)]
    else:
        chance = problem.cost_by_chance
        enough = _EXPLAINED * chance if chance <= _CHANCE else 0.0
        runs = search(sources.few(FEW, rng), K, rng, structure, enough)
    clock["starts"] = perf_counter() - begin
    run = descend(sources, runs[0].experts, labels, structure=structure)
    clock["mm"] = perf_counter() - begin - clock["starts"]
    model = gated(sources, run.experts, labels, problem.structure)
    clock["gate"] = perf_counter() - begin - clock["starts"] - clock["mm"]

    empty = int(np.sum(run.mass <= EMPTY))
    warnings = (Warn.EXPERTS_EMPTY(empty=empty, experts=K),) if empty else ()
    best, total = runs[0].trace[-1], len(runs)
    same = sum(r.trace[-1] <= best * 1.01 + 1e-12 for r in runs)
    status = (Status.REDUCED if run.converged else Status.REDUCTION_STOPPED)(
        iterations=run.n_iter, cost=run.trace[-1], same=same, starts=total
    )
    return Outcome(model, status, run.trace, run.converged, warnings, clock)


def by_columns(problem: Problem, rng: np.random.Generator) -> tuple[Floats, Experts]:
    """Return the target of each source where experts have columns of their own, and a start.

    An expert is matched to the one that sees the same columns at the site of most weight; among
    several of these, to the nearest.
    """
    reference = problem.models[int(np.argmax(problem.weight))]
    X = problem.sources.few(FEW, rng).X
    labels = np.concatenate(
        [np.argsort(model.order_like(reference, X)) for model in problem.models]
    )
    return labels, problem.sources.scaling.from_user(reference).experts


def greedy(problem: Problem, rng: np.random.Generator, most: int = GREEDY_LIMIT) -> Outcome:
    """Merge experts two at a time, the cheapest merger first (Runnalls; maths 11)."""
    sources, K = problem.sources, problem.n_experts
    L, structure = sources.experts.n_experts, problem.structure_here
    if L > most:
        raise InvalidInput(Error.GREEDY_TOO_MANY, experts=L)
    if structure is not None and structure.labelled:
        labels, experts = by_columns(problem, rng)
    elif L <= K:
        labels, experts = np.arange(L), sources.experts.take(np.arange(K) % L)
    else:
        labels, experts = greedy_labels(sources.few(2000, rng), K)
    run = descend(sources, experts, labels, structure=structure)
    status = Status.GREEDILY_MERGED(sources=L, experts=K, cost=run.trace[-1])
    return Outcome(gated(sources, run.experts, labels, problem.structure), status)


def middle(problem: Problem, rng: np.random.Generator, n_problems: int = PROBLEMS) -> Outcome:
    """Take the local model to which moving all the others costs least (the paper's Mid; maths 11).

    Candidates are compared by T_c on few support points first; the best few on more.
    """
    sources = problem.sources
    sizes = np.array([model.n_experts for model in problem.models])
    sites = np.flatnonzero(sizes == problem.n_experts)
    if not len(sites):
        raise InvalidInput(Error.NO_MIDDLE, experts=problem.n_experts)
    sites = _knowing(problem, sites)
    if len(sites) > _CANDIDATES:
        sites = np.sort(rng.choice(sites, _CANDIDATES, replace=False))
    n_pairs = len(sites) * len(problem.models)
    few = sources.few(max(n_problems // n_pairs, 50), rng)
    spent = _transport_to(few.X, problem, sites)
    if len(sites) > _FINALISTS:
        sites = sites[np.argsort(spent, kind="stable")[:_FINALISTS]]
        more = sources.few(max(n_problems // (_FINALISTS * len(problem.models)), 50), rng)
        spent = _transport_to(more.X, problem, sites)
    best = int(sites[np.argmin(spent)])
    status = Status.MIDDLE(site=problem.name(best), cost=spent.min())
    return Outcome(problem.models[best], status)


def _transport_to(X: Floats, problem: Problem, sites: Floats) -> Floats:
    """Return sum_m lambda_m T_c(f_m, f_u) on some points, for each of some sites u."""
    Z, gate, experts = design(X), problem.ensemble.gate, problem.ensemble.experts
    share = np.broadcast_to(gate.site_prob(Z), (len(X), len(problem.models)))
    supply = gate.prob(Z)
    parts = []  # what each site has to move: its experts, where it contributes, how much
    for m in range(len(problem.models)):
        mine, here = gate.experts_of(m), np.flatnonzero(share[:, m] > _NO_SAY)
        lam = share[here, m]
        parts.append((mine, here, lam, supply[here, mine] / lam[:, None]))

    def total(model: MoE) -> float:
        cost, demand = kl(experts, model.experts, Z), model.gate.prob(Z)  # (n, L, K), (n, K)
        spent = [
            lam @ transport_costs(cost[here, mine], within, demand[here])
            for mine, here, lam, within in parts
        ]
        return float(sum(spent)) / len(X)

    return np.array([total(problem.models[u]) for u in sites])


def weighted_average(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Average the parameters as they come, expert by expert (the paper's W; maths 11).

    Experts of local models are ordered by mass; nothing else makes expert k of one site the expert
    k of another.
    """
    _check_equal(problem)
    model = averaged_parameters(problem, list(problem.models))
    return Outcome(model, Status.AVERAGED(models=len(problem.messages)))


def aligned_average(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Average the parameters after matching each site's experts to those of a central site.

    They are compared where the site contributes: elsewhere its experts mean nothing.
    """
    _check_equal(problem)
    few = problem.sources.few(FEW, rng)
    gate = few.ensemble.gate
    sites = _knowing(problem, np.arange(len(problem.models)))[:_CANDIDATES]
    spent = [costs(few, few.experts.take(gate.experts_of(u))).sum() for u in sites]
    reference = int(sites[np.argmin(spent)])
    contributes = gate.contributes(design(few.X))
    aligned = []
    for u, model in enumerate(problem.models):
        X = few.X
        if contributes is not None and np.any(
            both := contributes[:, u] & contributes[:, reference]
        ):
            X = X[both]
        aligned.append(model.aligned_to(problem.models[reference], X))
    model = averaged_parameters(problem, aligned)
    status = Status.ALIGNED(models=len(problem.messages), site=problem.name(reference))
    return Outcome(model, status)


def ensemble(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Return f^W itself, a predictor that asks the experts of every site."""
    n = problem.ensemble.n_experts
    return Outcome(problem.ensemble, Status.KEPT_ALL(experts=n, models=len(problem.messages)))


def _knowing(problem: Problem, sites: Floats) -> Floats:
    """Return those of some models that neither stand out nor lack a coefficient, if any do not."""
    sites = np.array([u for u in sites if u not in problem.suspects] or sites)
    return np.array([u for u in sites if not problem.constant[u]] or sites)


def check_same_weights(problem: Problem) -> None:
    """Refuse weights of sites that depend on x."""
    if problem.ensemble.gate.density is not None:
        raise InvalidInput(Error.AVERAGE_BY_COVARIATE)


def _check_equal(problem: Problem) -> None:
    check_same_weights(problem)
    for u, model in enumerate(problem.models):
        if model.n_experts != problem.n_experts:
            raise InvalidInput(
                Error.AVERAGE_UNEQUAL,
                site=problem.name(u),
                experts=model.n_experts,
                wanted=problem.n_experts,
            )


def averaged_parameters(problem: Problem, models: list[MoE]) -> MoE:
    """Return the weighted mean of the parameters, each over the sites that could estimate it.

    A site where feature j had the one value c knows neither its coefficient nor the intercept, only
    the intercept plus c times the coefficient. The coefficient is averaged over the other sites,
    and the site's share of the intercept is what it knows less c times that mean.
    """
    free = np.ones((len(models), problem.ensemble.n_features + 1))
    fixed = np.zeros_like(free)
    for u, constant in enumerate(problem.constant):
        for feature, value in constant.items():
            free[u, feature + 1], fixed[u, feature + 1] = 0.0, value
    weight = problem.weight[:, None] * free  # (U, p)
    unknown = weight.sum(axis=0) == 0
    weight[:, unknown] = problem.weight[:, None]  # no site knows it: keep as given
    fixed[:, unknown] = 0.0
    share = weight / weight.sum(axis=0)

    def mean(coefs: list[Floats]) -> Floats:
        stacked = np.stack(coefs)  # (U, K, p) or (U, K, C, p)
        result = np.einsum("u...p,up->...p", stacked, share)
        known = np.einsum("u,up,u...p->...", share[:, 0], fixed, stacked)
        result[..., 0] += known - np.einsum("u,up,...p->...", share[:, 0], fixed, result)
        return result

    experts = models[0].experts
    others = {
        f.name: np.tensordot(problem.weight, [getattr(m.experts, f.name) for m in models], axes=1)
        for f in fields(experts)
        if f.name != "coef"
    }
    columns = models[0].gate.columns
    if any(model.gate.columns != columns for model in models):
        columns = None
    return replace(
        models[0],
        gate=SoftmaxGate(mean([model.gate.coef for model in models]), columns),
        experts=replace(experts, coef=mean([m.experts.coef for m in models]), **others),
    ).tidied()
