"""Effects of features on the gate: one at a time, and two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.model.mixture import MoE
from otmoe.plot.base import (
    N_COLUMNS,
    Display,
    colours,
    column_of,
    expert_names,
    legend_beside,
    model_of,
    rows_of,
    short,
)
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_ROWS = 500  # rows over which effects are averaged
_ENDS = (1, 99)  # percentiles between which a feature is varied


class GateEffectDisplay(Display):
    """Probability of each expert as one feature varies, averaged over the other features.

    This is partial dependence: every row keeps its other features and takes the given value, and
    the gate's probabilities are averaged over rows.

    Parameters
    ----------
    features : sequence of str
    grids : sequence of ndarray of shape (G,)
        Values of each feature.
    prob : sequence of ndarray of shape (G, K)
        Probabilities at these values.

    Attributes
    ----------
    lines_ : list of lists
        Lines by feature and expert.
    axes_, figure_
        What was drawn on.
    """

    def __init__(
        self, features: Sequence[str], grids: Sequence[Floats], prob: Sequence[Floats]
    ) -> None:
        self.features, self.grids, self.prob = list(features), list(grids), list(prob)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        features: Sequence[Any] | None = None,
        *,
        others: str = "average",
        n_features: int = 6,
        n_grid: int = 60,
        random_state: int = 0,
        ax: Any = None,
        **options: Any,
    ) -> GateEffectDisplay:
        """Draw the effects of features on the gate.

        Parameters
        ----------
        estimator : fitted estimator, Aggregation or MoE
        X : array-like of shape (n, d)
            Rows over which to average; 500 of them are drawn. An aggregation has its `support`.
        features : sequence of str or int, optional
            By default the `n_features` that change the probabilities most.
        others : {"average", "mean"}
            Average over the rows, or hold the other features at their means.
        n_features, n_grid, random_state : int
        ax : sequence of matplotlib Axes, optional
            One per feature.
        **options
            Of :meth:`plot`.
        """
        if others not in ("average", "mean"):
            raise InvalidInput(
                Error.NOT_ONE_OF, name="others", value=others, choices=["average", "mean"]
            )
        model = model_of(estimator)
        X = rows_of(X, model)
        base = _some(X, random_state) if others == "average" else X.mean(axis=0, keepdims=True)
        spec = getattr(estimator, "features_", None)
        n_own = model.n_features if spec is None else spec.layout.n_base
        columns = range(n_own) if features is None else features
        columns = [column_of(feature, model) for feature in columns]
        grids = [_grid(X[:, j], n_grid) for j in columns]
        prob = [_effect(model, base, j, grid, spec) for j, grid in zip(columns, grids, strict=True)]
        if features is None:
            moved = [np.ptp(p, axis=0).max() for p in prob]
            order = np.argsort(-np.array(moved), kind="stable")[:n_features]
            columns, grids, prob = ([part[i] for i in order] for part in (columns, grids, prob))
        names = [model.terms[j + 1] for j in columns]
        return cls(names, grids, prob).plot(ax=ax, **options)

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> GateEffectDisplay:
        """Draw it.

        Parameters
        ----------
        ax : sequence of matplotlib Axes, optional
            One per feature.
        names : sequence of str, optional
            Of the experts.
        """
        axes = self._on_several(ax, len(self.features), (2.6, 2.3), sharey=True)
        K = self.prob[0].shape[1]
        shown = expert_names(K) if names is None else list(names)
        self.lines_ = []
        for place, (ax, name) in enumerate(zip(axes, short(self.features), strict=True)):
            lines = [
                ax.plot(self.grids[place], self.prob[place][:, k], color=c, lw=1.8, label=shown[k])
                for k, c in enumerate(colours(K))
            ]
            self.lines_.append([line for (line,) in lines])
            ax.set_ylim(-0.02, 1.02)
            ax.set_xlabel(name)
            ax.margins(x=0)
        columns = min(len(axes), N_COLUMNS)
        for ax in axes[::columns]:
            ax.set_ylabel("gate probability")
        legend_beside(axes[columns - 1])
        return self


class GateRegionDisplay(Display):
    """Regions of two features in which each expert is the most probable.

    The colour is the expert's, deeper where its probability is higher; the other features are at
    their means.

    Parameters
    ----------
    features : pair of str
    grids : pair of ndarray of shape (G,)
    prob : ndarray of shape (G, G, K)
        Probabilities by value of the second and of the first feature.

    Attributes
    ----------
    image_ : matplotlib image
    ax_, figure_
        What was drawn on.
    """

    def __init__(
        self, features: tuple[str, str], grids: tuple[Floats, Floats], prob: Floats
    ) -> None:
        self.features, self.grids, self.prob = features, grids, prob

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        features: tuple[Any, Any],
        *,
        n_grid: int = 120,
        ax: Any = None,
        **options: Any,
    ) -> GateRegionDisplay:
        """Draw the regions of two features.

        Parameters
        ----------
        estimator : fitted estimator, Aggregation or MoE
        X : array-like of shape (n, d)
            Rows that give the range of the two features and the means of the others.
        features : pair of str or int
        n_grid : int
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        if len(features) != 2:
            raise InvalidInput(Error.TWO_FEATURES, value=features)
        model = model_of(estimator)
        X = rows_of(X, model)
        i, j = (column_of(feature, model) for feature in features)
        grids = tuple(_grid(X[:, c], n_grid) for c in (i, j))
        at = np.tile(X.mean(axis=0), (n_grid * n_grid, 1))
        at[:, i], at[:, j] = (grid.ravel() for grid in np.meshgrid(*grids))
        if (spec := getattr(estimator, "features_", None)) is not None:
            spec.layout.derive(at)
        prob = to_numpy(model.gate_prob(at)).reshape(n_grid, n_grid, -1)
        names = (model.terms[i + 1], model.terms[j + 1])
        return cls(names, (grids[0], grids[1]), prob).plot(ax=ax, **options)

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> GateRegionDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        names : sequence of str, optional
            Of the experts.
        """
        from matplotlib.colors import to_rgb
        from matplotlib.patches import Patch

        ax = self._on(ax, (4.6, 3.4))
        K = self.prob.shape[2]
        rgb = np.array([to_rgb(c) for c in colours(K)])
        best, sure = self.prob.argmax(axis=2), self.prob.max(axis=2)
        depth = 0.25 + 0.75 * (sure - 1 / K) / (1 - 1 / K) if K > 1 else np.ones_like(sure)
        shade = 1 - (0.8 * depth)[:, :, None] * (1 - rgb[best])
        (x, y) = self.grids
        self.image_ = ax.imshow(
            shade, origin="lower", aspect="auto", extent=(x[0], x[-1], y[0], y[-1])
        )
        for k in np.unique(best) if len(np.unique(best)) > 1 else ():
            rival = np.delete(self.prob, k, axis=2).max(axis=2)
            lead = np.log(self.prob[:, :, k] + 1e-300) - np.log(rival + 1e-300)
            ax.contour(x, y, lead, [0.0], colors="white", linewidths=0.9)
        across, up = short(self.features)
        ax.set_xlabel(across)
        ax.set_ylabel(up)
        shown = expert_names(K) if names is None else list(names)
        legend_beside(ax, [Patch(color=rgb[k], label=shown[k]) for k in range(K)])
        return self


def _grid(values: Floats, n: int) -> Floats:
    low, high = np.percentile(values, _ENDS)
    return np.linspace(low, high, n)


def _some(X: Floats, random_state: int) -> Floats:
    if len(X) <= _ROWS:
        return X
    index = np.random.default_rng(random_state).choice(len(X), _ROWS, replace=False)
    return X[np.sort(index)]


def _effect(
    model: MoE, base: Floats, column: int, grid: Floats, spec: FeatureSpec | None
) -> Floats:
    """Return the gate's probabilities at each value of a feature, averaged over rows, (G, K).

    Features that are computed from it, such as those of a spline, move with it.
    """
    at = np.repeat(base[None, :, :], len(grid), axis=0)
    at[:, :, column] = grid[:, None]
    at = at.reshape(-1, base.shape[1])
    if spec is not None and column < spec.layout.n_base:
        spec.layout.derive(at)
    prob = to_numpy(model.gate_prob(at))
    return np.asarray(prob.reshape(len(grid), len(base), -1).mean(axis=1))
