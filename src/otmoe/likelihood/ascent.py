"""The way to a maximum on all rows: EM, then Newton's method (maths 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from otmoe.arrays.numerics import Floats
from otmoe.likelihood.iterations import Report, Run, newton_serves, run_em, run_newton
from otmoe.likelihood.statistics import Passes
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

WARM_UP = 20
"""EM iterations before Newton's method takes over."""

FEW = 2
"""The same, where a fit to some of the rows has led the way."""


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
    """

    passes: Passes
    ridge: Ridge
    max_iter: int
    tol: float
    total_weight: float
    warm_up: int = WARM_UP

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
