"""How the highest maximum is searched: candidates on more and more rows (maths 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from otmoe.arrays.numerics import Floats, on_accelerator
from otmoe.likelihood.agreement import Agreement
from otmoe.likelihood.ascent import WARM_UP
from otmoe.likelihood.iterations import Report, Run
from otmoe.likelihood.maxima import Maximum, contenders, distinct, led_to, settles
from otmoe.likelihood.moves import grown, improved
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.shaking import shaken
from otmoe.likelihood.stage import Stage
from otmoe.likelihood.starts import Plan, plan_for, start_from, structured
from otmoe.model.experts import Experts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.structure import Structure

_T = TypeVar("_T")

# `python -m benchmarks constants` halves and doubles these.
_GROWTH, _LEAP = 3, 7  # times as many rows in each stage; the same where all searches agree
_PER_PARAMETER = 100  # rows on which moves are tried, if that is more than the plan has
_BEGUN = 4  # searches that must agree on some of the rows, for no move to be tried
_LABELS = 3  # kinds of random labels that a search tries
_EACH = 2  # candidates that each search passes on
_PATIENCE = 15  # shakes in turn that may end no higher, where no two searches agree before
_AT_BEST, _ALONE = 12, 24  # more of them for the best, if two searches end there, and if one does
_MOST_ROWS = 100_000  # on which it is shaken
_PLENTY = 1_000_000  # rows on an accelerator from which all come next


def searched(
    rows: Rows,
    blank: Experts,
    columns: tuple[int, ...] | None,
    ridge: Ridge,
    n_init: int | None,
    rng: np.random.Generator,
    report: Report | None = None,
    smaller: MoE | None = None,
    structure: Structure | None = None,
) -> tuple[MoE, Agreement, Floats | None]:
    """Return the best maximum, approached on all rows, and how sure that is.

    Independent searches set out on few rows. If these are not all, and several searches with
    random labels end in one maximum that needs all its experts, it goes on to all rows. Else each
    search sets out on its own, and one of them grows a model expert by expert. Moves between maxima
    improve what they find, on more rows, until two searches end in the same maximum. If that needs
    all its experts, it goes on to all rows. Otherwise what is not clearly worse goes on to the next
    stage, until all rows decide. There the ends of the searches are shaken, led away on a few rows
    and back, until two of them arrive at the highest.

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
    smaller : MoE, optional
        A standardised model with fewer experts, from which one more search grows.
    structure : Structure, optional
        Of the experts, on the same scale.

    Returns
    -------
    MoE
    Agreement
    ndarray of shape (P, P), optional
        About the information of all rows, where a sample has led so close that it will do.
    """
    plan, K = plan_for(blank), blank.n_experts
    ground = _Ground(rows, blank, columns, ridge, plan, smaller, structure)
    few = ground.alone.stage(plan.few, rng)
    if n_init is None:
        n_init = plan.n_init * (2 if few.whole else 1)
    n = 1 if K == 1 else n_init + (smaller is not None)
    streams, early = _streams(rng, n)

    def say(n_searches: int, stage: Stage, height: float) -> None:
        if report is not None:
            report(n_searches, height * rows.total_weight / stage.rows.total_weight)

    # 1) searches on few rows: if there are more rows, do they agree on a model that needs all its
    # experts? Of a small table that says too little, and moves cost next to nothing.
    found: list[Maximum] = []
    grows = ground.grows(n)
    count = few.whole or n == 1  # as searches of their own
    early = streams if count else early
    may_grow = count or smaller is not None
    begun = ground.in_order(
        lambda ground, i: ground.begun(may_grow and i == grows, few, early[i]), len(early)
    )
    for i, run in enumerate(begun):
        found = distinct(few, [*found, Maximum(run, frozenset([i]))])
        say(i + 1, few, found[0].height)
        if len(found) > 1 and not few.whole:
            break
    n_searches = i + 1
    agreed = len(found) == 1 and not few.whole
    settled = K == 1 or (agreed and settles(few, replace(found[0], run=run)))

    # 2) if not, moves from what each finds: do they agree then?
    stage, size = few, max(plan.some, _PER_PARAMETER * found[0].run.model.n_free)
    if not settled and few.whole:
        found = _shaken(few, contenders(few, _improved(few, found, rng, plan.moves)), rng)
    elif not settled:
        found = []

        def search(ground: _Ground, i: int) -> tuple[Stage, list[Maximum]]:
            own, stream = ground.stage(plan.few, streams[i]), streams[i]
            start = Maximum(ground.begun(i == grows, own, stream), frozenset([i]))
            stage = ground.stage(size, stream)
            there = led_to(stage, [start])
            return stage, _improved(stage, there, stream, plan.moves // plan.n_init)

        for i, (stage, mine) in enumerate(ground.in_order(search, n)):
            earlier = led_to(stage, [end for end in found if end.found_by])
            found += contenders(stage, mine)[:_EACH]
            n_searches = i + 1
            ends = distinct(stage, [*earlier, *mine])
            say(n_searches, stage, ends[0].height)
            if settles(stage, ends[0]):
                settled, found = True, ends[:1]
            if settled or any(stage.same(end.run, mine[0].run) for end in earlier):
                break
        if stage.whole and not settled:
            found = _shaken(stage, distinct(stage, found), rng)

    # 3) what is not clearly worse, on more and more rows
    known = None
    while not stage.whole:
        if len(stage) >= size:
            size *= _LEAP if settled else _GROWTH
        following = ground.stage(size, rng, there=settled or size >= _MOST_ROWS)
        at_end = found[0].run.information
        if settled and following.whole and at_end is not None and len(stage) >= plan.some:
            known = at_end.matrix * (rows.total_weight / stage.rows.total_weight)
            break
        stage = following
        found = led_to(stage, found)
        if not settled and ground.shakes(stage):
            found = _shaken(stage, found, rng)
        if not (stage.whole or settled):
            found = contenders(stage, found)
    best = found[0]
    behind = best.height - found[1].height if len(found) > 1 else np.inf
    if behind < 0:  # a higher one that is none: an expert of it is lost
        behind = np.inf
    return best.run.model, Agreement(n_searches, len(best.found_by), float(behind)), known


@dataclass(frozen=True)
class _Ground:
    """What searches have in common."""

    rows: Rows
    blank: Experts
    columns: tuple[int, ...] | None
    ridge: Ridge
    plan: Plan
    smaller: MoE | None
    structure: Structure | None = None

    def stage(self, size: int, rng: np.random.Generator, there: bool = False) -> Stage:
        """Return so many rows in memory and standardised, or all where these are not many more.

        Rows on an accelerator may stay there, if candidates are not moved or shaken.
        """
        far, n = on_accelerator(self.rows.X), len(self.rows)
        if far and there and size < 0.7 * n and size <= _PLENTY:
            return Stage.there(self.rows, size, self.ridge, rng)
        if size < 0.7 * n and not (far and there):
            return Stage.of_some(self.rows, size, self.ridge, rng)
        if n <= (_MOST_ROWS if far else self.plan.some):
            return Stage.of_some(self.rows, n, self.ridge, rng)
        return Stage(self.rows, self.ridge, whole=True)

    def in_order(self, search: Callable[[_Ground, int], _T], n: int) -> Iterator[_T]:
        """Yield the results of n searches in turn; two at a time, if there are threads.

        Two are what it takes to agree. What each finds does not depend on the others.
        """
        pool = self.rows.pool
        if pool is None or n < 2:
            yield from (search(self, i) for i in range(n))
            return
        for i in range(0, n, 2):
            yield from pool.map(lambda j: search(self.alone, j), range(i, min(i + 2, n)))

    @property
    def alone(self) -> _Ground:
        """The same without threads: what runs on one must not wait for others."""
        return replace(self, rows=replace(self.rows, pool=None))

    def shakes(self, stage: Stage) -> bool:
        """Say whether the best is shaken there: on all rows, or on many where all are too many."""
        if len(self.rows) <= _MOST_ROWS:
            return stage.whole
        return _MOST_ROWS / _GROWTH <= len(stage) < _MOST_ROWS

    def begun(self, grows: bool, stage: Stage, rng: np.random.Generator) -> Run:
        """Begin a search: one grows from fewer experts, the others have labels.

        Experts with columns of their own set out with those of all, and are then told apart.
        """
        structure = self.structure and self.structure.relaxed()
        run = self._grown(stage, structure, rng) if grows else None
        if run is None:
            ways = range(_LABELS)
            starts = [
                start_from(self.blank, stage.block, self.columns, rng, way, structure)
                for way in ways
            ]
            runs = [stage.em(start, WARM_UP, tol=0.1) for start in starts]
            run = stage.at_maximum(max(runs, key=lambda run: run.trace[-1]).model)
        if self.structure is None or not self.structure.labelled:
            return run
        share = np.asarray(stage.posterior(run.model).responsibilities) * stage.weight[:, None]
        return stage.at_maximum(structured(run.model, stage.block, share, self.structure))

    def grows(self, n: int) -> int:
        """Return which of n searches grows from fewer experts."""
        return min(2, n - 1) if self.smaller is None else 0

    def _grown(
        self, stage: Stage, structure: Structure | None, rng: np.random.Generator
    ) -> Run | None:
        """Return a maximum reached by splitting experts; none where they have no rows to split.

        Nor is there one with zero experts, which no split makes.
        """
        if structure is not None and structure.zeros:
            return None
        gate = SoftmaxGate.blank(1, self.blank.n_columns, self.columns)
        one = self.smaller or MoE(gate, self.blank.take([0]))
        run = _more(stage, replace(one, structure=structure), self.blank.n_experts, rng)
        return run if run.model.n_experts == self.blank.n_experts else None


def _streams(
    rng: np.random.Generator, n: int
) -> tuple[list[np.random.Generator], list[np.random.Generator]]:
    """Return sources of randomness for n searches, and for those that only have to agree.

    The first are the same whatever their number, and two of them are the same in both.
    """
    seed = int(rng.integers(2**63))
    own = [np.random.default_rng([seed, i]) for i in range(n)]
    more = [np.random.default_rng([seed, i, 1]) for i in range(len(own[:2]), _BEGUN)]
    return own, [*own[:2], *more]


def _more(stage: Stage, model: MoE, n_experts: int, rng: np.random.Generator) -> Run:
    """Split experts of a model until there are enough."""
    run = stage.at_maximum(model)
    for _ in range(n_experts - model.n_experts):
        run = grown(stage, run, rng)[0]
    return run


def _improved(
    stage: Stage, found: list[Maximum], rng: np.random.Generator, most: int
) -> list[Maximum]:
    """Return what moves make of each candidate, and the other maxima that were seen."""
    ends: list[Maximum] = []
    for i, candidate in enumerate(found):
        known = [end.run for end in ends if end.found_by]
        runs, tried = improved(stage, candidate.run, rng, most // (len(found) - i), known)
        most -= tried
        ends.append(replace(candidate, run=runs[0]))
        ends += map(Maximum, runs[1:])
    return distinct(stage, ends)


def _shaken(stage: Stage, found: list[Maximum], rng: np.random.Generator) -> list[Maximum]:
    """Return what shaking makes of the candidates, the best first.

    Where two searches have found the highest, and no way leads on from it, that is all. Else those
    that searches ended in are shaken, once for each search and the best in any case, until two end
    in the highest; that is then shaken again, for longer if only one has ended there.
    """
    starts = [replace(c, found_by=frozenset([i])) for c in found for i in sorted(c.found_by)]
    agreed = len(found[0].found_by) > 1
    if not found[0].found_by:
        starts.insert(0, found[0])
    ends: list[Maximum] = []
    for start in starts:
        sure = agreed and not ends
        patience = None if sure else _PATIENCE
        run = shaken(stage, start.run, rng, patience, [end.run for end in ends])
        if sure and stage.same(run, start.run):
            return found
        ends = distinct(stage, [*ends, replace(start, run=run)])
        if len(ends[0].found_by) > 1:
            break
    best = ends[0]
    run = shaken(stage, best.run, rng, _AT_BEST if len(best.found_by) > 1 else _ALONE, ())
    if not stage.same(run, best.run):  # one of the searches was led on
        ends.append(Maximum(run, frozenset(sorted(best.found_by)[:1])))
    return distinct(stage, [*ends, *found])
