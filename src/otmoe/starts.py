"""Where EM begins: k-planes on a subsample, a short EM from each try, the most likely first.

Starts decide which optimum a fit ends in, so they are searched widely where rows are few and
cheap (maths 4).
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from otmoe.experts import Experts
from otmoe.gate import SoftmaxGate
from otmoe.model import MoE
from otmoe.numerics import Floats, scaled
from otmoe.rows import Block, Rows
from otmoe.steps import VARIANCE_FLOOR, Report, Run, climb

SUBSAMPLE = 2000
_SWEEPS = 15
_SHORT_EM = 10  # iterations, enough to rank the starts
_CONFIDENCE = 0.98
_GATE_RIDGE = 1.0  # the first gate only points the way; hard labels would separate it


def subsample(rows: Rows, rng: np.random.Generator, size: int = SUBSAMPLE) -> Rows:
    """Return at most `size` rows of positive weight, drawn without replacement."""
    index = np.arange(len(rows))
    if rows.weight is not None:
        index = index[np.asarray(rows.weight) > 0]
    if len(index) > size:
        index = np.sort(rng.choice(index, size, replace=False))
    return rows.take(index)


def k_planes(
    family: type[Experts], block: Block, n_experts: int, labels: Floats, n_sweeps: int = _SWEEPS
) -> tuple[Experts, Floats, float]:
    """Alternate between fitting an expert to its rows and giving each row to its best expert.

    Parameters
    ----------
    family : type of Experts
    block : Block
    n_experts : int
    labels : ndarray of int of shape (n,)
        First assignment.

    Returns
    -------
    experts : Experts
    labels : ndarray of int of shape (n,)
    fitness : float
        Weighted sum over rows of the best expert's log density, dispersions put at one.
    """
    experts = family.blank(n_experts, block.X.shape[1])
    fitness = -np.inf
    for _ in range(n_sweeps):
        weight = scaled((labels[:, None] == np.arange(n_experts)).astype(float), block.weight)
        experts = experts.step(experts.statistics(block.X, block.response, weight)).neutral()
        log_prob = experts.expected_log_prob(experts.predictor(block.X), block.response)
        previous, labels = labels, np.argmax(log_prob, axis=1)
        fitness = float(scaled(log_prob.max(axis=1), block.weight).sum())
        if np.array_equal(previous, labels):
            break
    return experts, labels, fitness


def first_labels(block: Block, n_experts: int, rng: np.random.Generator, by_plane: bool) -> Floats:
    """Return a first assignment: the nearest of random planes, or clusters of x.

    A random plane is the least-squares fit to as many random rows as it has coefficients.
    """
    X, y = block.X, block.response.mean[:, 0]
    n, p = X.shape
    if by_plane:
        planes = []
        for _ in range(n_experts):
            some = rng.choice(n, min(n, p + 1), replace=False)
            planes.append(np.linalg.lstsq(X[some], y[some], rcond=1e-6)[0])
        return np.argmin(np.abs(y[:, None] - X @ np.array(planes).T), axis=1)
    seed = int(rng.integers(2**31))
    return np.asarray(KMeans(n_experts, n_init=1, random_state=seed).fit_predict(X[:, 1:]))


def model_from_labels(
    experts: Experts, block: Block, labels: Floats, columns: tuple[int, ...] | None
) -> MoE:
    """Return a model whose experts and gate are fitted to softened labels."""
    K = experts.n_experts
    soft = np.where(
        labels[:, None] == np.arange(K),
        _CONFIDENCE if K > 1 else 1.0,
        (1 - _CONFIDENCE) / max(K - 1, 1),
    )
    weight = scaled(soft, block.weight)
    experts = experts.neutral()
    experts = experts.step(
        experts.statistics(block.X, block.response, weight), floor=VARIANCE_FLOOR
    )
    gate = SoftmaxGate.blank(K, block.X.shape[1], columns)
    return MoE(gate.fit(block.X, weight, alpha=_GATE_RIDGE, tol=1e-2), experts)


def candidates(
    family: type[Experts],
    rows: Rows,
    n_experts: int,
    columns: tuple[int, ...] | None,
    alpha: float,
    n_init: int,
    rng: np.random.Generator,
    report: Report | None = None,
) -> list[MoE]:
    """Return `n_init` models fitted to a subsample, the most likely first."""
    few = subsample(rows, rng)
    block = few.block(slice(None))
    found: list[Run] = []
    for attempt in range(n_init if n_experts > 1 else 1):
        labels = first_labels(block, n_experts, rng, by_plane=attempt % 2 == 0)
        experts, labels, _ = k_planes(family, block, n_experts, labels)
        start = model_from_labels(experts, block, labels, columns)
        found.append(climb(few, start, alpha=alpha, max_iter=_SHORT_EM))
        if report is not None:
            report(attempt + 1, max(run.trace[-1] for run in found))
    return [run.model for run in sorted(found, key=lambda run: -run.trace[-1])]
