"""The way to a maximum on all rows: EM, then Newton's method (maths 4).

From a start that is next to the maximum already, as that of a shard is, EM is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from otmoe.arrays.newton import NewtonPoint
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.iterations import Report, Run, newton_serves, run_em, run_newton
from otmoe.likelihood.stage import least_mass
from otmoe.likelihood.statistics import Passes
from otmoe.model.free import Free
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

WARM_UP = 20
"""EM iterations before Newton's method takes over."""

FEW = 2
"""The same, where a fit to some of the rows has led the way."""

# With fewer rows there are many maxima, and Newton's method may end in another one than EM. With
# these bounds it ended in the same one wherever it converged: with hard, soft and overlapping
# experts, 4 to 64 shards of 8,000 and of 100,000 rows.
_ROWS = 20.0  # for every parameter, from which EM may be left out
_CLOSE = 6.0  # squared distance to the maximum in standard errors, for every parameter
_STEPS = 12  # in which Newton's method is there


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
class Ascent:
    """How a maximum is approached: EM first, then Newton on the observed likelihood.

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
    direct : bool
        Whether these may be left out where the start turns out to be next to a maximum.
    """

    passes: Passes
    ridge: Ridge
    max_iter: int
    tol: float
    total_weight: float
    warm_up: int = WARM_UP
    direct: bool = False

    def run(
        self,
        start: MoE,
        report: Callable[[str], Report | None],
        clock: Clock | None = None,
        known: Floats | None = None,
    ) -> Run:
        """Return the iterations from a start, near which the information is about `known`."""
        clock = clock or Clock()
        options: dict[str, Any] = {"ridge": self.ridge, "tol": self.tol}
        if self.direct and known is None:
            found = self._directly(start, report("newton"))
            clock.lap("newton")
            if found is not None:
                return found
        n_iter = min(self.warm_up, self.max_iter)
        run, left, model = None, self.max_iter, start
        if known is None:
            run = run_em(self.passes, start, max_iter=n_iter, report=report("em"), **options)
            left, model = left - run.n_iter, run.model
        clock.lap("em")
        options["report"] = report("newton")
        if run is None or newton_serves(model):
            found = run_newton(self.passes, model, max_iter=left, known=known, **options)
            run = found if run is None else run.then(found)
        left = self.max_iter - run.n_iter
        if not run.converged and left > 0:  # EM goes on where Newton does not serve
            run = run.then(run_em(self.passes, run.model, max_iter=left, **options))
        clock.lap("newton")
        return run

    def _directly(self, start: MoE, report: Report | None) -> Run | None:
        """Return Newton's iterations from a start that is next to a maximum; None from others.

        There the information is positive definite and hardly changes any more: steps need the score
        alone, and each makes the distance a few times smaller.
        """
        enough = self.total_weight >= _ROWS * start.n_free and self.max_iter > _STEPS
        if not (enough and newton_serves(start)):
            return None
        free, penalty = Free.of(start), self.ridge.matrix(start)
        here = self.passes.information(start)
        score = free.score(here.score - penalty @ start.to_vector())
        matrix = free.matrix(here.matrix + penalty)
        if not NewtonPoint(0.0, score, matrix).convex.decrement <= _CLOSE * start.n_free:
            return None
        options: dict[str, Any] = {"ridge": self.ridge, "tol": self.tol, "max_iter": _STEPS}
        run = run_newton(self.passes, start, known=here, **options)
        if not (run.converged and np.all(run.mass > least_mass(self.total_weight, run.model))):
            return None
        if report is not None:
            report(run.n_iter, run.trace[-1])
        return run
