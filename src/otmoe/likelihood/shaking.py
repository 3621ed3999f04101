"""From one maximum to a higher one by way of some of the rows (maths 4)."""

from __future__ import annotations

import numpy as np

from otmoe.likelihood.iterations import Run
from otmoe.likelihood.moves import led_on
from otmoe.likelihood.stage import Stage

# `python -m benchmarks constants` halves and doubles the first.
_PER_PARAMETER = 15  # rows that lead away from a maximum, for each of its parameters
_MOST = 5  # times the tries that may fail in turn, in all
_AWAY, _BACK = 12, 6  # Newton steps on these rows and more, and on all before a try is given up


def shaken(stage: Stage, run: Run, rng: np.random.Generator, patience: int) -> Run:
    """Go from maximum to higher maximum by way of maxima on a few of the rows.

    Maxima that compete differ by less than what chance does to their order on a few rows. A
    maximum there is close to several on all rows, and from it Newton's method often ends in another
    one than that it came from.

    Parameters
    ----------
    stage : Stage
    run : Run
        At a maximum.
    rng : Generator
    patience : int
        Tries in turn that may end no higher; a few times as many in all.

    Returns
    -------
    Run
        At least as high; the same where no try ended higher.
    """
    size = min(_PER_PARAMETER * run.model.n_free, len(stage) // 2)
    unit = stage.spread(run.model)
    tried = failed = 0
    while failed < patience and tried < _MOST * patience:
        tried += 1
        model = run.model
        for n in (size, round(np.sqrt(size * len(stage)))):  # more rows lead most of the way back
            some = Stage.of_some(stage.rows, n, stage.ridge, rng)
            model = some.at_maximum(model, most=_AWAY).model
        back = led_on(stage, stage.at_maximum(model, most=_BACK), run.trace[-1], unit)
        if stage.value(back) > stage.value(run) + 0.5 * stage.same_within:
            run, failed = back, 0
        else:
            failed += 1
    return run
