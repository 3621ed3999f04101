"""Where EM begins: models made from first labels, and the plan of a search (maths 4)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from otmoe.arrays.numerics import Floats, scaled
from otmoe.likelihood.rows import Block
from otmoe.likelihood.statistics import VARIANCE_FLOOR
from otmoe.model.experts import Experts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.structure import Structure

_CONFIDENCE = 0.98
_RIDGE = 1.0  # first gates and experts only point the way; hard labels would separate them


@dataclass(frozen=True)
class Plan:
    """How a maximum is searched; measured for each kind of family (docs/benchmarks.md).

    Attributes
    ----------
    n_init : int
        Independent searches, unless the user asks for another number; twice as many where `few`
        rows are all there are.
    few : int
        Rows on which they set out.
    some : int
        Rows on which moves improve what they found.
    moves : int
        That are tried there from each maximum, at most.
    ways : tuple of (callable, int)
        What makes first labels and how often rows are then handed on, used in turn. Different ways
        miss different optima.
    """

    n_init: int
    few: int
    some: int
    moves: int
    ways: tuple[tuple[Callable[[Experts, Block, np.random.Generator], Floats], int], ...]


def k_planes(
    experts: Experts,
    block: Block,
    labels: Floats,
    n_sweeps: int,
    structure: Structure | None = None,
) -> tuple[Experts, Floats]:
    """Alternate between fitting an expert to its rows and giving each row to its best expert.

    Parameters
    ----------
    experts : Experts
        Where the fits begin.
    block : Block
    labels : ndarray of int of shape (n,)
        First assignment.
    n_sweeps : int
    structure : Structure, optional
        Of the experts.

    Returns
    -------
    experts : Experts
    labels : ndarray of int of shape (n,)
    """
    response = experts.observe(block.y)
    for _ in range(n_sweeps):
        weight = scaled(_one_hot(labels, experts.n_experts), block.weight)
        experts = roughly_fitted(experts, block, weight, structure).neutral()
        eta = experts.predictor(block.X, block.offset)
        height = block.by_group(experts.expected_log_prob(eta, response))
        previous, labels = labels, np.argmax(height, axis=1)
        if np.array_equal(previous, labels):
            break
    return experts, labels


def plane_labels(experts: Experts, block: Block, rng: np.random.Generator) -> Floats:
    """Give each row to the nearest of random planes.

    A plane is the least-squares fit to as many random rows as it has coefficients.
    """
    n, p = block.X.shape
    y = experts.working(block.y)
    if block.offset is not None:
        y = y - block.offset
    distances = []
    for _ in range(experts.n_experts):
        some = rng.choice(n, min(n, p + 1), replace=False)
        plane = np.linalg.lstsq(block.X[some], y[some], rcond=1e-6)[0]
        distances.append(np.abs(y - block.X @ plane).reshape(n, -1).sum(axis=1))
    return np.argmin(distances, axis=0)


def cluster_labels(experts: Experts, block: Block, rng: np.random.Generator) -> Floats:
    """Give each row to its k-means cluster of x."""
    seed = int(rng.integers(2**31))
    n_clusters = min(experts.n_experts, len(block.y))
    clusters = KMeans(n_clusters, n_init=1, max_iter=20, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        return np.asarray(clusters.fit_predict(block.X[:, 1:]))


def region_labels(experts: Experts, block: Block, rng: np.random.Generator) -> Floats:
    """Give each row to a region of x cut by random hyperplanes."""
    normals = rng.standard_normal((block.X.shape[1], experts.n_experts))
    return np.argmax(block.X @ normals, axis=1)


def model_from_labels(
    experts: Experts,
    block: Block,
    labels: Floats,
    columns: tuple[int, ...] | None,
    structure: Structure | None = None,
) -> MoE:
    """Return a model whose experts and gate are fitted to softened labels."""
    K = experts.n_experts
    rest = (1 - _CONFIDENCE) / max(K - 1, 1)
    soft = rest + (1 - rest * K) * _one_hot(labels, K)
    weight = scaled(soft, block.weight)
    experts = roughly_fitted(experts.neutral(), block, weight, structure)
    gate = SoftmaxGate.blank(K, block.X.shape[1], columns)
    gate = gate.step(gate.statistics(block.X, scaled(soft, block.once)), alpha=_RIDGE)
    return MoE(gate, experts.floored(VARIANCE_FLOOR), structure=structure)


# A number or a count tells its expert, so rows can be handed from plane to plane, and EM soon
# shows what a start is worth. A class hardly does: more rows are needed, and convergence.
INFORMATIVE = Plan(
    n_init=3,
    few=2000,
    some=10_000,
    moves=36,
    ways=((plane_labels, 15), (region_labels, 15), (region_labels, 1)),
)
UNINFORMATIVE = Plan(
    n_init=3,
    few=5000,
    some=15_000,
    moves=36,
    ways=((region_labels, 1), (cluster_labels, 1)),
)


def plan_for(family: Experts | type[Experts]) -> Plan:
    """Return how starts of a family are searched."""
    return INFORMATIVE if family.informative_response else UNINFORMATIVE


def start_from(
    blank: Experts,
    block: Block,
    columns: tuple[int, ...] | None,
    rng: np.random.Generator,
    attempt: int,
    structure: Structure | None = None,
) -> MoE:
    """Return a model of first labels, made in one of the ways of the plan."""
    ways = plan_for(blank).ways
    first_labels, n_sweeps = ways[attempt % len(ways)]
    labels = _votes(block, first_labels(blank, block, rng), blank.n_experts)
    experts, labels = k_planes(blank, block, labels, n_sweeps, structure)
    return model_from_labels(experts, block, labels, columns, structure)


def roughly_fitted(
    experts: Experts, block: Block, weight: Floats, structure: Structure | None
) -> Experts:
    """Return experts fitted to weighted rows, as well as a start needs it."""
    response = experts.observe(block.y)
    if structure is not None:
        how: dict[str, Any] = {"offset": block.offset, "ridge": _RIDGE, "floor": VARIANCE_FLOOR}
        return structure.fit(experts, block.X, response, weight, **how)
    return experts.fit(block.X, response, weight, offset=block.offset, ridge=_RIDGE, tol=1e-2)


def structured(model: MoE, block: Block, weight: Floats, structure: Structure) -> MoE:
    """Return a model within a structure, its experts refitted to the rows that they have.

    Where experts see columns of their own, each comes to the place where its rows lose least.

    Parameters
    ----------
    model : MoE
        Of any structure, or none.
    block : Block
    weight : ndarray of shape (n, K)
        Responsibilities of its experts, times the weights of the rows.
    structure : Structure
    """
    if structure.labelled:
        order = _places(model.experts, block, weight, structure)
        model, weight = replace(model, structure=None).take(order), weight[:, order]
    experts = roughly_fitted(model.experts, block, weight, structure)
    return replace(model, experts=experts.floored(VARIANCE_FLOOR), structure=structure)


def _places(experts: Experts, block: Block, weight: Floats, structure: Structure) -> Floats:
    """Return the expert that belongs to each place of a structure, (K,)."""
    response, K = experts.observe(block.y), experts.n_experts
    height = np.empty((K, K))  # place, expert
    for place in range(K):
        same = [other for other in range(place) if _alike(structure, other, place)]
        if same:
            height[place] = height[same[0]]
            continue
        own = structure.take([place])
        for k in range(K):
            mine = weight[:, [k]]
            one = roughly_fitted(experts.take([k]), block, mine, own)
            eta = one.predictor(block.X, block.offset)
            height[place, k] = np.sum(mine * one.expected_log_prob(eta, response))
    return np.asarray(linear_sum_assignment(-np.nan_to_num(height, nan=-1e300))[1])


def _alike(structure: Structure, place: int, other: int) -> bool:
    return structure.take([place]).columns == structure.take([other]).columns


def _votes(block: Block, labels: Floats, n_experts: int) -> Floats:
    """Return the most frequent label of a group at each of its rows, (n,)."""
    if block.groups is None:
        return labels
    return np.argmax(block.by_group(_one_hot(labels, n_experts)), axis=1)


def _one_hot(labels: Floats, n_experts: int) -> Floats:
    """Return indicators of the labels, (n, K), laid out column by column."""
    return (labels == np.arange(n_experts)[:, None]).astype(float).T
