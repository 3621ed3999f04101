"""Coefficients with their intervals, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from otmoe.inference import Estimate, Inference
from otmoe.plot.base import GREY, Display, colours, legend_beside, model_of, short
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error


class CoefficientDisplay(Display):
    """A forest plot: a line per coefficient, from the low to the high end of its interval.

    Coefficients of one feature are grouped, with a colour for each expert. If the rows do not
    determine a coefficient, its mark is hollow and has no line.

    Parameters
    ----------
    estimates : sequence of Estimate
        Of one block: "expert" or "gate".
    level : float, optional
        Of the intervals; None where there are none.
    left_out : int
        Terms that are not shown.

    Attributes
    ----------
    terms : list of str
        From top to bottom.
    points_, lines_ : dict
        Mark and interval of each coefficient, by (term, expert).
    ax_, figure_
        What was drawn on.
    """

    def __init__(
        self, estimates: Sequence[Estimate], level: float | None = 0.95, left_out: int = 0
    ) -> None:
        self.estimates, self.level, self.left_out = list(estimates), level, left_out
        self.terms = list(dict.fromkeys(_term(e) for e in self.estimates))

    @classmethod
    def from_inference(
        cls,
        inference: Inference,
        *,
        block: str = "expert",
        level: float = 0.95,
        intercept: bool = False,
        n_terms: int = 20,
        ax: Any = None,
        **options: Any,
    ) -> CoefficientDisplay:
        """Draw the coefficients of a model at its maximum.

        Those of splines are left out: :class:`~otmoe.plot.CurveDisplay` draws the curves.

        Parameters
        ----------
        inference : Inference
            From ``est.inference(X, y)`` or ``aggregation.inference()``.
        block : {"expert", "gate"}
            The gate's coefficients are relative to its last expert.
        level : float
        intercept : bool
            Whether to show intercepts, which are often much larger than the rest.
        n_terms : int
            Maximum number of terms: those furthest from zero in standard errors, in the order of
            the model.
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        if block not in ("expert", "gate"):
            raise InvalidInput(
                Error.NOT_ONE_OF, name="block", value=block, choices=["expert", "gate"]
            )
        if block == "gate" and inference.model.n_experts == 1:
            raise InvalidInput(Error.NO_GATE)
        pairs = zip(inference.table(level), inference.bent, strict=True)
        rows = [e for e, bent in pairs if e.block == block and not bent]
        if not intercept:
            rows = [e for e in rows if e.term != "intercept"]
        terms = list(dict.fromkeys(_term(e) for e in rows))
        weight = {t: max(_known(e.z) for e in rows if _term(e) == t) for t in terms}
        kept = set(sorted(terms, key=lambda t: -weight[t])[:n_terms])
        rows = [e for e in rows if _term(e) in kept]
        return cls(rows, level, len(terms) - len(kept)).plot(ax=ax, **options)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, sample_weight: Any = None, **options: Any
    ) -> CoefficientDisplay:
        """Draw the coefficients of a fitted estimator, given the rows that were fitted.

        Parameters
        ----------
        estimator : MoERegressor or MoEClassifier
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
        **options
            Of :meth:`from_inference`.
        """
        model_of(estimator)  # refuses what is none
        return cls.from_inference(estimator.inference(X, y, sample_weight), **options)

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> CoefficientDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        names : sequence of str, optional
            Of the experts.
        """
        experts = sorted({_expert(e) for e in self.estimates})
        n = len(experts)
        ax = self._on(ax, (6.4, min(max(1.0 + 0.16 * len(self.terms) * (n + 1), 2.2), 9.0)))
        colour = colours(max(experts) + 1)
        self.points_, self.lines_ = {}, {}
        labelled: set[int] = set()
        ax.axvline(0, color=GREY, lw=1, zorder=0)
        for e in self.estimates:
            term, k = _term(e), _expert(e)
            place = self.terms.index(term) + (experts.index(k) + 0.5) * 0.76 / n - 0.38
            label = None
            if k not in labelled:
                label = f"expert {k}" if names is None else names[k]
                label += "" if e.against is None else f" against {e.against}"
                labelled.add(k)
            known = np.isfinite(e.low)
            if known:
                self.lines_[term, k] = ax.plot(
                    [e.low, e.high], [place, place], color=colour[k], lw=1.6
                )[0]
            self.points_[term, k] = ax.plot(
                [e.estimate],
                [place],
                "o",
                ms=4.5,
                color=colour[k],
                mfc=colour[k] if known else "white",
                label=label,
            )[0]
        for i in range(1, len(self.terms), 2):
            ax.axhspan(i - 0.5, i + 0.5, color="black", alpha=0.04, lw=0, zorder=-1)
        ax.set_yticks(range(len(self.terms)), short(self.terms))
        ax.set_ylim(len(self.terms) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        block = "gate coefficient" if self.estimates[0].block == "gate" else "coefficient"
        between = "" if self.level is None else f", {self.level:.0%} interval"
        ax.set_xlabel(block + between)
        if self.left_out:
            ax.set_title(
                f"{len(self.terms)} of {len(self.terms) + self.left_out} terms",
                loc="left",
                fontsize="small",
                color="#555555",
            )
        legend_beside(ax)
        return self


def _term(estimate: Estimate) -> str:
    """Return the label of a line: the term, and the class if there are several."""
    if estimate.label is None:
        return estimate.term
    return f"{estimate.term}, {estimate.label}"


def _expert(estimate: Estimate) -> int:
    return 0 if estimate.expert is None else estimate.expert


def _known(z: float) -> float:
    return 0.0 if np.isnan(z) else abs(z)
