"""What the displays share: matplotlib when it is there, colours, where to draw, what to draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput, InvalidType, MissingPackage
from otmoe.text.sentences import Error

PALETTE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#B7A800",
    "#555555",
)
"""Colours that most colour-blind people tell apart (after Okabe and Ito)."""

GREY = "#9A9A9A"
_NARROW = 4.2  # inches
_LONGEST = 22  # characters of a name

N_COLUMNS = 3
"""Axes in a row."""


class Display:
    """A plot and its numbers, in the style of scikit-learn.

    After `plot`, `ax_` (or `axes_`, where there are several) and `figure_` are what was drawn on.
    """

    ax_: Any
    axes_: Any
    figure_: Any

    def _on(self, ax: Any, size: tuple[float, float]) -> Any:
        """Keep and return the axes to draw on, new ones unless given."""
        if ax is None:
            _, ax = pyplot().subplots(figsize=size, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        return ax

    def _on_several(
        self, axes: Any, n: int, size: tuple[float, float], **options: Any
    ) -> list[Any]:
        """Keep and return n axes, new ones of the given size each unless given."""
        if axes is None:
            columns = min(n, N_COLUMNS)
            rows = -(-n // columns)
            figure, grid = pyplot().subplots(
                rows,
                columns,
                figsize=(size[0] * columns, size[1] * rows),
                layout="constrained",
                squeeze=False,
                **options,
            )
            for spare in grid.ravel()[n:]:
                spare.set_axis_off()
            axes = grid.ravel()[:n]
        axes = list(np.ravel(np.asarray(axes, dtype=object)))
        if len(axes) != n:
            raise InvalidInput(Error.AXES, axes=len(axes), wanted=n)
        self.axes_, self.figure_ = np.array(axes, dtype=object), axes[0].figure
        self.ax_ = axes[0]
        for ax in axes:
            for side in ("top", "right"):
                ax.spines[side].set_visible(False)
        return axes


def pyplot() -> Any:
    """Return matplotlib's pyplot, or raise an error that says how to install it."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise MissingPackage(Error.NO_MATPLOTLIB, error=error) from error
    return plt


def colours(n: int) -> list[Any]:
    """Return n colours; those of a perceptually even map where there are many."""
    if n <= len(PALETTE):
        return list(PALETTE[:n])
    return list(pyplot().get_cmap("viridis")(np.linspace(0, 0.95, n)))


def model_of(source: Any) -> MoE:
    """Return the model in an estimator, an aggregation, a message, or the model itself."""
    for name in ("model_", "model"):
        found = getattr(source, name, None)
        if isinstance(found, MoE):
            return found
    if isinstance(source, MoE):
        return source
    raise InvalidType(Error.NO_MODEL_TO_PLOT, kind=type(source).__name__)


def rows_of(X: Any, model: MoE) -> Floats:
    """Return rows of covariates as an array (n, d), columns by name if they have names."""
    names = getattr(X, "columns", None)
    if names is not None and not callable(names) and model.feature_names is not None:
        X = X[list(model.feature_names)]
    X = np.asarray(to_numpy(X) if hasattr(X, "__array_namespace__") else X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != model.n_features:
        raise InvalidInput(Error.X_SHAPE, shape=X.shape, features=model.n_features)
    return X


def column_of(feature: Any, model: MoE) -> int:
    """Return the number of a feature given by name or number."""
    names = model.terms[1:]
    if isinstance(feature, str):
        if feature in names:
            return names.index(feature)
        raise InvalidInput(Error.FEATURE_NAME, feature=feature, features=list(names))
    if not 0 <= int(feature) < len(names):
        raise InvalidInput(Error.FEATURE_INDEX, feature=feature, last=len(names) - 1)
    return int(feature)


def short(names: Iterable[Any]) -> list[str]:
    """Return names that fit beside an axis; those that would look alike stay whole.

    Examples
    --------
    >>> short(["age", "systolic blood pressure at admission"])
    ['age', 'systolic blood…mission']
    """
    whole = [str(name) for name in names]
    end = _LONGEST - _LONGEST // 3 - 1  # more of the beginning
    cut = [n if len(n) <= _LONGEST else f"{n[:end]}…{n[end + 1 - _LONGEST :]}" for n in whole]
    return [c if cut.count(c) == 1 else n for c, n in zip(cut, whole, strict=True)]


def expert_names(n_experts: int) -> list[str]:
    """Return how experts are called, as in tables: by number, from 0."""
    return [f"expert {k}" for k in range(n_experts)]


def legend_beside(ax: Any, labels: Sequence[Any] | None = None, **options: Any) -> None:
    """Put the legend to the right of the axes, where it hides nothing; above them if narrow."""
    if labels is not None:
        options["handles"] = list(labels)
    if ax.figure.get_figwidth() < _NARROW:
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2}
        place |= {"fontsize": "small", "handletextpad": 0.3, "columnspacing": 1.0}
    else:
        place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    ax.legend(borderaxespad=0.0, frameon=False, **place, **options)
