"""Choice of the method by the expected loss relative to the sites' own models (maths 17)."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from scipy import stats

from otmoe.aggregation.contribution import MethodCandidate, Outcome
from otmoe.aggregation.densities import by_densities, one_expert
from otmoe.aggregation.gram import pooled_by_grams
from otmoe.aggregation.methods import reduction
from otmoe.aggregation.problem import Problem
from otmoe.arrays.numerics import Floats
from otmoe.model.ensemble import Ensemble
from otmoe.model.mixture import MoE
from otmoe.text.notices import Notice, listed
from otmoe.text.sentences import Status, Warn

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_WORTHWHILE = 0.05  # of what chance costs: candidates that differ by less are level
_PREFERRED = ("gram", "reduction", "kl", "one_expert")  # of those that are level, the first
_LEVEL = 0.001  # of the test of whether sites differ
_ROBUST = 2.0  # times as much as chance explains where the model is right
_NOTICEABLE = 0.005  # nats per row
_ROUNDING = 1e-12  # nats per row that are none


def auto(problem: Problem, rng: np.random.Generator) -> Outcome:
    """Choose the candidate with the smallest expected loss relative to the sites' own models.

    Candidates are the reduction, experts pooled by Grams if all sites sent these, merged densities
    started from the better of the two, and a single expert. Among tied candidates, the one with the
    smaller errors for sites that agree is chosen: densities that used the observed curvature of
    Grams, otherwise Grams. If rows of a group share their expert, these losses of single rows say
    too little (maths 23): Grams are used if all sites sent them, otherwise the reduction.
    """
    first = reduction(problem, rng)
    if problem.models[0].expert_per == "group":
        grams = problem.can_pool_grams
        found = {"gram": pooled_by_grams(problem, first, rng)} if grams else {"reduction": first}
        ((best, chosen),) = found.items()
        status = Status.CHOSEN(method=best, status=chosen.status)
        return replace(chosen, method=best, status=status)
    found = {"reduction": first}
    if problem.can_pool_grams:
        found["gram"] = pooled_by_grams(problem, first, rng)
    begin = perf_counter()
    lost = {name: expected_losses(problem, outcome.model) for name, outcome in found.items()}
    start = min(found, key=lambda name: problem.mean(lost[name]))
    more = {"kl": by_densities(problem, found[start])}
    if problem.n_experts > 1 and not (problem.structure and problem.structure.labelled):
        more["one_expert"] = one_expert(problem, roughly=True)
    lost |= {name: expected_losses(problem, outcome.model) for name, outcome in more.items()}
    found |= more
    total = {name: problem.mean(lost[name]) for name in found}
    chance = problem.n_parameters / (2 * problem.n_rows)  # nats per row, of any estimate
    judged = {name: total[name] - outcome.stepped for name, outcome in found.items()}
    near = min(judged.values()) + _WORTHWHILE * chance
    preferred = sorted(found, key=lambda name: (not found[name].stepped, _PREFERRED.index(name)))
    best = next(name for name in preferred if judged[name] <= near)
    chosen = found[best]
    if best == "one_expert":
        chosen = one_expert(problem)
        lost[best] = expected_losses(problem, chosen.model)
        total[best] = problem.mean(lost[best])
    order = sorted(found, key=lambda name: total[name])
    return replace(
        chosen,
        method=best,
        status=Status.CHOSEN(method=best, status=chosen.status),
        timings={**first.timings, **chosen.timings, "choice": perf_counter() - begin},
        candidates=tuple(
            MethodCandidate(name, found[name].model.n_experts, total[name]) for name in order
        ),
        lost=lost[best],
    )


def expected_losses(problem: Problem, model: MoE) -> Floats:
    """Return the nats per row that a model is expected to lose to each distinct model, (U,)."""
    if isinstance(model, Ensemble):  # it has the experts of every site: too many to look at
        return np.full(len(problem.models), np.nan)
    lost = problem.fresh_rows.losses(model, len(problem.models))
    return np.where(np.abs(lost) < _ROUNDING, 0.0, lost)


def sites_that_differ(problem: Problem, lost: Floats) -> tuple[Notice, ...]:
    """Return a warning that names the sites whose own models are better than chance explains.

    Where all rows follow one model, twice the nats that a site of n rows loses to its own fit of P
    parameters have about the chi-square distribution with P degrees of freedom.

    Parameters
    ----------
    problem : Problem
    lost : ndarray of shape (U,)
        Nats per row, of :func:`expected_losses`.
    """
    if len(problem.models) < 2:
        return ()
    level = 1 - _LEVEL / len(problem.models)
    bounds = stats.chi2.ppf(level, [model.n_free for model in problem.models])
    differ: dict[str, float] = {}
    for u, (bound, nats) in enumerate(zip(bounds, lost, strict=True)):
        members = [problem.messages[int(m)] for m in np.flatnonzero(problem.which == u)]
        n = sum(message.n_samples for message in members)
        if nats > max(_ROBUST * bound / (2 * n), _NOTICEABLE):
            differ.update((message.site, float(nats)) for message in members)
    if not differ:
        return ()
    worst = sorted(differ, key=lambda name: -differ[name])
    names = listed([f"{name!r} by {differ[name]:.2g}" for name in worst])
    facts = {"count": len(differ), "total": len(problem.messages), "names": names}
    return (Warn.SITES_DIFFER(sites=tuple(worst), **facts),)
