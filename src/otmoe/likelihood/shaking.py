"""From one maximum to a higher one by fewer rows, one expert more, or an exchange (maths 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from otmoe.likelihood.iterations import Run
from otmoe.likelihood.moves import divided, dropped, refitted, splits
from otmoe.likelihood.stage import Stage
from otmoe.model.mixture import MoE

# `python -m benchmarks constants` halves and doubles the first two.
_PER_PARAMETER = 15  # rows that lead away from a maximum, for each of its parameters
_CLEAR = 4.0  # standard errors by which a try may lie behind on more rows
_SETTLING = 8  # iterations of EM, then Newton steps, with one expert more
_DROPPED = 3  # experts of which one is dropped then, in turn: those that are missed least
_WAYS = 3  # to lead away from a maximum
_FEW_EXPERTS = 3  # more of them have more neighbours, in proportion
_MOST = 5  # times the tries that may fail in turn, in all
_PROMISE = 5.0  # squared standard errors from a maximum, in nats; a half if it were a parabola
_AWAY, _BACK = 12, 6  # Newton steps on these rows and more, and on all before a try is given up
_APART = 0.1  # nats by which a maximum differs from that it came from, at least
_REGIONS = (0.5, 0.8, 0.95)  # quantiles of a feature beyond which two experts change places


def shaken(
    stage: Stage,
    run: Run,
    rng: np.random.Generator,
    patience: int | None,
    known: Sequence[Run] = (),
) -> Run:
    """Go from maximum to higher maximum by one expert more, fewer rows and exchanges, in turn.

    Maxima that compete differ by less than what chance does to their order on a few rows. A
    maximum there is close to several on all rows, and from it Newton's method often ends in another
    one than that it came from. Where two experts cover what needs three, and others share what
    needs one, no number of rows helps; with one expert more there is a way. And where two experts
    cross, or one is rare, each of them may continue the other beyond.

    Parameters
    ----------
    stage : Stage
    run : Run
        At a maximum.
    rng : Generator
    patience : int or None
        Tries in turn that may end no higher, where there are few experts; a few times as many in
        all. If None, every way is tried once.
    known : sequence of Run
        Maxima that have been shaken already; where one is reached, that is the end.

    Returns
    -------
    Run
        At least as high; the same where no try ended higher.
    """
    if patience is None:
        patience = _WAYS * _DROPPED * run.model.n_experts
    else:
        patience = round(patience * max(1.0, run.model.n_experts / _FEW_EXPERTS))
    tried = failed = 0
    tries = _tries(stage, run.model, rng)
    while failed < patience and tried < _MOST * patience:
        if any(stage.same(run, end) for end in known):
            break
        tried += 1
        model = next(tries)
        if model is not None:
            back = _led_back(stage, model, run.trace[-1])
            higher = stage.value(back) > stage.value(run) + 0.5 * stage.same_within
            if higher and back.converged:  # else an expert may lose its rows further on
                run, failed, tries = back, 0, _tries(stage, back.model, rng)
                continue
        failed += 1
    return run


def _tries(stage: Stage, model: MoE, rng: np.random.Generator) -> Iterator[MoE | None]:
    """Yield models that are led away from a maximum, in the three ways in turn.

    Which expert is split, and which is dropped then, goes round: there are few such pairs, and
    often a single one of them leads to a higher maximum.
    """
    pairs = [(split, rank) for split in range(model.n_experts) for rank in range(_DROPPED)]
    while True:
        for split, rank in rng.permutation(pairs):
            yield _by_few_rows(stage, model, rng)
            yield _by_exchange(stage, model, rng)
            yield _by_one_more(stage, model, rng, split, rank)


def _led_back(stage: Stage, model: MoE, best: float) -> Run:
    """Return a run to the maximum, given up where that will not be as high as the best."""
    run = stage.at_maximum(model, most=_BACK)
    if run.converged or run.trace[-1] + _PROMISE * run.decrement < best:
        return run
    return run.then(stage.at_maximum(run.model))


def _sample(stage: Stage, size: float, rng: np.random.Generator) -> Stage:
    return Stage.of_some(stage.rows, round(size), stage.ridge, rng)


def _few(stage: Stage, model: MoE) -> int:
    return min(_PER_PARAMETER * model.n_free, len(stage) // 2)


def _next_to(more: Stage, model: MoE, away: MoE) -> MoE | None:
    """Lead a model to its maximum on some of the rows, which may be close to a higher one on all.

    None where it has come back, or where it is clearly worse on rows enough to tell. Whether its
    experts have rows enough is for all rows to say.
    """
    there = more.at_maximum(away, most=_AWAY)
    here = more.at_maximum(model, most=_BACK)
    behind = here.trace[-1] - there.trace[-1]
    if abs(behind) <= _APART or behind > _CLEAR * more.noise(here.model, there.model):
        return None
    return there.model


def _by_few_rows(stage: Stage, model: MoE, rng: np.random.Generator) -> MoE | None:
    """Go to the maximum that is next on a few rows."""
    size = _few(stage, model)
    few = _sample(stage, size, rng)
    more = _sample(stage, np.sqrt(size * len(stage)), rng)
    return _next_to(more, model, few.at_maximum(model, most=_AWAY).model)


def _by_one_more(
    stage: Stage, model: MoE, rng: np.random.Generator, k: int, rank: int
) -> MoE | None:
    """Split the k-th expert, let all settle, and drop one of those that are missed least.

    That is not possible where experts have columns of their own, or too few rows.
    """
    if model.structure is not None and model.structure.labelled:
        return None
    more = _sample(stage, np.sqrt(_few(stage, model) * len(stage)), rng)
    share = np.asarray(more.posterior(model).responsibilities)
    found = splits(more, model, k, share[:, k] * more.weight, rng)
    if not found:
        return None
    larger = more.em(divided(more, model, found[0], share, model.structure), _SETTLING).model
    larger = more.at_maximum(larger, most=_SETTLING).model
    without = dropped(more, larger, more.posterior(larger)).values()
    least = sorted(without, key=lambda each: each.loss)
    return _next_to(more, model, least[rank % len(least)].rest)


def _by_exchange(stage: Stage, model: MoE, rng: np.random.Generator) -> MoE | None:
    """Let two experts change places where a feature is above some quantile.

    Each of two experts may continue either of them across a region: that makes as many maxima.
    """
    seeing = [k for k, columns in enumerate(model.expert_columns) if columns]
    n_features = stage.block.X.shape[1] - 1
    if len(seeing) < 2 or n_features == 0:
        return None
    one, other = rng.choice(seeing, 2, replace=False)
    values = stage.block.X[:, 1 + rng.integers(n_features)] * rng.choice([-1.0, 1.0])
    values = stage.block.by_group(values)
    there = values > np.quantile(values, rng.choice(_REGIONS))
    if not there.any():
        return None
    share = np.array(stage.posterior(model).responsibilities)
    share[np.ix_(there, [one, other])] = share[np.ix_(there, [other, one])]
    return refitted(stage, model, share)
