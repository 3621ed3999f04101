"""Sites in a forest plot: their intervals, the axis that holds them, the words beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otmoe.inference.effects import Coefficient
from otmoe.inference.estimates import quantile

_ROOM = 0.8  # at either side, of the width of what is known after shrinkage


@dataclass(frozen=True)
class ForestRow:
    """A site in a forest plot.

    Attributes
    ----------
    site : str
    n_samples : float
    estimate, error : float
        Alone; the error is infinite where its rows say nothing.
    shrunk, shrunk_error : float
        After shrinkage to the mean over sites.
    """

    site: str
    n_samples: float
    estimate: float
    error: float
    shrunk: float
    shrunk_error: float

    def alone(self, level: float) -> tuple[float, float]:
        """Return the interval of the site alone."""
        wide = quantile(level) * self.error
        return self.estimate - wide, self.estimate + wide

    def after(self, level: float) -> tuple[float, float]:
        """Return the interval after shrinkage."""
        wide = quantile(level) * self.shrunk_error
        return self.shrunk - wide, self.shrunk + wide


def limits_of(
    rows: Sequence[ForestRow], inner: Sequence[float], level: float
) -> tuple[float, float]:
    """Return the ends of an axis: a site that knows little does not push the others aside.

    Parameters
    ----------
    rows : sequence of ForestRow
    inner : sequence of float
        What the axis has to hold beside the sites after shrinkage.
    level : float
        Of the intervals.
    """
    inner = [*inner, *(end for row in rows for end in row.after(level))]
    low, high = min(inner), max(inner)
    room = _ROOM * (high - low) or 1.0
    outer = [end for row in rows if np.isfinite(row.error) for end in row.alone(level)]
    near = np.clip([low, high, *outer], low - room, high + room)
    return float(near.min()), float(near.max())


def described(what: Coefficient) -> str:
    """Return what a coefficient is, for an axis.

    Examples
    --------
    >>> described(Coefficient("gate", 0, 1, None, "age", 0.0, 1.0, 1.0, -1.0, 1.0))
    'gate coefficient of age, expert 0 against 1'
    """
    if what.block == "variance":
        return f"log {what.term} of expert {what.expert}"
    kind = "gate " if what.block == "gate" else ""
    name = f"{kind}intercept" if what.term == "intercept" else f"{kind}coefficient of {what.term}"
    name += f", expert {what.expert}" + ("" if what.against is None else f" against {what.against}")
    return name + ("" if what.label is None else f", class {what.label}")


def digits_of(limits: tuple[float, float]) -> int:
    """Return how many decimals tell numbers of an axis apart."""
    return int(np.clip(2 - np.floor(np.log10(limits[1] - limits[0])), 0, 6))


def aligned(values: Sequence[tuple[float | None, tuple[float, float]]], digits: int) -> list[str]:
    """Return estimates and their intervals, one below the other."""
    cells = [
        ["" if v is None else f"{round(v, digits) + 0.0:.{digits}f}" for v in (value, *ends)]
        for value, ends in values
    ]
    size = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [f"{a:>{size[0]}} [{b:>{size[1]}}, {c:>{size[2]}}]" for a, b, c in cells]
