"""Where the reduction begins: few support points, many starts (maths 11)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from otmoe.aggregation.greedy import greedy_labels
from otmoe.aggregation.mm import Descent, descend
from otmoe.aggregation.sources import Sources, costs
from otmoe.arrays.numerics import Floats
from otmoe.model.experts import Experts
from otmoe.model.structure import Structure

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
FEW = 500
"""Support points on which starts are searched."""

_CLUSTERINGS = 10  # starts by k-means of the experts; equal partitions count once
_SEEDINGS = 4  # starts by seeds far apart
_LOCAL_TRIED = 24  # local models looked at
_LOCAL_KEPT = 3  # and tried as starts
_GREEDY_LIMIT = 160  # experts up to which greedy merging is worth its time here
_SAME = 1.01  # times the lowest R_c, up to which starts have led to one end
_SHORT = 30  # iterations of MM that rank the starts


def search(
    sources: Sources,
    n_experts: int,
    rng: np.random.Generator,
    structure: Structure | None = None,
    enough: float = 0.0,
) -> list[Descent]:
    """Run MM from every start on the given (few) points; the lowest R_c first.

    Where all local models lead to one R_c that is low enough, there are no further starts.

    Parameters
    ----------
    sources : Sources
    n_experts : int
    rng : Generator
    structure : Structure, optional
        Of the result, the same for all experts.
    enough : float
        R_c that none is expected to fall far below.
    """
    runs: list[Descent] = []
    for start in candidates(sources, n_experts, rng):
        runs.append(descend(sources, start, structure=structure, max_iter=_SHORT, tol=1e-4))
        ends = [run.trace[-1] for run in runs]
        if len(ends) == _LOCAL_KEPT and max(ends) <= min(enough, _SAME * min(ends)):
            break
    return sorted(runs, key=lambda run: run.trace[-1])


def candidates(sources: Sources, n_experts: int, rng: np.random.Generator) -> Iterator[Experts]:
    """Give the starts: clusters of experts, local models, greedy mergers, seeds far apart."""
    experts = sources.experts
    L = experts.n_experts
    if L <= n_experts:  # nothing to merge: everyone stays, and some are there twice
        yield experts.take(np.arange(n_experts) % L)
        return
    yield from local_models(sources, n_experts, rng)
    seen = set()
    for labels in clusterings(sources, n_experts, rng):
        key = labels.tobytes()
        if key not in seen:
            seen.add(key)
            yield averaged(experts, labels, sources.mass, n_experts)
    if L <= _GREEDY_LIMIT:
        yield greedy_labels(sources, n_experts)[1]
    for _ in range(_SEEDINGS):
        yield spread_seeds(sources, n_experts, rng)


def clusterings(sources: Sources, n_experts: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Give labels of the experts by k-means on G^(1/2) beta, with G the second moments of x.

    On that scale a squared distance is the mean squared difference of two predictors.
    """
    experts = sources.experts
    Z = sources.Z
    gram = Z.T @ Z / len(sources)
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    points = (experts.coef @ root).reshape(experts.n_experts, -1)
    weight = np.maximum(sources.mass, 1e-12)
    for _ in range(_CLUSTERINGS):
        seed = int(rng.integers(2**31))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct experts than K
            fitted = KMeans(n_experts, n_init=1, max_iter=50, random_state=seed).fit(
                points, sample_weight=weight
            )
        yield _by_first(fitted.labels_, n_experts)


def averaged(experts: Experts, labels: Floats, weight: Floats, n_experts: int) -> Experts:
    """Return the weighted means of the parameters of experts with the same label.

    A label that no expert has gets the mean of all.
    """
    share = (labels[None, :] == np.arange(n_experts)[:, None]) * np.maximum(weight, 1e-300)
    share[share.sum(axis=1) == 0] = 1.0
    share = share / share.sum(axis=1, keepdims=True)
    means = {f.name: np.tensordot(share, getattr(experts, f.name), axes=1) for f in fields(experts)}
    return replace(experts, **means)


def local_models(sources: Sources, n_experts: int, rng: np.random.Generator) -> Iterator[Experts]:
    """Give the experts of the local models to which moving f^W costs least."""
    gate = sources.ensemble.gate
    sizes = np.array([g.n_experts for g in gate.gates])
    sites = np.flatnonzero(sizes == n_experts)
    if len(sites) > _LOCAL_TRIED:
        sites = np.sort(rng.choice(sites, _LOCAL_TRIED, replace=False))
    found = [sources.experts.take(gate.experts_of(int(m))) for m in sites]
    if len(found) > 1:
        spent = [costs(sources, experts).sum() for experts in found]
        found = [found[i] for i in np.argsort(spent, kind="stable")]
    yield from found[:_LOCAL_KEPT]


def spread_seeds(sources: Sources, n_experts: int, rng: np.random.Generator) -> Experts:
    """Draw experts one after another, each with probability mass times cost so far (k-means++)."""
    first = rng.choice(len(sources.mass), p=sources.mass / sources.mass.sum())
    chosen = [int(first)]
    while len(chosen) < n_experts:
        cost = np.maximum(costs(sources, sources.experts.take(chosen)), 0.0)
        cost[chosen] = 0.0
        if not cost.sum() > 0:  # fewer distinct experts than K
            chosen.append(chosen[-1])
        else:
            chosen.append(int(rng.choice(len(cost), p=cost / cost.sum())))
    return sources.experts.take(chosen)


def _by_first(labels: Floats, n_experts: int) -> Floats:
    """Renumber labels in the order in which they appear, so that equal partitions look equal."""
    _, first = np.unique(labels, return_index=True)
    order = labels[np.sort(first)]
    number = np.zeros(n_experts, dtype=int)
    number[order] = np.arange(len(order))
    return number[labels]
