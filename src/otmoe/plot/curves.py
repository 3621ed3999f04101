"""Curves of splines with their bands, a colour for each expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from otmoe.data.features import FeatureSpec
from otmoe.data.terms import Spline
from otmoe.evaluation.curves import Curve, curves_of
from otmoe.inference import Inference
from otmoe.plot.base import GREY, Display, colours, legend_beside, short


class CurveDisplay(Display):
    """Effects of numbers on the predictor of each expert, as splines with pointwise intervals.

    A curve is relative to the middle knot, where it is zero. Ticks at the bottom are the knots;
    beyond the outer ones the curve is straight.

    Parameters
    ----------
    curves : sequence of sequence of Curve
        By column.
    knots : sequence of sequence of float
        By column.

    Attributes
    ----------
    lines_, bands_ : dict
        By column, expert and label.
    axes_, figure_
        What was drawn on.
    """

    def __init__(self, curves: Sequence[Sequence[Curve]], knots: Sequence[Sequence[float]]) -> None:
        self.curves, self.knots = list(map(list, curves)), list(map(list, knots))

    @classmethod
    def from_inference(
        cls,
        inference: Inference,
        features: FeatureSpec,
        columns: Sequence[str] | None = None,
        *,
        block: Literal["expert", "gate"] = "expert",
        level: float = 0.95,
        ax: Any = None,
        **options: Any,
    ) -> CurveDisplay:
        """Draw the curves of a model at its maximum.

        Parameters
        ----------
        inference : Inference
        features : FeatureSpec
            Of the model: ``est.features_``, or that of its file.
        columns : sequence of str, optional
            By default all that have a spline.
        block : {"expert", "gate"}
        level : float in (0, 1)
            Of the bands.
        ax : sequence of matplotlib Axes, optional
            One per column.
        **options
            Of :meth:`plot`.
        """
        splines = {term.column: term for term in features.terms if isinstance(term, Spline)}
        chosen = list(splines) if columns is None else list(columns)
        curves = [curves_of(inference, features, c, block=block, level=level) for c in chosen]
        return cls(curves, [splines[c].knots for c in chosen]).plot(ax=ax, **options)

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> CurveDisplay:
        """Draw it.

        Parameters
        ----------
        ax : sequence of matplotlib Axes, optional
            One per column.
        names : sequence of str, optional
            Of the experts.
        """
        axes = self._on_several(ax, len(self.curves), (3.2, 2.5))
        self.lines_: dict[Any, Any] = {}
        self.bands_: dict[Any, Any] = {}
        titles = short([curves[0].column for curves in self.curves])
        for ax, curves, knots, title in zip(axes, self.curves, self.knots, titles, strict=True):
            shades = colours(1 + max(curve.expert for curve in curves))
            ax.axhline(0, color=GREY, lw=0.8)
            labels = list(dict.fromkeys(curve.label for curve in curves))
            for curve in curves:
                key, shade = (curve.column, curve.expert, curve.label), shades[curve.expert]
                who = f"expert {curve.expert}" if names is None else names[curve.expert]
                who += "" if curve.label is None else f", {curve.label}"
                dash = ("-", "--", ":", "-.")[labels.index(curve.label) % 4]
                (self.lines_[key],) = ax.plot(
                    curve.x, curve.effect, color=shade, lw=1.8, ls=dash, label=who
                )
                self.bands_[key] = ax.fill_between(
                    curve.x, curve.low, curve.high, color=shade, alpha=0.2, lw=0
                )
            ax.plot(knots, [0] * len(knots), "|", color=GREY, transform=ax.get_xaxis_transform())
            ax.set_xlabel(title)
            ax.margins(x=0)
        axes[0].set_ylabel("effect on the predictor")
        legend_beside(axes[-1])
        return self
