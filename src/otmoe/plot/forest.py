"""How sites differ in one coefficient: a forest plot, as in meta-analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from otmoe.inference.between import Between
from otmoe.inference.effects import Coefficient, positions
from otmoe.inference.estimates import quantile
from otmoe.plot.base import GREY, Display, colours, short
from otmoe.plot.effects import ForestRow, aligned, described, digits_of, limits_of
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_ORDERS = ("estimate", "rows", "name")
_INK, _QUIET = "#222222", "#555555"
_LANE = 0.17  # of a row: how far the two estimates of a site are from its middle
_EDGE = 0.03  # of the width of the axis
_LEAST, _MOST = 3.0, 9.0  # points: marks of the smallest and the largest site


class ForestDisplay(Display):
    """One coefficient, site by site: before shrinkage (open) and after (filled).

    The size of a mark shows the rows of a site. At the bottom, a diamond is the mean over sites
    with its interval, and a bar the prediction interval for a new site. An arrow marks an interval
    that extends beyond the axis.

    Parameters
    ----------
    rows : sequence of ForestRow
        From top to bottom.
    coefficient : Coefficient
        Mean, deviation and prediction interval.
    level : float
        Of the intervals.
    left_out : int
        Number of sites not shown, closer to the mean than those shown.

    Attributes
    ----------
    alone_, shrunk_ : dict
        Mark of each site, before and after shrinkage.
    alone_lines_, shrunk_lines_ : dict
        Their intervals.
    diamond_, bar_ : matplotlib patches
        The mean over sites, and the prediction interval for a new site.
    ax_, figure_
        What was drawn on.
    """

    def __init__(
        self,
        rows: Sequence[ForestRow],
        coefficient: Coefficient,
        level: float = 0.95,
        left_out: int = 0,
    ) -> None:
        self.rows, self.coefficient = list(rows), coefficient
        self.level, self.left_out = level, left_out

    @classmethod
    def from_between(
        cls,
        between: Between,
        term: str | int = "intercept",
        *,
        expert: int | None = None,
        block: str | None = None,
        label: Any = None,
        order: str = "estimate",
        n_sites: int = 40,
        level: float = 0.95,
        ax: Any = None,
        **options: Any,
    ) -> ForestDisplay:
        """Draw a coefficient at every site.

        Parameters
        ----------
        between : Between
        term : str or int
            A feature, "intercept" or "variance", or a position in ``between.parameters``.
        expert : int, optional
            By default the first that has the term.
        block : {"expert", "gate", "variance"}, optional
            By default the experts, where they have the term.
        label : object, optional
            A class; by default the first.
        order : {"estimate", "rows", "name"}
            Order of the sites: by the estimate after shrinkage, by size, or by name.
        n_sites : int
            Maximum number of sites: those furthest from the mean, after shrinkage.
        level : float
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        if order not in _ORDERS:
            raise InvalidInput(Error.NOT_ONE_OF, name="order", value=order, choices=list(_ORDERS))
        about = between.parameters
        where = positions(about, term, expert=expert, block=block, label=label)
        j = next((i for i in where if about[i].block == "expert"), where[0])
        found = between.coefficients(level)[j]
        rows = [
            ForestRow(
                site.site,
                site.n_samples,
                *map(float, (site.estimate[j], site.error[j])),
                *map(float, (site.shrunk[j], site.shrunk_error[j])),
            )
            for site in between.sites
        ]
        rows.sort(key=lambda row: (-abs(row.shrunk - found.mean), row.site))
        kept = rows[:n_sites]
        by = {
            "estimate": lambda row: (row.shrunk, row.site),
            "rows": lambda row: (-row.n_samples, row.site),
            "name": lambda row: row.site,
        }
        kept.sort(key=by[order])
        return cls(kept, found, level, len(rows) - len(kept)).plot(ax=ax, **options)

    def plot(self, ax: Any = None, *, colour: Any = None, numbers: bool = True) -> ForestDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        colour : colour, optional
            By default that of the expert.
        numbers : bool
            Whether to print rows and estimates beside the plot.
        """
        what, n = self.coefficient, len(self.rows) + bool(self.left_out)
        ax = self._on(ax, (7.2, 1.4 + 0.25 * (n + 3)))
        if colour is None:
            colour = colours((what.expert or 0) + 1)[-1]
        inner = [what.low, what.high, *self._mean_ends]
        self._ends = low, high = limits_of(self.rows, inner, self.level)
        edge = _EDGE * (high - low)
        ax.set_xlim(low - edge, high + edge)
        self._sites(ax, colour)
        self._foot(ax, colour, n + 0.6)
        ax.set_ylim(n + 2.3, -0.7)
        self._words(ax, n + 0.6, numbers)
        self._legend(ax, colour)
        return self

    # -- parts --------------------------------------------------------------------------------

    @property
    def _mean_ends(self) -> tuple[float, float]:
        wide = quantile(self.level) * self.coefficient.se
        return self.coefficient.mean - wide, self.coefficient.mean + wide

    @property
    def _places(self) -> list[int]:
        """Where the rows are: where sites are left out, a line is free for their number."""
        n = len(self.rows)
        if not self.left_out:
            return list(range(n))
        return [i + (i >= self._gap) for i in range(n)]

    @property
    def _gap(self) -> int:
        """The line of the sites that are left out: at the mean, if sites are in that order."""
        values = [row.shrunk for row in self.rows]
        below = sum(value < self.coefficient.mean for value in values)
        return below if values == sorted(values) else len(values)

    def _sites(self, ax: Any, colour: Any) -> None:
        self.alone_, self.shrunk_ = {}, {}
        self.alone_lines_, self.shrunk_lines_ = {}, {}
        largest = max((row.n_samples for row in self.rows), default=1.0)
        low, high = self._ends
        for i, row in zip(self._places, self.rows, strict=True):
            if i % 2:
                ax.axhspan(i - 0.5, i + 0.5, color="black", alpha=0.035, lw=0, zorder=-1)
            size = _LEAST + (_MOST - _LEAST) * np.sqrt(row.n_samples / largest)
            if np.isfinite(row.error):
                place = i - _LANE
                self.alone_lines_[row.site] = _line(
                    ax, row.alone(self.level), place, self._ends, GREY, 1.0
                )
                if low <= row.estimate <= high:
                    self.alone_[row.site] = ax.plot(
                        [row.estimate], [place], "o", ms=size, mfc="white", mec=_QUIET, mew=1.0
                    )[0]
            place = i + _LANE
            self.shrunk_lines_[row.site] = _line(
                ax, row.after(self.level), place, self._ends, colour, 1.8
            )
            self.shrunk_[row.site] = ax.plot([row.shrunk], [place], "o", ms=size, color=colour)[0]

    def _foot(self, ax: Any, colour: Any, place: float) -> None:
        from matplotlib.patches import Polygon, Rectangle

        what, (left, right), (low, high) = self.coefficient, self._mean_ends, self._ends
        ax.axvline(what.mean, color=colour, lw=0.9, ls=(0, (4, 3)), zorder=0)
        if low < 0 < high:
            ax.axvline(0, color=GREY, lw=0.9, zorder=0)
        ax.axhline(place - 0.75, color=_QUIET, lw=0.8)
        corners = [
            (left, place),
            (what.mean, place - 0.3),
            (right, place),
            (what.mean, place + 0.3),
        ]
        self.diamond_ = ax.add_patch(Polygon(corners, closed=True, fc=colour, ec=colour, lw=0.8))
        self.bar_ = ax.add_patch(
            Rectangle((what.low, place + 0.82), what.high - what.low, 0.36, fc=colour, alpha=0.45)
        )

    def _words(self, ax: Any, foot: float, numbers: bool) -> None:
        """Write the text beside and below the plot."""
        what, level = self.coefficient, f"{self.level:.0%}"
        digits = digits_of(self._ends)
        names = [*short(row.site for row in self.rows), "mean over sites"]
        names.append(f"new site (τ = {what.tau:.{digits}f})")
        places = [*self._places, foot, foot + 1]
        ax.set_yticks(places, names)
        ax.tick_params(axis="y", length=0, pad=46 if numbers else 6)
        ax.spines["left"].set_visible(False)
        ax.set_xlabel(f"{described(what)}, {level} interval")
        if self.left_out:
            rest = f"{self.left_out:,} sites closer to the mean"
            paper = {"fc": "white", "ec": "none", "pad": 1.5}
            self._note(ax, 0.5, self._gap, rest, ha="center", style="italic", bbox=paper)
        if not numbers:
            return
        spans = [row.after(self.level) for row in self.rows]
        values: list[tuple[float | None, tuple[float, float]]] = [
            *((row.shrunk, span) for row, span in zip(self.rows, spans, strict=True)),
            (what.mean, self._mean_ends),
            (None, (what.low, what.high)),
        ]
        for place, words in zip(places, aligned(values, digits), strict=True):
            self._note(ax, 1.01, place, words, ha="left", family="monospace", fontsize="x-small")
        for i, row in zip(self._places, self.rows, strict=True):
            self._note(ax, -0.01, i, f"{row.n_samples:,.0f}", ha="right")
        self._note(ax, -0.01, -0.75, "rows", ha="right", va="bottom")
        self._note(ax, 1.01, -0.75, "after shrinkage", ha="left", va="bottom")

    def _note(self, ax: Any, x: float, y: float, words: str, **how: Any) -> None:
        how = {"va": "center", "fontsize": "small", "color": _QUIET} | how
        ax.text(x, y, words, transform=ax.get_yaxis_transform(), **how)

    def _legend(self, ax: Any, colour: Any) -> None:
        from matplotlib.lines import Line2D

        marks = [
            Line2D(
                [], [], color=GREY, lw=1, marker="o", mfc="white", mec=_QUIET, label="site alone"
            ),
            Line2D([], [], color=colour, lw=1.8, marker="o", label="after shrinkage"),
        ]
        ax.legend(
            handles=marks,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=2,
            frameon=False,
            borderaxespad=0.3,
            fontsize="small",
        )


def _line(
    ax: Any,
    ends: tuple[float, float],
    place: float,
    limits: tuple[float, float],
    colour: Any,
    width: float,
) -> Any:
    """Draw an interval; an arrow at an end that lies outside."""
    inside = [float(np.clip(end, *limits)) for end in ends]
    for limit, goes_on, arrow in (
        (limits[0], ends[0] < limits[0], "<"),
        (limits[1], ends[1] > limits[1], ">"),
    ):
        if goes_on:
            ax.plot([limit], [place], arrow, ms=4, color=colour)
    return ax.plot(inside, [place, place], color=colour, lw=width, solid_capstyle="butt")[0]
