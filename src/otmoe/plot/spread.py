"""How sites differ in many coefficients, at a glance."""

from __future__ import annotations

from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.inference.between import Between
from otmoe.inference.effects import Coefficient, positions
from otmoe.plot.base import GREY, Display, colours, legend_beside, short


class SpreadDisplay(Display):
    """Coefficients of sites minus their mean: a dot per site, a prediction interval for a new one.

    Coefficients of one feature are grouped, with a colour for each expert. Dots are sites after
    shrinkage; bars are prediction intervals for a new site.

    Parameters
    ----------
    coefficients : sequence of Coefficient
        Of one block.
    sites : ndarray of shape (M, n)
        Coefficients of each of M sites, after shrinkage.
    level : float
        Of the prediction intervals.
    left_out : int
        Terms that are not shown.

    Attributes
    ----------
    terms : list of str
        From top to bottom.
    bars_, clouds_ : dict
        Prediction interval and sites of each coefficient, by (term, expert).
    ax_, figure_
        What was drawn on.
    """

    def __init__(
        self,
        coefficients: list[Coefficient],
        sites: Floats,
        level: float = 0.95,
        left_out: int = 0,
    ) -> None:
        self.coefficients, self.sites = coefficients, sites
        self.level, self.left_out = level, left_out
        self.terms = list(dict.fromkeys(map(_term, coefficients)))

    @classmethod
    def from_between(
        cls,
        between: Between,
        *,
        block: str = "expert",
        intercept: bool = True,
        n_terms: int = 20,
        level: float = 0.95,
        ax: Any = None,
        **options: Any,
    ) -> SpreadDisplay:
        """Draw the coefficients of a block.

        Parameters
        ----------
        between : Between
        block : {"expert", "gate", "variance"}
            The gate's coefficients are relative to its last expert.
        intercept : bool
            Whether intercepts are shown.
        n_terms : int
            Maximum number of terms: those in which sites differ most, in standard errors of the
            mean, in the order of the model.
        level : float
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        rows = between.coefficients(level)
        where = positions(rows, block=block)
        if not intercept and any(rows[j].term != "intercept" for j in where):
            where = [j for j in where if rows[j].term != "intercept"]
        weight: dict[str, float] = {}
        for j in where:
            ratio = rows[j].tau / rows[j].se if rows[j].se > 0 else 0.0
            weight[_term(rows[j])] = max(ratio, weight.get(_term(rows[j]), 0.0))
        kept = set(sorted(weight, key=lambda term: -weight[term])[:n_terms])
        where = [j for j in where if _term(rows[j]) in kept]
        sites = np.array([site.shrunk[where] for site in between.sites])
        shown = [rows[j] for j in where]
        return cls(shown, sites, level, len(weight) - len(kept)).plot(ax=ax, **options)

    def plot(self, ax: Any = None) -> SpreadDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        """
        experts = sorted({row.expert or 0 for row in self.coefficients})
        n = len(experts)
        ax = self._on(ax, (6.4, min(max(1.0 + 0.2 * len(self.terms) * (n + 0.6), 2.2), 9.0)))
        colour = colours(max(experts) + 1)
        tall = 0.76 / n
        self.bars_, self.clouds_ = {}, {}
        labelled: set[int] = set()
        ax.axvline(0, color=GREY, lw=1, zorder=0)
        for row, values in zip(self.coefficients, self.sites.T, strict=True):
            term, k = _term(row), row.expert or 0
            place = self.terms.index(term) + (experts.index(k) + 0.5) * tall - 0.38
            label = f"expert {k}" + ("" if row.against is None else f" against {row.against}")
            self.bars_[term, k] = ax.barh(
                place,
                row.high - row.low,
                0.8 * tall,
                row.low - row.mean,
                color=colour[k],
                alpha=0.25,
                lw=0,
                label=None if k in labelled else label,
            )[0]
            labelled.add(k)
            at = values - row.mean, np.full(len(values), place)
            self.clouds_[term, k] = ax.plot(*at, "o", ms=4, mew=0, color=colour[k], alpha=0.6)[0]
        for i in range(1, len(self.terms), 2):
            ax.axhspan(i - 0.5, i + 0.5, color="black", alpha=0.04, lw=0, zorder=-1)
        ax.set_yticks(range(len(self.terms)), short(self.terms))
        ax.set_ylim(len(self.terms) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.use_sticky_edges = False  # a bar ends inside the picture
        ax.margins(x=0.03)
        first = self.coefficients[0]
        names = {"gate": "gate coefficient", "variance": f"log {first.term}"}
        block = names.get(first.block, "coefficient")
        ax.set_xlabel(f"{block} minus its mean over sites; bar: {self.level:.0%} of new sites")
        if self.left_out:
            words = f"{len(self.terms)} of {len(self.terms) + self.left_out} terms"
            ax.set_title(words, loc="left", fontsize="small", color="#555555")
        legend_beside(ax)
        return self


def _term(row: Coefficient) -> str:
    """Return the label of a line: the term, and the class if there are several."""
    return row.term if row.label is None else f"{row.term}, {row.label}"
