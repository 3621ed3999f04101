"""Flow from the experts of every site to the merged experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from otmoe.aggregation import Aggregation, Contribution
from otmoe.arrays.numerics import Floats
from otmoe.plot.base import GREY, Display, colours, expert_names, short
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_GAP = 0.012  # of the height, between two sites
_LEAST = 1e-4  # share of all mass below which a ribbon is not drawn
_BAR = 0.035  # width of the bars at both ends


class FlowDisplay(Display):
    """The flow from the experts of the sites to the experts of the merged model.

    On the left, a bar for each site, as high as its weight, divided into its experts; on the right
    the global experts. The width of a ribbon is its mass, and its colour that of its destination.

    Parameters
    ----------
    sites : sequence of str
        Names of the bars on the left.
    flow : sequence of ndarray of shape (K_m, K)
        Mass from every expert of a site to every global expert; adds up to 1 over all sites.
    flagged : sequence of str
        Sites that stand out, to be marked.

    Attributes
    ----------
    ribbons_ : dict
        The patch of each ribbon, by (site, local expert, global expert).
    ax_, figure_
        What was drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> display = FlowDisplay(["lyon", "nantes"], [np.eye(2) / 4, np.eye(2) / 4])
    >>> display.mass
    array([0.5, 0.5])
    """

    def __init__(
        self, sites: Sequence[str], flow: Sequence[Floats], flagged: Sequence[str] = ()
    ) -> None:
        self.sites, self.flow, self.flagged = list(sites), list(flow), set(flagged)

    @classmethod
    def from_aggregation(
        cls, aggregation: Aggregation, *, n_sites: int = 12, ax: Any = None, **options: Any
    ) -> FlowDisplay:
        """Draw the flow of an aggregation.

        Parameters
        ----------
        aggregation : Aggregation
        n_sites : int
            Maximum number of sites to draw separately: those that stand out, then those with the
            largest weights. The others are drawn as one.
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        records = [r for r in aggregation.sites if r.mass is not None and r.weight > 0]
        if not records:
            raise InvalidInput(Error.NO_FLOW)
        total = sum(r.weight for r in records)
        order = sorted(records, key=lambda r: (not r.flagged, -r.weight))
        n_alone = len(order) if len(order) <= n_sites else max(n_sites - 1, 0)
        alone = sorted(order[:n_alone], key=lambda r: -r.weight)
        rest = order[n_alone:]
        sites, flow = [r.site for r in alone], [_part(r) / total for r in alone]
        if rest:
            sites.append(f"{len(rest):,} other sites")
            flow.append(np.sum([_part(r).sum(axis=0) for r in rest], axis=0)[None, :] / total)
        flagged = [r.site for r in alone if r.flagged]
        return cls(sites, flow, flagged).plot(ax=ax, **options)

    @property
    def mass(self) -> Floats:
        """Share of the mixture that each global expert has, (K,)."""
        return np.asarray(sum(part.sum(axis=0) for part in self.flow))

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> FlowDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        names : sequence of str, optional
            Of the global experts.
        """
        from matplotlib.patches import Rectangle

        M, K = len(self.sites), self.flow[0].shape[1]
        ax = self._on(ax, (6.4, min(max(3.0, 0.36 * M + 0.8), 8.0)))
        ax.set_axis_off()
        colour = colours(K)
        gap = _GAP * min(1.0, 24 / M)
        right_gap = gap * max(M - 1, 1) / max(K - 1, 1) if K > 1 else 0.0

        # 1) the bars: where each begins, from the top
        heights = np.array([part.sum() for part in self.flow])
        left = -np.concatenate([[0.0], np.cumsum(heights + gap)[:-1]])
        right = -np.concatenate([[0.0], np.cumsum(self.mass + right_gap)[:-1]])
        if M == 1:
            right_gap, right = 0.0, -np.concatenate([[0.0], np.cumsum(self.mass)[:-1]])
        words = short(self.sites)
        for site, word, top, height in zip(self.sites, words, left, heights, strict=True):
            bad = site in self.flagged
            ax.add_patch(
                Rectangle((0, top - height), _BAR, height, color="#222222" if bad else GREY, lw=0)
            )
            word = f"{word} ⚑" if bad else word
            ax.text(
                -0.015, top - height / 2, word, ha="right", va="center",
                fontsize="small", weight="bold" if bad else "normal",
            )  # fmt: skip
        shown = expert_names(K) if names is None else list(names)
        for k in range(K):
            ax.add_patch(
                Rectangle((1 - _BAR, right[k] - self.mass[k]), _BAR, self.mass[k],
                          color=colour[k], lw=0)
            )  # fmt: skip
            ax.text(
                1.015, right[k] - self.mass[k] / 2, f"{shown[k]}  {self.mass[k]:.0%}",
                ha="left", va="center", fontsize="small",
            )  # fmt: skip

        # 2) the ribbons: those of a site by local expert, so that ribbons of one expert touch
        self.ribbons_ = {}
        into = right.copy()
        for site, part, top in zip(self.sites, self.flow, left, strict=True):
            leave = top
            for level, row in enumerate(part):
                for k, mass in enumerate(row):
                    if mass > _LEAST:
                        patch = _ribbon(leave, into[k], mass, colour[k])
                        self.ribbons_[site, level, k] = ax.add_patch(patch)
                    leave -= mass
                    into[k] -= mass
                if 0 < level:
                    edge = leave + row.sum()
                    ax.plot([0, _BAR], [edge, edge], color="white", lw=0.8)
        low = min(left[-1] - heights[-1], right[-1] - self.mass[-1])
        ax.set_xlim(-0.02, 1.02)
        ax.set_ylim(low - 0.01, 0.06)
        ax.text(0, 0.02, "sites", ha="left", va="bottom", color="#555555", fontsize="small")
        ax.text(1, 0.02, "merged", ha="right", va="bottom", color="#555555", fontsize="small")
        return self


def _part(record: Contribution) -> Floats:
    """Return the mass of a site, weighted, (K_m, K)."""
    return np.asarray(record.weight * np.asarray(record.mass))


def _ribbon(leave: float, arrive: float, mass: float, colour: Any) -> Any:
    """Return a band from the left to the right, curved, of constant height."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    a, b = _BAR, 1 - _BAR
    middle = 0.5
    points = [
        (a, leave), (middle, leave), (middle, arrive), (b, arrive),
        (b, arrive - mass), (middle, arrive - mass), (middle, leave - mass), (a, leave - mass),
        (a, leave),
    ]  # fmt: skip
    curve = [Path.CURVE4] * 3
    codes = [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY]
    return PathPatch(Path(points, codes), facecolor=colour, alpha=0.45, lw=0)
