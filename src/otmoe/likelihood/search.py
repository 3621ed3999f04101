"""How a maximum is searched: rivals on some of the rows, EM, then Newton's method (maths 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from otmoe.likelihood.iterations import Report, Run, newton_serves, run_em, run_newton, warm_up
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.starts import subsample
from otmoe.likelihood.statistics import Passes
from otmoe.model.mixture import MoE

WARM_UP = 20
"""EM iterations before Newton's method takes over."""

FEW = 2
"""The same, where a fit to some of the rows has led the way."""

SOME = 10_000
"""Rows of the first such fit; the next one has `_GROWTH` times as many."""

_GROWTH = 7


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
    alpha : float
    max_iter : int
        Bound on the passes over all rows.
    tol : float
    total_weight : float
        Of all rows.
    warm_up : int
        EM iterations before Newton takes over.
    """

    passes: Passes
    alpha: float
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
        options: dict[str, Any] = {"alpha": self.alpha, "tol": self.tol, "report": report("newton")}
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
                    alpha=self.alpha,
                    max_iter=n_iter,
                    tol=self.tol,
                    report=report,
                )
            )
            if runs[-1].mass.min() >= least:
                return runs[-1]
        return max(runs, key=lambda run: run.trace[-1])


def fitted_to_some(rows: Rows, starts: list[MoE], alpha: float, rng: np.random.Generator) -> MoE:
    """Return the best start, fitted to more and more of the rows, so that all need few passes."""
    size = SOME
    while size <= len(rows) / 2:
        some = subsample(rows, size, rng)
        least = least_mass(some.total_weight, starts[0])
        runs = [warm_up(some, start, alpha) for start in starts]
        starts = [max(runs, key=lambda run: (run.mass.min() >= least, run.trace[-1])).model]
        size *= _GROWTH
    return starts[0]


def least_mass(total: float, model: MoE) -> float:
    """Rows below which an expert counts as lost: twice its coefficients, if there are as many."""
    return min(2.0 * model.experts.n_columns, total / (5 * model.n_experts))
