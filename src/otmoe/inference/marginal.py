"""Effects on the scale of the response: ratios of odds and rates, average marginal effects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from otmoe.arrays.numerics import Array, Floats, design, like, row_blocks
from otmoe.inference.covariance import Covariance
from otmoe.inference.estimates import Estimate, estimates
from otmoe.inference.parameters import Parameter, mean_gradient
from otmoe.inference.tables import Estimates
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

Change = Callable[[Floats], tuple[Floats, Floats, Floats]]
"""From some rows (n, d): what they are before and after a change, (n, d), and its size, (n,)."""


_STEP = 1e-4  # of a derivative, in standard deviations of the variable


class Variables(Protocol):
    """What features were made of; :class:`otmoe.data.variables.Variables` says what it does."""

    def rows(self, X: Any) -> Any:
        """Return the features of a table, (n, d)."""

    def changes(self, X: Floats) -> Iterator[tuple[str, Change]]:
        """Return how rows change with each variable."""


def ratios(rows: Estimates, model: MoE, block: Literal["expert", "gate"]) -> Estimates:
    """Return coefficients as ratios: exponentials, with intervals from the scale of the logarithm.

    Parameters
    ----------
    rows : Estimates
    model : MoE
        That they are about.
    block : {"expert", "gate"}
    """
    if block not in ("expert", "gate"):
        choices = ["expert", "gate"]
        raise InvalidInput(Error.NOT_ONE_OF, name="block", value=block, choices=choices)
    if block == "expert" and model.experts.responses:
        raise InvalidInput(Error.JOINT_NOT_HERE, what="ratios()")
    if block == "expert" and model.experts.has_scale:
        raise InvalidInput(Error.NO_RATIOS, family=model.experts.family)
    found: list[Estimate] = []
    for row in rows:
        if row.block == block and row.term != "intercept":
            low, value, high = np.exp([row.low, row.estimate, row.high]).tolist()
            found.append(replace(row, estimate=value, se=value * row.se, low=low, high=high))
    return Estimates(found, rows.level, _called(model, block), rows.df)


def _called(model: MoE, block: str) -> str:
    """Return what the exponential of a coefficient is called."""
    experts = model.experts
    if block == "gate" or experts.classifies or np.isfinite(experts.highest):
        return "odds ratio"
    return "rate ratio" if experts.discrete else "ratio"


def step_of(x: Floats) -> float | None:
    """Return the step of a derivative in a variable with values (n,); None if it is 0 or 1."""
    return None if np.isin(x, (0.0, 1.0)).all() else _STEP * float(x.std() or 1.0)


def ends_of(x: Floats, step: float | None) -> tuple[Floats, Floats]:
    """Return the two values, (n,) each, between which a variable changes."""
    return (np.zeros_like(x), np.ones_like(x)) if step is None else (x - step, x + step)


def feature_changes(
    X: Floats, names: Iterable[str], but: Collection[str] = ()
) -> Iterator[tuple[str, Change]]:
    """Return how rows (n, d) change with each feature but for some, the others held fixed."""
    for j, name in enumerate(names):
        if name not in but:
            yield name, partial(_moved, j, step_of(X[:, j]))


def _moved(j: int, step: float | None, X: Floats) -> tuple[Floats, Floats, Floats]:
    before, after = X.copy(), X.copy()
    before[:, j], after[:, j] = ends_of(X[:, j], step)
    return before, after, after[:, j] - before[:, j]


def marginal_effects(
    model: MoE,
    covariance: Covariance,
    X: Floats,
    changes: Iterable[tuple[str, Change]],
    level: float,
    offset: Array | None,
    df: int | None = None,
) -> Estimates:
    """Return the average marginal effects of variables; see :meth:`Inference.marginal_effects`.

    An effect is the mean difference of E(y | x) between two points, per unit of their distance; so
    is its gradient in the parameters, by which the delta method gives the standard error.

    Parameters
    ----------
    model : MoE
    covariance : Covariance
    X : ndarray of shape (n, d)
    changes : iterable of (str, Change)
        The points, by variable.
    level : float
    offset : array of shape (n,), optional
    df : int, optional
        Of the standard errors, where rows are in groups.
    """
    names, values, gradients = [], [], []
    for name, change in changes:
        value, gradient = _difference(model, X, change, offset)
        names.append(name)
        values.append(value)
        gradients.append(gradient)
    value, gradient = np.array(values), np.array(gradients)  # (v, M), (v, M, P)
    labels: list[object] = [None]
    responses = [f"{name}: " for name in model.experts.responses] or [""]
    if value.shape[1] > 1 and not model.experts.responses:
        known = model.classes
        labels = list(range(value.shape[1])) if known is None else np.asarray(known).tolist()
    elif model.classes is not None:
        labels = np.asarray(model.classes).tolist()[1:]
    about = [
        Parameter("marginal", None, None, label, before + name)
        for name in names
        for before in responses
        for label in labels
    ]
    se = covariance.standard_errors(gradient.reshape(-1, model.n_parameters))
    return Estimates(estimates(about, value.ravel(), se, level, df), level, "dy/dx", df)


def _difference(
    model: MoE, X: Floats, change: Change, offset: Array | None
) -> tuple[Floats, Floats]:
    """Return the mean change of the mean (M,), per unit, and its gradient (M, P)."""
    value, gradient, n = np.zeros(1), np.zeros((1, model.n_parameters)), 0
    for some in row_blocks(len(X), model.n_parameters):
        low, high, size = change(X[some])
        per = np.divide(1.0, size, out=np.zeros_like(size), where=size != 0)
        n += int(np.sum(size != 0))
        known = None if offset is None else like(offset[some], low)
        for rows, sign in ((high, 1.0), (low, -1.0)):
            mean, slope = mean_gradient(model, design(rows), known)
            value = value + sign * per @ mean
            gradient = gradient + sign * np.einsum("n,nmp->mp", per, slope)
    return value / n, gradient / n
