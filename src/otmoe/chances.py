"""Second chances for local fits: from where the others are, then with more starts.

A shard in a wrong optimum is worse than none, and a small one ends there often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from otmoe.aggregation import merged
from otmoe.experts import FAMILIES
from otmoe.local import LocalFit, Task
from otmoe.model import MoE
from otmoe.numerics import Floats
from otmoe.screening import THRESHOLD, likelihood_deviations
from otmoe.starts import plan_for
from otmoe.support import N_POINTS, draw_support

_MORE_STARTS = 3  # times as many starts for a shard that stands out
_SMALL = 20_000  # rows up to which a fit from a given start costs little beside its own starts
_USUAL = 1.0  # deviations below the median up to which a fit may speak for the others
_DOUBTFUL = 2.0  # and from which it is doubted
_SAME = 0.01  # nats between two fits in one optimum
_ASKED = 64  # fits that are enough to say what the shards agree on


def support_of(fits: Sequence[LocalFit], n_points: int, rng: np.random.Generator) -> Floats:
    """Draw support points from what the shards brought back, in proportion to their rows."""
    support = draw_support(
        [fit.points for fit in fits],
        n_points,
        site_weight=[fit.n_rows for fit in fits],
        random_state=rng,
    )
    columns = support.shape[1]
    if len(support) < columns:  # each point several times, which changes nothing
        support = np.tile(support, (-(-columns // len(support)), 1))
    return support


def agreed(fits: Sequence[LocalFit], n_experts: int, rng: np.random.Generator) -> MoE:
    """Return what some of the fits that do not stand out are merged into."""
    deviations = likelihood_deviations([fit.message for fit in fits])
    usual = np.flatnonzero(deviations >= -_USUAL)
    if len(usual) > _ASKED:
        usual = np.sort(rng.choice(usual, _ASKED, replace=False))
    some = [fits[int(i)] for i in usual]
    support = support_of(some, N_POINTS // 4, rng)
    return merged([fit.message for fit in some], support, n_experts, "reduction").model


def offered(
    tasks: Sequence[Task],
    fits: Sequence[LocalFit],
    agreed: MoE | None,
    run: Callable[[Sequence[Task]], list[LocalFit | None]],
) -> tuple[list[LocalFit], tuple[str, ...]]:
    """Let small and doubtful shards set out from the model that others agree on."""
    if agreed is None:
        return list(fits), ()
    deviations = likelihood_deviations([fit.message for fit in fits])
    asked = [i for i, fit in enumerate(fits) if fit.n_rows <= _SMALL or deviations[i] < -_DOUBTFUL]
    again = [
        replace(tasks[i], n_points=0, options={**tasks[i].options, "init": agreed}) for i in asked
    ]
    better = dict(zip(asked, run(again), strict=True))
    fits, before = [_better(fit, better.get(i)) for i, fit in enumerate(fits)], fits
    gains = [
        fit.message.log_likelihood - first.message.log_likelihood
        for fit, first in zip(fits, before, strict=True)
    ]
    return fits, tuple(tasks[i].shard.name for i, gain in enumerate(gains) if gain >= 1)


def _better(first: LocalFit, again: LocalFit | None) -> LocalFit:
    """Return the likelier of two fits of the same rows, with the seconds of both."""
    if again is None:
        return first
    better = again.message.log_likelihood > first.message.log_likelihood + _SAME
    return replace(
        first,
        message=again.message if better else first.message,
        seconds=first.seconds + again.seconds,
    )


def second_chances(
    tasks: Sequence[Task],
    fits: list[LocalFit],
    run: Callable[[Sequence[Task]], list[LocalFit | None]],
) -> tuple[list[LocalFit], tuple[str, ...]]:
    """Fit again what stands out, and keep the better of the two fits."""
    fits = list(fits)
    deviations = likelihood_deviations([fit.message for fit in fits])
    bad = np.flatnonzero(deviations < -THRESHOLD).tolist()
    for i, again in zip(bad, run([_with_more_starts(tasks[i]) for i in bad]), strict=True):
        fits[i] = _better(fits[i], again)
    return fits, tuple(tasks[i].shard.name for i in bad)


def _with_more_starts(task: Task) -> Task:
    options = dict(task.options)
    if options.get("n_init") is None:
        options["n_init"] = plan_for(FAMILIES[options.get("family", "gaussian")]).n_init
    options["n_init"] *= _MORE_STARTS
    return replace(task, seed=task.seed + 1, options=options)
