"""How a maximum is searched: candidates on more and more rows, then EM and Newton (maths 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from otmoe.likelihood.iterations import Report, Run, newton_serves, run_em, run_newton
from otmoe.likelihood.moves import grown, improved
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.stage import Stage, least_mass
from otmoe.likelihood.starts import Plan, plan_for, start_from
from otmoe.likelihood.statistics import Passes
from otmoe.model.experts import Experts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

WARM_UP = 20
"""EM iterations before Newton's method takes over."""

FEW = 2
"""The same, where a fit to some of the rows has led the way."""

_GROWTH = 3  # times as many rows in each stage as in the one before
_CLEAR = 3.0  # standard errors by which a candidate must be ahead to leave another behind
_LABELS = 3  # kinds of random labels that a search tries
_LOOK, _BEHIND, _SLACK = 10, 0.004, 15.0  # of Newton steps, as in moves
_KEPT = 5  # candidates that go on to the next stage, at most


@dataclass(frozen=True)
class Agreement:
    """How sure a search is of its maximum.

    Attributes
    ----------
    searches : int
        Independent ones.
    agreed : int
        Those that ended in the maximum that was taken.
    runner_up : float
        Nats by which the next best maximum lies below it; infinite where none was seen.
    """

    searches: int
    agreed: int
    runner_up: float


class Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, name: str) -> None:
        """Add the seconds since the last lap to those under a name."""
        now = perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


@dataclass(frozen=True)
class Search:
    """How a maximum is searched: EM first, then Newton on the observed likelihood.

    Attributes
    ----------
    passes : Passes
    ridge : Ridge
    max_iter : int
        Bound on the passes over all rows.
    tol : float
    total_weight : float
        Of all rows.
    warm_up : int
        EM iterations before Newton takes over.
    """

    passes: Passes
    ridge: Ridge
    max_iter: int
    tol: float
    total_weight: float
    warm_up: int = WARM_UP

    def run(
        self, starts: list[MoE], report: Callable[[str], Report | None], clock: Clock | None = None
    ) -> Run:
        """Return the iterations from the first start that keeps its experts."""
        clock = clock or Clock()
        run = self._best_em(starts, report("em"))
        clock.lap("em")
        options: dict[str, Any] = {"ridge": self.ridge, "tol": self.tol, "report": report("newton")}
        left = self.max_iter - run.n_iter
        if newton_serves(run.model):
            run = run.then(run_newton(self.passes, run.model, max_iter=left, **options))
        left = self.max_iter - run.n_iter
        if not run.converged and left > 0:  # EM goes on where Newton does not serve
            run = run.then(run_em(self.passes, run.model, max_iter=left, **options))
        clock.lap("newton")
        return run

    def _best_em(self, starts: list[MoE], report: Report | None) -> Run:
        """Run EM from the first start that keeps its experts; if none does, take the likeliest."""
        least = least_mass(self.total_weight, starts[0])
        n_iter = min(self.warm_up, self.max_iter)
        runs: list[Run] = []
        for start in starts:
            runs.append(
                run_em(
                    self.passes,
                    start,
                    ridge=self.ridge,
                    max_iter=n_iter,
                    tol=self.tol,
                    report=report,
                )
            )
            if runs[-1].mass.min() >= least:
                return runs[-1]
        return max(runs, key=lambda run: run.trace[-1])


@dataclass(frozen=True)
class Candidate:
    """A maximum, and the independent searches that ended in it.

    Attributes
    ----------
    run : Run
    found_by : frozenset of int
        Empty where moves from another maximum led there.
    """

    run: Run
    found_by: frozenset[int] = frozenset()

    @property
    def height(self) -> float:
        """Penalised log-likelihood on the rows of the stage."""
        return self.run.trace[-1]


def searched(
    rows: Rows,
    blank: Experts,
    columns: tuple[int, ...] | None,
    ridge: Ridge,
    n_init: int | None,
    rng: np.random.Generator,
    report: Report | None = None,
) -> tuple[MoE, Agreement]:
    """Return the best maximum, approached on all rows, and how sure that is.

    Independent searches set out on few rows: one grows a model expert by expert, the others begin
    with random labels. Moves between maxima improve what they found, on more rows. What is not
    clearly worse goes on to the next stage, until all rows decide.

    Parameters
    ----------
    rows : Rows
        Standardised.
    blank : Experts
    columns : tuple of int, optional
        Of the gate.
    ridge : Ridge
    n_init : int, optional
        Independent searches; by default as many as the plan of the family has.
    rng : Generator
    report : callable, optional
        Called as report(searches done, best penalised log-likelihood, as for all rows).
    """
    plan = plan_for(blank)
    stages = _stages(rows, plan, ridge, rng)
    stage = next(stages)
    if blank.n_experts == 1:
        n_init = 1
    elif n_init is None:
        n_init = plan.n_init * (1 if len(stage) < len(rows) else 2)
    found: list[Candidate] = []
    for i, stream in enumerate(_streams(rng, n_init)):
        find = _grown if i == 0 else _from_labels
        found.append(Candidate(find(stage, blank, columns, i, stream), frozenset([i])))
        if report is not None:
            height = max(candidate.height for candidate in found)
            report(i + 1, height * rows.total_weight / stage.rows.total_weight)
    found = _distinct(stage, found)

    moves = np.random.default_rng(rng.integers(2**63))
    stage = next(stages, stage)
    found = _improved(stage, _on(stage, found), moves, plan.moves)
    for stage in stages:
        found = _on(stage, found[:_KEPT])
        if len(stage) < len(rows):
            best = found[0]
            ends, _ = improved(stage, best.run, moves, plan.late)
            found = _distinct(
                stage, [replace(best, run=ends[0]), *map(Candidate, ends[1:]), *found[1:]]
            )
            found = _contenders(stage, found)
    best = found[0]
    behind = best.height - found[1].height if len(found) > 1 else np.inf
    return best.run.model, Agreement(n_init, len(best.found_by), float(behind))


