"""Merge many local models into one: checks, screening, a method, and each site's contribution."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from otmoe.aggregation.choice import sites_that_differ
from otmoe.aggregation.contribution import Contribution
from otmoe.aggregation.group import SIZE, Grouping, Message, Run, loaded, merge_group
from otmoe.aggregation.groups import groups_of, in_groups
from otmoe.aggregation.problem import Problem
from otmoe.aggregation.result import Aggregation
from otmoe.aggregation.robust import ROBUST
from otmoe.aggregation.screening import Screening
from otmoe.aggregation.solve import METHODS, merging, solved
from otmoe.aggregation.sources import flows
from otmoe.arrays.numerics import Floats, design, namespace, to_numpy
from otmoe.arrays.threads import threads
from otmoe.documents.message import LocalModel
from otmoe.model.ensemble import Ensemble
from otmoe.model.structure import Structure
from otmoe.text.arguments import generator
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.notices import OtmoeWarning
from otmoe.text.sentences import Error


def aggregate(
    messages: Iterable[Message],
    support: Any = None,
    n_experts: int | None = None,
    *,
    method: str = "auto",
    site_weight: Any = None,
    outliers: str = "flag",
    keep: Iterable[str] = (),
    max_weight: float | None = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
    group_size: int | None = None,
    executor: Executor | None = None,
) -> Aggregation:
    """Merge many local models into one.

    A pure function: it needs no engine, no network and no rows of y.

    Parameters
    ----------
    messages : iterable of LocalModel or path
        Of one family and the same features; numbers of experts may differ. Files are read when
        needed.
    support : dict of array-likes, array-like of shape (S, d), Support or int, optional
        Covariates at which the models are compared, without y: those of each site by its name, or a
        few thousand rows that cover all sites. Columns of a data frame are matched by name. By
        default, or for a number of points, they are drawn from the sketches and rows in the
        messages (:func:`otmoe.support_from`).
    n_experts : int, optional
        K of the result; by default the (upper) median over sites.
    method : str
        "auto" chooses the candidate with the smallest expected loss relative to the sites' own
        models. The candidates are "reduction", which minimises the transport divergence to the
        pooled models; "gram", which matches experts by it and pools them with the Grams that the
        sites sent; "kl", the model whose density is closest to those of the sites; and a single
        expert. Or choose one of these three, or "middle", "weighted_average", "aligned_average",
        "greedy", "ensemble". Robust methods are "median", "trimmed", "geometric_median" and "krum"
        (maths 20), in which every site has one vote, whatever number of rows it claims, unless
        `site_weight` is given.
    site_weight : sequence or mapping of float, or "covariate", optional
        lambda_m, by position or by site name; by default proportional to the sites' rows. With
        "covariate" a site counts where its rows are: lambda_m(x) is proportional to the number of
        its rows times the density of its sketch at x.
    outliers : {"flag", "exclude"}
        What to do about sites whose predictions differ from the others', that cannot be compared
        with them, or whose messages are inconsistent (maths 12): name them in a warning and in
        `sites`, or leave them out and name them in `left_out`. This needs at least three sites.
    keep : iterable of str
        Trusted sites: they are kept even if they stand out, and are named.
    max_weight : float, optional
        Largest share of the weight that a site may get from the number of rows it claims; 1 for no
        limit. By default a site that differs from the others by more than chance explains is
        limited to one half if `outliers` is "exclude", and named if it is "flag".
    random_state : int, Generator or None
        For the starts. The default is fixed: the same messages give the same model.
    n_jobs : int, optional
        Threads; None means 1, -1 all cores.
    group_size : int, optional
        Sites to merge at a time (maths 11): first within groups, then the models of the groups,
        weighted by the rows of each. By default all at once, or 100 at a time if there are more
        than 2,000. `sites` and `messages` of the result are then those of the groups, and sites
        that stand out are named in warnings and `left_out`. Not with ``method="ensemble"``,
        `max_weight`, or weights by covariates.
    executor : Executor, optional
        Where groups are merged; by default here, one after another.

    Returns
    -------
    Aggregation
        Its warnings are also given as one Python warning.

    Examples
    --------
    >>> from otmoe import MoERegressor, simulate
    >>> data = simulate(4000, 2, 2, random_state=0)
    >>> sites = [
    ...     MoERegressor(2, random_state=0).fit(data.X[half], data.y[half]).to_message(site=name)
    ...     for name, half in [("lyon", slice(0, 2500)), ("nantes", slice(2500, None))]
    ... ]
    >>> result = aggregate(sites, support=data.X[:500])
    >>> result.model.n_experts
    2
    >>> [round(record.weight, 3) for record in result.sites]
    [0.625, 0.375]
    """
    if outliers not in ("flag", "exclude"):
        raise InvalidInput(
            Error.NOT_ONE_OF, name="outliers", value=outliers, choices=["exclude", "flag"]
        )
    keep = (keep,) if isinstance(keep, str) else tuple(keep)
    result = merged(
        messages,
        support,
        n_experts,
        method,
        site_weight,
        random_state,
        n_jobs,
        outliers,
        keep,
        max_weight,
        group_size,
        None if executor is None else partial(executor.map, merge_group),
    )
    if result.warnings:
        warnings.warn(OtmoeWarning("aggregate", result.warnings), stacklevel=2)
    return result


def merged(
    messages: Iterable[Message],
    support: Any,
    n_experts: int | None,
    method: str,
    site_weight: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
    outliers: str | None = None,
    keep: Sequence[str] = (),
    max_weight: float | None = None,
    group_size: int | None = None,
    run: Run | None = None,
    how: Grouping | None = None,
) -> Aggregation:
    """Do what :func:`aggregate` does, without Python warnings: they are in the result.

    With `outliers` None, sites are not screened. What merges groups is
    :func:`otmoe.aggregation.group.merge_group`, applied by `run`; `how` adds what only files need.
    """
    if method not in METHODS:
        raise InvalidInput(Error.NOT_ONE_OF, name="method", value=method, choices=sorted(METHODS))
    if max_weight is not None and not 0 < max_weight <= 1:
        raise InvalidInput(Error.MAX_WEIGHT_WRONG, value=max_weight)
    begin, rng = perf_counter(), generator(random_state)
    if isinstance(messages, LocalModel):
        raise InvalidType(Error.ONE_MESSAGE)
    messages = tuple(messages)
    if in_groups(messages, group_size, method, site_weight, max_weight):
        how = replace(
            how or Grouping(),
            n_experts=n_experts,
            method=method,
            outliers=outliers,
            keep=tuple(keep),
            group_size=group_size or SIZE,
        )
        found = groups_of(messages, support, site_weight, how, rng, run)
        top = "reduction" if method == "gram" else method  # groups have no Grams to pool
        result = merged(
            found.messages,
            found.support,
            n_experts,
            top,
            found.weight,
            rng,
            n_jobs,
            outliers,
            found.with_any(keep),
        )
        return found.told(result, perf_counter() - begin)
    with threads(n_jobs) as pool:
        done = solved(
            loaded(messages),
            support,
            n_experts,
            method,
            site_weight,
            rng,
            pool,
            outliers,
            keep,
            max_weight,
        )
        problem, screening, outcome, lost = done.problem, done.screening, done.outcome, done.lost
        with merging(problem):
            model, cost, records = _records(problem, outcome.model, screening, lost)
    total = perf_counter() - begin
    rest = total - sum(done.timings[name] for name in ("checks", "screening", "method"))
    timings = {**done.timings, "records": rest, "total": total}
    return Aggregation(
        model=model,
        method=outcome.method or method,
        cost=cost,
        trace=np.array(outcome.trace),
        converged=outcome.converged,
        status=outcome.status,
        warnings=(
            problem.warnings
            + screening.warnings
            + outcome.warnings
            + sites_that_differ(problem, lost)
        ),
        sites=records,
        timings=timings,
        messages=problem.messages,
        n_support=len(problem.sources),
        support=problem.sources.X,
        left_out=screening.left_out,
        candidates=outcome.candidates,
        problem=None if outliers is None else problem.kept,
        merged=None if method in ROBUST else model,
    )


def _records(
    problem: Problem, model: Any, screening: Screening, lost: Floats
) -> tuple[Any, float, tuple[Contribution, ...]]:
    """Return the model with experts by mass, R_c, and the part that each site had."""
    sources = problem.sources
    kept = isinstance(model, Ensemble)
    n_models = len(problem.models)
    owner = problem.ensemble.gate.site
    mass, cost = np.zeros((len(owner), 0)), np.zeros(len(owner))
    if not kept:
        mass, cost = flows(sources, sources.scaling.from_user(model).experts)
        order = (model.structure or Structure()).order(mass.sum(axis=0))
        model, mass = model.take(order), mass[:, order]
    total = np.bincount(owner, weights=sources.mass, minlength=n_models) * len(sources)
    spent = np.bincount(owner, weights=cost, minlength=n_models)
    coverage = _coverage(problem)
    weight = problem.site_weight
    if problem.ensemble.gate.density is not None:  # no site has weight zero then
        weight = weight * (total / len(sources) / problem.weight)[problem.which]
    records = []
    for m, message in enumerate(problem.messages):
        u = int(problem.which[m])
        some = u >= 0 and total[u] > 0
        verdict = screening.verdicts.get(message.site)
        records.append(
            Contribution(
                site=message.site,
                n_samples=message.n_samples,
                weight=float(weight[m]),
                cost=float(spent[u] / total[u]) if some else np.nan,
                mass=mass[owner == u] / total[u] if some and not kept else None,
                coverage=float(coverage[u]) if u >= 0 else 0.0,
                disagreement=np.nan if verdict is None else verdict.disagreement,
                flagged=() if verdict is None else verdict.reasons,
                lost=float(lost[u]) if u >= 0 else np.nan,
            )
        )
    return model, float(cost.sum()) / len(sources), tuple(records)


def _coverage(problem: Problem) -> Floats:
    """Return the share of support points at which each distinct model contributes."""
    gate, X = problem.ensemble.gate, problem.sources.X
    if gate.constant is None or not any(gate.constant):
        return np.ones(len(problem.models))
    contributes = gate.contributes(design(X))
    xp = namespace(X)
    return to_numpy(xp.mean(xp.astype(contributes, xp.float64), axis=0))
