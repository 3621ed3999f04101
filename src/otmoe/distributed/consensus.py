"""Second chances for local fits: from where the others are, then with more starts.

A shard in a wrong optimum is worse than none, and a small one ends there often. A start that the
shards agree on helps, and where most of them are in wrong optima it takes a few passes over the
rows of many to find one. From there a shard goes to the maximum near the common answer, which is
the one to merge even where, by chance, its few rows have a likelier one elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from otmoe.aggregation import merged
from otmoe.aggregation.disagreement import THRESHOLD, likelihood_deviations
from otmoe.aggregation.support import N_SUPPORT, draw_support
from otmoe.arrays.numerics import Floats
from otmoe.data.shards import Shard
from otmoe.distributed.task import LocalFit, Task
from otmoe.likelihood.iterations import NEGLIGIBLE
from otmoe.likelihood.search import Clock
from otmoe.likelihood.starts import plan_for
from otmoe.model.mixture import MoE

_MORE_STARTS = 3  # times as many starts for a shard that stands out

# Halved and doubled by `python -m benchmarks constants`; docs/benchmarks.md has the table.
_USUAL = 1.0  # deviations below the median up to which a fit may speak for the others
_BY_CHANCE = 0.5  # nats a parameter by which few rows may prefer another maximum

SMALL = 20_000
"""Rows up to which a fit from a given start costs little beside its own starts."""

ENOUGH = 64
"""Fits that are enough to say what the shards agree on."""

Run = Callable[[Sequence[Task]], list[LocalFit | None]]
Together = Callable[[Sequence[Shard], MoE], MoE]


def support_of(fits: Sequence[LocalFit], n_support: int, rng: np.random.Generator) -> Floats:
    """Draw support points from what the shards brought back, in proportion to their rows."""
    support = draw_support(
        [fit.support for fit in fits],
        n_support,
        site_weight=[fit.n_rows for fit in fits],
        random_state=rng,
    )
    columns = support.shape[1]
    if len(support) < columns:  # each point several times, which changes nothing
        support = np.tile(support, (-(-columns // len(support)), 1))
    return support


@dataclass(frozen=True)
class Consensus:
    """Local fits after those that needed it have set out from what the others agree on.

    Attributes
    ----------
    fits : list of LocalFit
        Of every shard.
    improved : tuple of str
        The shards whose fit became likelier by a nat or more.
    n_together : int
        Shards over whose rows the common model was improved together; 0 if it was not.
    seconds : dict
        Spent on `merging` and on passes `together`; those of the fits are the fits' own.
    """

    fits: list[LocalFit]
    improved: tuple[str, ...] = ()
    n_together: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def refit_from_consensus(
    tasks: Sequence[Task],
    fits: Sequence[LocalFit],
    n_experts: int,
    rng: np.random.Generator,
    run: Run,
    together: Together,
    *,
    small: int = SMALL,
    enough: int = ENOUGH,
) -> Consensus:
    """Let shards that are small or less likely than usual set out from a model that many agree on.

    Parameters
    ----------
    tasks, fits : sequence
        Of every shard.
    n_experts : int
    rng : Generator
    run : callable
        Runs tasks, and returns their fits.
    together : callable
        Given several shards and a model, returns a likelier one of all their rows.
    small : int
        Rows of a shard that sets out anew in any case, at most.
    enough : int
        Fits that say what the shards agree on, at most.
    """
    if len(fits) < 2:
        return Consensus(list(fits))
    clock = Clock()
    first, asked = list(fits), _asked(fits, small)
    common = _agreed(fits, _usual(fits, enough, rng), n_experts, rng)
    clock.lap("merging")
    fits = _offered(tasks, first, asked, common, run)
    improved = _improved(fits, first)
    used = [i for i in _usual(fits, enough, rng) if fits[i].n_rows <= small] if improved else []
    if used:
        clock.lap("offered")
        common = _agreed(fits, _usual(fits, enough, rng), n_experts, rng)
        clock.lap("merging")
        common = together([tasks[i].shard for i in used], common)
        clock.lap("together")
        slack = _BY_CHANCE * common.n_parameters
        fits = _offered(tasks, fits, asked, common, run, slack)
        improved = _improved(fits, first)
    names = tuple(tasks[i].shard.name for i in improved)
    return Consensus(list(fits), names, len(used), clock.laps)


def _agreed(
    fits: Sequence[LocalFit], usual: Sequence[int], n_experts: int, rng: np.random.Generator
) -> MoE:
    """Return what some of the fits are merged into."""
    some = [fits[i] for i in usual]
    support = support_of(some, N_SUPPORT // 4, rng)
    return merged([fit.message for fit in some], support, n_experts, "reduction").model


def _usual(fits: Sequence[LocalFit], enough: int, rng: np.random.Generator) -> list[int]:
    """Return some of the fits that do not stand out."""
    deviations = likelihood_deviations([fit.message for fit in fits])
    usual = np.flatnonzero(deviations >= -_USUAL)
    if len(usual) > enough:
        usual = np.sort(rng.choice(usual, enough, replace=False))
    found: list[int] = usual.tolist()
    return found


def _asked(fits: Sequence[LocalFit], small: int) -> list[int]:
    """Return the fits that are small, or less likely than usual."""
    deviations = likelihood_deviations([fit.message for fit in fits])
    return [i for i, fit in enumerate(fits) if fit.n_rows <= small or deviations[i] < -_USUAL]


def _offered(
    tasks: Sequence[Task],
    fits: Sequence[LocalFit],
    asked: Sequence[int],
    start: MoE,
    run: Run,
    slack: float = 0.0,
) -> list[LocalFit]:
    """Fit shards again from a start; keep that if it is likelier, or less likely by the slack."""
    again = run(
        [replace(tasks[i], n_support=0, options={**tasks[i].options, "init": start}) for i in asked]
    )
    fits = list(fits)
    for i, fit in zip(asked, again, strict=True):
        fits[i] = better(fits[i], fit, slack)
    return fits


def _improved(fits: Sequence[LocalFit], first: Sequence[LocalFit]) -> list[int]:
    return [
        i
        for i, (now, then) in enumerate(zip(fits, first, strict=True))
        if now.message.log_likelihood - then.message.log_likelihood >= 1
    ]


def better(first: LocalFit, again: LocalFit | None, slack: float = 0.0) -> LocalFit:
    """Return the likelier of two fits of the same rows, with the seconds of both."""
    if again is None:
        return first
    gain = again.message.log_likelihood - first.message.log_likelihood
    return replace(
        first,
        message=again.message if gain > NEGLIGIBLE - slack else first.message,
        seconds=first.seconds + again.seconds,
    )


def fit_again_with_more_starts(
    tasks: Sequence[Task], fits: list[LocalFit], run: Run
) -> tuple[list[LocalFit], tuple[str, ...]]:
    """Fit again what stands out, and keep the better of the two fits."""
    fits = list(fits)
    deviations = likelihood_deviations([fit.message for fit in fits])
    bad = np.flatnonzero(deviations < -THRESHOLD).tolist()
    for i, again in zip(bad, run([_with_more_starts(tasks[i]) for i in bad]), strict=True):
        fits[i] = better(fits[i], again)
    return fits, tuple(tasks[i].shard.name for i in bad)


def _with_more_starts(task: Task) -> Task:
    options = dict(task.options)
    if options.get("n_init") is None:
        options["n_init"] = plan_for(task.target.kind).n_init
    options["n_init"] *= _MORE_STARTS
    return replace(task, seed=task.seed + 1, options=options)