def _stages(rows: Rows, plan: Plan, ridge: Ridge, rng: np.random.Generator) -> Iterator[Stage]:
    """Yield more and more rows, in memory and standardised; last all of them."""
    size = plan.few
    while size < 0.7 * len(rows):
        yield Stage.of_some(rows, size, ridge, rng)
        size = plan.some if size == plan.few else _GROWTH * size
    yield (
        Stage.of_some(rows, len(rows), ridge, rng) if len(rows) <= plan.some else Stage(rows, ridge)
    )


def _streams(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """Return sources of randomness, the first of them the same whatever their number."""
    seed = int(rng.integers(2**63))
    return [np.random.default_rng([seed, i]) for i in range(n)]


def _grown(
    stage: Stage,
    blank: Experts,
    columns: tuple[int, ...] | None,
    index: int,
    rng: np.random.Generator,
) -> Run:
    """Begin with one expert, and split the one that gains most until there are enough."""
    run = stage.at_maximum(MoE(SoftmaxGate.blank(1, blank.n_columns, columns), blank.take([0])))
    for _ in range(blank.n_experts - 1):
        run = grown(stage, run, rng)[0]
    if run.model.n_experts < blank.n_experts:  # no expert has rows enough to be split
        return _from_labels(stage, blank, columns, index, rng)
    return run


def _from_labels(
    stage: Stage,
    blank: Experts,
    columns: tuple[int, ...] | None,
    index: int,
    rng: np.random.Generator,
) -> Run:
    """Begin with random labels of a few kinds, and go on with the likeliest."""
    starts = [start_from(blank, stage.block, columns, rng, way) for way in range(_LABELS)]
    runs = [stage.em(start, WARM_UP, tol=0.1) for start in starts]
    return stage.at_maximum(max(runs, key=lambda run: run.trace[-1]).model)


def _on(stage: Stage, found: list[Candidate]) -> list[Candidate]:
    """Return candidates led to their maxima on a stage; those left far behind stop early."""
    runs = [stage.at_maximum(candidate.run.model, most=_LOOK) for candidate in found]
    best = max(run.trace[-1] for run in runs)
    unit = stage.spread(found[0].run.model) if len(found) > 1 else 0.0
    ends = [
        run
        if run.converged or run.trace[-1] < best - _BEHIND * unit - _SLACK
        else run.then(stage.at_maximum(run.model))
        for run in runs
    ]
    return _distinct(stage, [replace(old, run=run) for old, run in zip(found, ends, strict=True)])


def _improved(
    stage: Stage, found: list[Candidate], rng: np.random.Generator, most: int
) -> list[Candidate]:
    """Return what moves make of each candidate, and the other maxima that were seen."""
    ends: list[Candidate] = []
    if found[0].run.model.n_experts > 1:
        for candidate in found:
            runs, _ = improved(
                stage, candidate.run, rng, most, [end.run for end in ends if end.found_by]
            )
            ends.append(replace(candidate, run=runs[0]))
            ends += map(Candidate, runs[1:])
    return _contenders(stage, _distinct(stage, ends or found))


def _distinct(stage: Stage, found: list[Candidate]) -> list[Candidate]:
    """Return the different maxima among candidates, the most likely first."""
    order = sorted(found, key=lambda c: (stage.value(c.run), c.height), reverse=True)
    kept: list[Candidate] = []
    for candidate in order:
        if kept and stage.same(kept[-1].run, candidate.run):
            kept[-1] = replace(kept[-1], found_by=kept[-1].found_by | candidate.found_by)
        else:
            kept.append(candidate)
    return kept


def _contenders(stage: Stage, found: list[Candidate]) -> list[Candidate]:
    """Return the best candidate and those that more rows might prefer, by a paired comparison."""
    best = found[0]
    here = stage.posterior(best.run.model).log_density
    kept = [best]
    for candidate in found[1:]:
        if len(kept) == _KEPT or stage.value(candidate.run) == -np.inf:
            break
        there = stage.posterior(candidate.run.model).log_density
        noise = np.std(stage.weight * (here - there)) * np.sqrt(len(stage))
        if best.height - candidate.height <= _CLEAR * noise:
            kept.append(candidate)
    return kept
