"""Predictions of y: the density at some x, and the residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, design, sample_rows, to_numpy
from otmoe.model.mixture import MoE
from otmoe.plot.base import (
    GREY,
    Display,
    colours,
    expert_names,
    legend_beside,
    model_of,
    rows_of,
    short,
)
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_TAIL = 0.001  # probability on either side of what is shown


class DensityDisplay(Display):
    """Predictive density of y at some rows of x, with the contribution of each expert.

    One ridge per row; the experts' parts are stacked, so that the outline is the density. Ridges
    are scaled to the same height.

    Parameters
    ----------
    grid : ndarray of shape (G,)
        Values of y; counts and class numbers where y is discrete.
    parts : ndarray of shape (n, G, K)
        pi_k(x) phi_k(y | x).
    labels : sequence of str
        Of the rows.
    ticks : sequence of str, optional
        Names of the values of y, for classes.
    discrete : bool

    Attributes
    ----------
    outlines_ : list
        The line of each density, or its steps.
    ax_, figure_
        What was drawn on.
    """

    def __init__(
        self,
        grid: Floats,
        parts: Floats,
        labels: Sequence[str],
        ticks: Sequence[str] | None = None,
        discrete: bool = False,
    ) -> None:
        self.grid, self.parts, self.labels = grid, parts, list(labels)
        self.ticks, self.discrete = ticks, discrete

    @property
    def density(self) -> Floats:
        """f(y | x) at every row and value, (n, G)."""
        return np.asarray(self.parts.sum(axis=2))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        grid: Any = None,
        labels: Sequence[str] | None = None,
        ax: Any = None,
        **options: Any,
    ) -> DensityDisplay:
        """Draw the density of y at a few rows.

        Parameters
        ----------
        estimator : fitted estimator, Aggregation or MoE
        X : array-like of shape (n, d)
            A few rows.
        grid : array-like of shape (G,), optional
            Values of y; by default those between the outermost 0.1 % quantiles.
        labels : sequence of str, optional
            Names of the rows.
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        model = model_of(estimator)
        if model.experts.responses:
            raise InvalidInput(Error.JOINT_NOT_HERE, what="DensityDisplay")
        X = rows_of(X, model)
        if labels is None:
            labels = [f"row {i}" for i in range(len(X))]
        if len(labels) != len(X):
            raise InvalidInput(
                Error.LENGTHS_DIFFER, name="labels", rows=len(labels), other="X", others=len(X)
            )
        classes = model.experts.classifies
        ticks = None
        if classes:
            coef = model.experts.coef
            values = np.arange(coef.shape[1] if coef.ndim == 3 else 2, dtype=float)
            known = values.astype(int) if model.classes is None else model.classes
            ticks = [str(label) for label in np.asarray(known).tolist()]
        elif grid is not None:
            values = np.sort(np.asarray(grid, dtype=np.float64))
        else:
            values = _values(model, X)
        parts = np.stack([_parts(model, x, values) for x in X])
        discrete = model.experts.discrete or classes
        return cls(values, parts, labels, ticks, discrete).plot(ax=ax, **options)

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> DensityDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        names : sequence of str, optional
            Of the experts.
        """
        n, _, K = self.parts.shape
        ax = self._on(ax, (5.6, 1.2 + 0.8 * n))
        colour = colours(K)
        shown = expert_names(K) if names is None else list(names)
        self.outlines_ = []
        for i in range(n):
            base, scale = n - 1 - i, 0.86 / self.density[i].max()
            tops = base + scale * np.cumsum(self.parts[i], axis=1)  # (G, K)
            for k in range(K):
                floor = tops[:, k - 1] if k else np.full(len(self.grid), float(base))
                label = shown[k] if i == 0 else None
                self._fill(ax, floor, tops[:, k], color=colour[k], alpha=0.55, lw=0, label=label)
            self.outlines_.append(self._outline(ax, tops[:, -1], color="#222222", lw=1.1))
            ax.axhline(base, color=GREY, lw=0.6, zorder=0)
        ax.set_yticks(range(n), short(self.labels[::-1]))
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_ylim(-0.05, n)
        if self.ticks is not None:
            ax.set_xticks(self.grid, short(self.ticks))
        ax.set_xlabel("y")
        legend_beside(ax)
        return self

    @property
    def _edges(self) -> Floats:
        """Where the bars of discrete values begin and end."""
        return np.append(self.grid - 0.5, self.grid[-1] + 0.5)

    def _fill(self, ax: Any, floor: Floats, top: Floats, **style: Any) -> None:
        if self.discrete:
            ax.stairs(top, self._edges, baseline=floor, fill=True, **style)
        else:
            ax.fill_between(self.grid, floor, top, **style)

    def _outline(self, ax: Any, top: Floats, **style: Any) -> Any:
        if self.discrete:
            return ax.stairs(top, self._edges, baseline=None, **style)
        return ax.plot(self.grid, top, **style)[0]


class ResidualDisplay(Display):
    """Residuals of every row from one expert, drawn from the row's posterior.

    If the model is right, residuals in units of the standard deviation are around zero with
    variance one, whatever the fitted value. (The most probable expert would not do: it makes
    residuals too small where experts overlap.)

    Parameters
    ----------
    fitted, residual : ndarray of shape (n,)
        Mean of y under the row's expert; residual in standard deviations.
    expert : ndarray of int of shape (n,)
    n_experts : int

    Attributes
    ----------
    clouds_ : list
        The marks of each expert.
    ax_, figure_
        What was drawn on.
    """

    def __init__(self, fitted: Floats, residual: Floats, expert: Floats, n_experts: int) -> None:
        self.fitted, self.residual, self.expert = fitted, residual, expert
        self.n_experts = n_experts

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        n_rows: int = 3000,
        random_state: int = 0,
        ax: Any = None,
        **options: Any,
    ) -> ResidualDisplay:
        """Draw the residuals of some rows.

        Parameters
        ----------
        estimator : fitted estimator, Aggregation or MoE
            Of numbers or counts.
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
        n_rows : int
            Rows that are drawn.
        random_state : int
        ax : matplotlib Axes, optional
        **options
            Of :meth:`plot`.
        """
        model = model_of(estimator)
        if model.experts.classifies:
            raise InvalidInput(Error.NO_RESIDUALS)
        if model.experts.responses:
            raise InvalidInput(Error.JOINT_NOT_HERE, what="ResidualDisplay")
        X, y = rows_of(X, model), np.asarray(y, dtype=np.float64)
        rng = np.random.default_rng(random_state)
        if len(X) > n_rows:
            index = np.sort(rng.choice(len(X), n_rows, replace=False))
            X, y = X[index], y[index]
        expert = sample_rows(to_numpy(model.responsibilities(X, y)), rng)
        rows = np.arange(len(X))
        fitted = to_numpy(model.expert_mean(X))[rows, expert]
        eta = model.experts.predictor(design(X))
        var = np.broadcast_to(to_numpy(model.experts.response(eta).var), (len(X), model.n_experts))
        seen = model.experts.observe(y)
        root = np.sqrt(np.broadcast_to(seen.trials, (len(X), 1))[:, 0])
        residual = root * (seen.mean[:, 0] - fitted) / np.sqrt(var[rows, expert])
        return cls(fitted, residual, expert, model.n_experts).plot(ax=ax, **options)

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> ResidualDisplay:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        names : sequence of str, optional
            Of the experts.
        """
        ax = self._on(ax, (5.6, 3.4))
        shown = expert_names(self.n_experts) if names is None else list(names)
        for at in (-2, 2):
            ax.axhline(at, color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=0)
        ax.axhline(0, color=GREY, lw=1, zorder=0)
        self.clouds_ = []
        size = 5 if len(self.fitted) > 500 else 12
        for k, colour in enumerate(colours(self.n_experts)):
            mine = self.expert == k
            self.clouds_.append(
                ax.scatter(
                    self.fitted[mine],
                    self.residual[mine],
                    s=size,
                    color=colour,
                    alpha=0.45,
                    lw=0,
                    label=f"{shown[k]}  sd {np.std(self.residual[mine]):.2f}"
                    if np.any(mine)
                    else shown[k],
                )
            )
        ax.set_xlabel("mean of the assigned expert")
        ax.set_ylabel("standardised residual")
        legend_beside(ax, markerscale=2.5)
        return self


def _values(model: MoE, X: Floats) -> Floats:
    """Return values of y that cover all but the tails at every row."""
    low = float(np.min(model.quantile(X, _TAIL)))
    high = float(np.max(model.quantile(X, 1 - _TAIL)))
    if model.experts.discrete:
        return np.arange(low, high + 1)
    margin = 0.03 * (high - low)
    return np.linspace(low - margin, high + margin, 400)


def _parts(model: MoE, x: Floats, values: Floats) -> Floats:
    """Return pi_k(x) phi_k(y | x) at each value of y, (G, K)."""
    Z = design(np.tile(x, (len(values), 1)))
    experts = model.experts
    log = to_numpy(experts.expected_log_prob(experts.predictor(Z), experts.observe(values)))
    base = np.asarray(experts.log_base(values))
    return np.asarray(to_numpy(model.gate.prob(Z)) * np.exp(log + np.atleast_1d(base)[:, None]))
