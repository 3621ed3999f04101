"""A progress bar in the terminal for long fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

_PERIOD = 3600.0  # seconds over which speed is averaged: shards may take minutes
STAGES = {"starts": "searching starts", "em": "EM", "newton": "Newton finish"}


@contextmanager
def fit_progress(
    show: bool, totals: dict[str, int], console: Console | None = None, *, left: bool = False
) -> Iterator[Callable[[str, int, float], None] | None]:
    """Yield the callback that a fit reports to, or None if nothing is to be shown.

    Parameters
    ----------
    show : bool
    totals : dict
        Maximum number of iterations, by stage.
    console : rich Console, optional
        Where to show it; by default standard output.
    left : bool
        Whether to estimate the remaining time, if totals are exact rather than maxima.
    """
    if not show:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [
        TextColumn("{task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[value]}"),
        TimeElapsedColumn(),
    ]
    if left:
        columns += [TextColumn("left"), TimeRemainingColumn()]
    with Progress(*columns, console=console, speed_estimate_period=_PERIOD) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, iteration: int, value: float) -> None:
            shown = "" if isnan(value) else f"log-likelihood {value:,.1f}"
            if stage not in tasks:
                for done in tasks.values():  # earlier stages end when the next begins
                    bars.update(done, total=bars.tasks[done].completed)
                tasks[stage] = bars.add_task(
                    STAGES.get(stage, stage), total=totals.get(stage), value=shown
                )
            bars.update(tasks[stage], completed=iteration, value=shown)

        yield report
        for done in tasks.values():
            bars.update(done, total=bars.tasks[done].completed)
