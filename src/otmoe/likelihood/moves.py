"""Moves from one maximum to a higher one: split an expert in two, drop another (maths 12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.iterations import Run
from otmoe.likelihood.rows import Block, Rows
from otmoe.likelihood.stage import Stage, some_groups
from otmoe.likelihood.starts import model_from_labels, roughly_fitted, structured
from otmoe.likelihood.statistics import VARIANCE_FLOOR
from otmoe.model.experts import Experts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE, Posterior
from otmoe.model.structure import Structure

# By `python -m benchmarks search` and `python -m benchmarks constants`. A spread is the standard
# deviation of a row's log-likelihood, summed over the rows: what is much in nats depends on family
# and noise.
_SPLIT_ROWS = 2000  # on which children are fitted; three times as many where y tells little
_TAIL = 0.93  # share of an expert's rows that a small child leaves to the other
_DIRECTIONS = 2  # random cuts through x
_LABELLED, _CHOSEN = 5, 12  # iterations of EM for every pair of children, and for the best
_MOVES = 12  # that there should be to choose from, at least
_ALWAYS = 3  # that are tried however little they promise
_PROMISING = 0.03  # spreads that a move may seem to lose
_REFITTED = 2  # iterations of EM for the experts that are left when one is dropped
_PATIENCE = ((3, 0.04), (5, 0.008))  # iterations of EM after a move; spreads it may lie behind then
_LOOK, _BEHIND = 10, 0.004  # the same for Newton steps
_GROWN = 8  # iterations of EM after a split
_SLACK = 15.0  # nats by which any of these may fail


@dataclass(frozen=True)
class Split:
    """Two experts in place of one.

    Attributes
    ----------
    gain : float
        What they gain on the rows of that one, in nats.
    expert : int
        That one.
    children : MoE
        The two, and the gate between them.
    """

    gain: float
    expert: int
    children: MoE


def splits(
    stage: Stage, model: MoE, expert: int, share: Floats, rng: np.random.Generator, most: int = 1
) -> list[Split]:
    """Return the best ways to split an expert, found on rows weighted by its responsibilities.

    Parameters
    ----------
    stage : Stage
    model : MoE
    expert : int
    share : ndarray of shape (n,)
        Its responsibilities, times the weights of the rows.
    rng : Generator
    most : int
    """
    p = model.experts.n_columns
    mine = np.flatnonzero(share > 0.02 * stage.weight)
    if not model.expert_columns[expert]:
        return []  # a zero expert
    if share[mine].sum() < 4 * len(model.expert_columns[expert]):
        return []
    size = _SPLIT_ROWS if model.experts.informative_response else 3 * _SPLIT_ROWS
    if len(mine) > size and stage.rows.groups is not None:
        mine = some_groups(stage.rows.groups, mine, size, rng)
    elif len(mine) > size:
        mine = np.sort(rng.choice(mine, size, replace=False))
    some = stage.rows.take(mine)
    part = Stage(Rows(some.X, some.y, share[mine], some.offset, groups=some.groups), stage.ridge)
    factor = share.sum() / share[mine].sum()
    structure = model.structure and model.structure.take([expert])
    gate = SoftmaxGate.blank(1, p, model.gate.columns)
    one = MoE(gate, model.experts.take([expert]), structure=structure)
    alone = part.em(one, 1).trace[-1]
    blank = one.experts.take([0, 0]).neutral()
    runs = []
    for upper in labelings(part.block, one.experts, rng):
        if 0 < upper.sum() < len(upper):
            labels = upper.astype(int)
            start = model_from_labels(blank, part.block, labels, model.gate.columns, structure)
            runs.append(part.em(start, _LABELLED))
    best = sorted(runs, key=_height, reverse=True)[: most + 1]
    best = sorted((part.em(run.model, _CHOSEN, tol=0.2) for run in best), key=_height, reverse=True)
    return [Split(factor * (run.trace[-1] - alone), expert, run.model) for run in best[:most]]


def labelings(block: Block, expert: Experts, rng: np.random.Generator) -> Iterator[Floats]:
    """Cut the rows of an expert in two, in ways that real children differ by; (n,) of bool each.

    They differ in level, in spread, along the prediction, in the tails, or anywhere in x.
    """
    eta = expert.predictor(block.X, block.offset)
    expected, observed = expert.response(eta).mean, expert.observe(block.y).mean
    residual = np.asarray(observed - expected).reshape(len(block.y), -1)[:, 0]
    line = np.asarray(eta).reshape(len(block.y), -1)[:, 0]
    size = np.abs(residual)
    ways = [(residual, 0.5), (size, 0.5), (line, 0.5)]
    ways += [(size, _TAIL), (residual, _TAIL), (-residual, _TAIL)]
    X = block.X[:, 1:]
    if X.shape[1]:
        ways += [(X @ rng.standard_normal(X.shape[1]), 0.5) for _ in range(_DIRECTIONS)]
    weight = np.ones(len(line)) if block.weight is None else block.weight
    for values, at in ways:
        values = block.by_group(values)
        yield values > _quantile(values, weight, at)


def divided(
    stage: Stage, model: MoE, split: Split, share: Floats, structure: Structure | None = None
) -> MoE:
    """Return the model with one expert replaced by its children, which come last.

    Parameters
    ----------
    stage : Stage
    model : MoE
    split : Split
        Of an expert of this model.
    share : ndarray of shape (n, K)
        Responsibilities of its experts.
    structure : Structure, optional
        Of the result; its experts are then in the order of their columns.
    """
    k, two = split.expert, split.children
    rest = [j for j in range(model.n_experts) if j != k]
    between = stage.posterior(two).responsibilities
    target = np.concatenate([share[:, rest], share[:, [k]] * between], axis=1)
    half = 0.5 * (two.gate.coef[0] - two.gate.coef[1])
    own = model.gate.coef[k]
    coef = np.concatenate([model.gate.coef[rest], [own + half, own - half]])
    gate = _gate_to(stage, SoftmaxGate(coef - coef[-1], model.gate.columns), target)
    experts = type(model.experts).concat([model.experts.take(rest), two.experts])
    found = MoE(gate, experts.floored(VARIANCE_FLOOR))
    if structure is None:
        return found
    return structured(found, stage.block, target * stage.weight[:, None], structure)


def refitted(stage: Stage, model: MoE, share: Floats) -> MoE:
    """Return a model whose gate and experts are fitted to responsibilities, roughly.

    Parameters
    ----------
    stage : Stage
    model : MoE
        Where the fit begins.
    share : ndarray of shape (n, K)
    """
    gate = _gate_to(stage, model.gate, share)
    weight = share * stage.weight[:, None]
    experts = roughly_fitted(model.experts, stage.block, weight, model.structure)
    return replace(model, gate=gate, experts=experts.floored(VARIANCE_FLOOR))


def _gate_to(stage: Stage, gate: SoftmaxGate, share: Floats) -> SoftmaxGate:
    """Return a gate fitted to responsibilities in a few steps."""
    target = share * stage.once[:, None]
    return gate.fit(stage.block.X, target, alpha=stage.ridge.gate, max_iter=3, tol=1.0)


def grown(stage: Stage, run: Run, rng: np.random.Generator, tries: int = 2) -> list[Run]:
    """Return maxima with one expert more, the most likely first."""
    model = run.model
    share = stage.posterior(model).responsibilities
    found = [
        split
        for k in range(model.n_experts)
        for split in splits(stage, model, k, share[:, k] * stage.weight, rng)
    ]
    best = sorted(found, key=lambda split: split.gain, reverse=True)[:tries]
    more = [divided(stage, model, split, share, model.structure) for split in best]
    runs = [stage.em(start, _GROWN) for start in more]
    runs = [stage.at_maximum(run.model) for run in runs]
    return sorted(runs, key=lambda run: (stage.value(run), run.trace[-1]), reverse=True) or [run]


def improved(
    stage: Stage, run: Run, rng: np.random.Generator, most: int, known: Sequence[Run] = ()
) -> tuple[list[Run], int]:
    """Move from maximum to higher maximum until no move helps, or `most` have been tried.

    A move drops one expert and splits another, in the order of what that promises.

    Parameters
    ----------
    stage : Stage
    run : Run
    rng : Generator
    most : int
    known : sequence of Run
        Maxima from which no move helps; where one is reached, that is the end.

    Returns
    -------
    runs : list of Run
        Where it ended first, then the other maxima that were seen.
    tried : int
    """
    seen, tried = [run], 0
    better: Run | None = run
    while better is not None and not any(stage.same(better, end) for end in known):
        run, better = better, None
        unit = stage.spread(run.model)
        for model in _promising(stage, run.model, unit, rng):
            if tried >= most:
                break
            tried += 1
            moved = _followed(stage, model(), run, unit)
            if moved is not None:
                seen.append(moved)
                if stage.value(moved) > stage.value(run) + 0.5 * stage.same_within:
                    better = moved
                    break
    end = run if better is None else better
    return [end, *(other for other in seen if other is not end)], tried


def least_loss(stage: Stage, model: MoE) -> float:
    """Return what dropping the expert costs that is needed least, in spreads.

    Less a nat for each of its parameters: so much and less they gain by chance.
    """
    losses = [each.loss for each in dropped(stage, model, stage.posterior(model)).values()]
    if not losses:
        return np.inf
    spread = stage.spread(model)
    least = min(losses) - model.n_free / model.n_experts
    return float(least / spread) if spread > 0 else 0.0


class Without(NamedTuple):
    """A model after an expert was dropped and the others refitted a little; what that costs."""

    loss: float
    rest: MoE
    responsibilities: Floats


def dropped(stage: Stage, model: MoE, here: Posterior) -> dict[int, Without]:
    """Drop each of the experts in turn; zero experts stay, and one that is no such."""
    seeing = [j for j, columns in enumerate(model.expert_columns) if columns]
    found = {}
    for j in seeing if 1 < len(seeing) or len(seeing) == model.n_experts else []:
        others = model.take([i for i in range(model.n_experts) if i != j])
        rest = stage.em(others, _REFITTED, tol=0.0).model
        there = stage.posterior(rest)
        loss = float(stage.once @ (here.log_density - there.log_density))
        found[j] = Without(loss, rest, there.responsibilities)
    return found


def led_on(stage: Stage, run: Run, best: float, unit: float) -> Run:
    """Lead a run on to its maximum, unless it has been left far behind.

    Parameters
    ----------
    stage : Stage
    run : Run
        After a few Newton steps.
    best : float
        Penalised log-likelihood of what it competes with.
    unit : float
        A spread.
    """
    if run.converged or run.trace[-1] < best - _BEHIND * unit - _SLACK:
        return run
    return run.then(stage.at_maximum(run.model))


def _followed(stage: Stage, model: MoE, run: Run, unit: float) -> Run | None:
    """Return where a move leads, or nothing as soon as it is hopeless."""
    for n_iter, slack in _PATIENCE:
        moved = stage.em(model, n_iter)
        if moved.trace[-1] < run.trace[-1] - slack * unit - _SLACK:
            return None
        model = moved.model
    return led_on(stage, stage.at_maximum(model, most=_LOOK), run.trace[-1], unit)


def _promising(
    stage: Stage, model: MoE, unit: float, rng: np.random.Generator
) -> Iterator[Callable[[], MoE]]:
    """Yield models after a move, each as a function that makes it; what promises most first."""
    K = model.n_experts
    here = stage.posterior(model)
    share = here.responsibilities * stage.weight[:, None]
    without = dropped(stage, model, here)
    most = -(-_MOVES // (K * (K - 1)))
    found = [split for k in range(K) for split in splits(stage, model, k, share[:, k], rng, most)]
    moves = [
        (split.gain - without[j].loss, j, split)
        for split in found
        for j in without
        if j != split.expert
    ]
    for rank, (promise, j, split) in enumerate(sorted(moves, key=lambda m: m[0], reverse=True)):
        if rank >= _ALWAYS and promise < -_PROMISING * unit - _SLACK:
            return
        moved = replace(split, expert=split.expert - (split.expert > j))
        rest, theirs = without[j].rest, without[j].responsibilities
        yield partial(divided, stage, rest, moved, theirs, model.structure)


def _height(run: Run) -> float:
    return run.trace[-1]


def _quantile(values: Floats, weight: Floats, at: float) -> float:
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    place = min(int(np.searchsorted(total, total[-1] * at)), len(values) - 1)
    return float(values[order[place]])
