"""Maxima that searches have found, and which of them go on to more rows (maths 4, 12)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from otmoe.likelihood.iterations import Run
from otmoe.likelihood.moves import least_loss, led_on
from otmoe.likelihood.stage import Stage

# `python -m benchmarks constants` halves and doubles these.
_CLEAR = 3.0  # standard errors by which a candidate must be ahead to leave another behind
_LOOK = 5  # Newton steps after which a candidate may be left behind
_KEPT = 5  # candidates that go on to the next stage, at most
_ESSENTIAL = 0.2  # spreads (as in moves) that dropping any expert must cost for no move to be tried


@dataclass(frozen=True)
class Maximum:
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


def led_to(stage: Stage, found: list[Maximum]) -> list[Maximum]:
    """Return candidates led to their maxima on a stage; those left far behind stop early."""
    runs = [stage.at_maximum(candidate.run.model, most=_LOOK) for candidate in found]
    best = max((run.trace[-1] for run in runs), default=-np.inf)
    unit = stage.spread(found[0].run.model) if len(found) > 1 else 0.0
    ends = [led_on(stage, run, best, unit) for run in runs]
    return distinct(stage, [replace(old, run=run) for old, run in zip(found, ends, strict=True)])


def distinct(stage: Stage, found: list[Maximum]) -> list[Maximum]:
    """Return the different maxima among candidates, the most likely first."""
    order = sorted(found, key=lambda c: (stage.value(c.run), c.height), reverse=True)
    kept: list[Maximum] = []
    for candidate in order:
        if kept and stage.same(kept[-1].run, candidate.run):
            kept[-1] = replace(kept[-1], found_by=kept[-1].found_by | candidate.found_by)
        else:
            kept.append(candidate)
    return kept


def contenders(stage: Stage, found: list[Maximum]) -> list[Maximum]:
    """Return the best candidate and those that more rows might prefer, by a paired comparison."""
    best = found[0]
    kept = [best]
    for candidate in found[1:]:
        if len(kept) == _KEPT or stage.value(candidate.run) == -np.inf:
            break
        noise = stage.noise(best.run.model, candidate.run.model)
        if best.height - candidate.height <= _CLEAR * noise:
            kept.append(candidate)
    return kept


def settles(stage: Stage, best: Maximum) -> bool:
    """Say whether no move or shake is needed: two searches end there, and no expert can be spared.

    Two experts that share a region which needs one can be, and then others lack one.
    """
    return len(best.found_by) > 1 and least_loss(stage, best.run.model) > _ESSENTIAL
