"""Convergence of a fit, and the choice of K."""

from __future__ import annotations

from typing import Any

import numpy as np

from otmoe.aggregation import Aggregation
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.fit import Fit
from otmoe.plot.base import PALETTE, Display
from otmoe.selection import Selection
from otmoe.text.errors import InvalidInput, InvalidType
from otmoe.text.sentences import Error

_NAMES = {"bic": "BIC", "icl": "ICL"}
_AS_IT_IS = {"mm": "$R_c$, nats", "kl": "expected nats lost per row"}


class ConvergenceDisplay(Display):
    """An objective, iteration by iteration.

    A likelihood is drawn as its distance to the last value, on a logarithmic scale: a straight line
    is linear convergence (EM), one that bends down is quadratic (Newton's method). The objective of
    merging, R_c or the expected loss in nats per row, is drawn unchanged.

    Parameters
    ----------
    trace : ndarray of shape (T,)
    kind : {"em", "refine", "mm", "kl"}

    Attributes
    ----------
    line_ : matplotlib line
    ax_, figure_
        What was drawn on.
    """

    def __init__(self, trace: Any, kind: str) -> None:
        self.trace, self.kind = np.asarray(trace, dtype=np.float64), kind

    @classmethod
    def from_fit(cls, fit: Any, *, ax: Any = None, **options: Any) -> ConvergenceDisplay:
        """Draw the convergence of a local fit.

        Parameters
        ----------
        fit : Fit, MoERegressor or MoEClassifier
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        found = getattr(fit, "fit_", fit)
        if not isinstance(found, Fit):
            raise InvalidType(Error.NO_FIT_TO_PLOT, kind=type(fit).__name__)
        return cls(found.trace, "em").plot(ax=ax, **options)

    @classmethod
    def from_aggregation(
        cls, aggregation: Any, *, refine: bool = False, ax: Any = None, **options: Any
    ) -> ConvergenceDisplay:
        """Draw the convergence of merging, or of the refine rounds after it.

        Parameters
        ----------
        aggregation : Aggregation, or a fitted distributed estimator
        refine : bool
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        found: Aggregation = getattr(aggregation, "aggregation_", aggregation)
        if refine:
            if found.refinement is None:
                raise InvalidInput(Error.NO_ROUNDS)
            return cls(found.refinement.trace, "refine").plot(ax=ax, **options)
        if not len(found.trace):
            raise InvalidInput(Error.NO_ITERATIONS, method=found.method)
        kind = "kl" if found.method == "kl" else "mm"
        return cls(found.trace, kind).plot(ax=ax, **options)

    @property
    def shown(self) -> tuple[Floats, Floats]:
        """Iterations and heights that are drawn."""
        steps = np.arange(len(self.trace))
        if self.kind in _AS_IT_IS:
            return steps, self.trace
        gap = self.trace[-1] - self.trace
        kept = gap > 0
        return steps[kept], gap[kept]

    def plot(self, ax: Any = None, **options: Any) -> ConvergenceDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **options
            Of matplotlib's `plot`.
        """
        from matplotlib.ticker import MaxNLocator

        ax = self._on(ax, (4.6, 3.0))
        style = {"color": PALETTE[0], "marker": "o", "ms": 3.5, "lw": 1.4, **options}
        (self.line_,) = ax.plot(*self.shown, **style)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if self.kind in _AS_IT_IS:
            ax.set_xlabel("iteration")
            ax.set_ylabel(_AS_IT_IS[self.kind])
            ax.ticklabel_format(axis="y", useOffset=False)
        else:
            ax.set_xlabel("iteration" if self.kind == "em" else "refine round")
            ax.set_ylabel("log-likelihood below final value")
            if len(self.shown[1]):
                ax.set_yscale("log")
        return self


class SelectionDisplay(Display):
    """Numbers of experts compared: by the rows, by expected BIC, by transport.

    BIC and ICL if the rows were evaluated; the expected BIC and the transport objective if models
    were merged.

    Parameters
    ----------
    selection : Selection

    Attributes
    ----------
    lines_ : dict
        Lines of "bic", "icl", "expected_bic" and "cost".
    best_ : dict
        The mark at the best of each.
    axes_, figure_
        What was drawn on.
    """

    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    @classmethod
    def from_selection(
        cls, selection: Selection, *, ax: Any = None, **options: Any
    ) -> SelectionDisplay:
        """Draw a choice of K.

        Parameters
        ----------
        selection : Selection
        ax : sequence of matplotlib Axes, optional
            One for BIC and ICL, one for the expected BIC, one for the transport objective, as far
            as these exist.
        **options
            Of :meth:`plot`.
        """
        return cls(selection).plot(ax=ax, **options)

    def plot(self, ax: Any = None) -> SelectionDisplay:
        """Draw it.

        Parameters
        ----------
        ax : sequence of matplotlib Axes, optional
        """
        from matplotlib.ticker import MaxNLocator

        candidates = self.selection.candidates
        K = [c.n_experts for c in candidates]
        scored = not any(np.isnan(c.bic) for c in candidates)
        bent = not np.all(np.isnan(self.selection.bend))
        expected = not any(np.isnan(c.expected_bic) for c in candidates)
        axes = self._on_several(ax, max(scored + expected + bent, 1), (3.7, 2.9))
        self.lines_: dict[str, Any] = {}
        self.best_: dict[str, Any] = {}

        def draw(ax: Any, key: str, criterion: str, label: str, colour: str, **style: Any) -> None:
            values = [getattr(c, key) for c in candidates]
            (self.lines_[key],) = ax.plot(
                K, values, marker="o", ms=4, color=colour, lw=1.6, label=label, **style
            )
            best = self.selection.best(criterion)
            (self.best_[key],) = ax.plot(
                [best.n_experts], [getattr(best, key)], "o", ms=11, mfc="none", mec=colour, mew=1.8
            )

        if scored:
            for place, (key, name) in enumerate(_NAMES.items()):
                style = {"ls": "--"} if key == "icl" else {}
                draw(axes[0], key, key, name, PALETTE[place], **style)
            axes[0].set_ylabel("criterion, lower is better")
            axes[0].legend(frameon=False)
        if expected:
            name = "expected BIC"
            draw(axes[int(scored)], "expected_bic", "expected_bic", name, PALETTE[3])
            axes[int(scored)].set_ylabel(f"{name}, lower is better")
        if bent:
            draw(axes[-1], "cost", "elbow", "$R_c$", PALETTE[2])
            axes[-1].set_yscale("log")
            axes[-1].set_ylabel("$R_c$, nats")
        for ax in axes:
            ax.set_xlabel("number of experts")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        return self
