"""Effects on the scale of the response: ratios of odds and rates, average marginal effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from otmoe.arrays.numerics import Array, Floats, design, like, row_blocks, to_numpy
from otmoe.inference.covariance import Covariance
from otmoe.inference.estimates import Estimate, estimates
from otmoe.inference.parameters import Parameter, mean_gradient
from otmoe.model.mixture import MoE
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

_STEP = 1e-4  # of a derivative, in standard deviations of the feature


def ratios(
    rows: Sequence[Estimate], model: MoE, block: Literal["expert", "gate"]
) -> list[Estimate]:
    """Return coefficients as ratios: exponentials, with intervals from the scale of the logarithm.

    Parameters
    ----------
    rows : sequence of Estimate
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
    found = []
    for row in rows:
        if row.block == block and row.term != "intercept":
            low, value, high = np.exp([row.low, row.estimate, row.high]).tolist()
            found.append(replace(row, estimate=value, se=value * row.se, low=low, high=high))
    return found


def marginal_effects(
    model: MoE, covariance: Covariance, X: Array, level: float, offset: Array | None
) -> tuple[Estimate, ...]:
    """Return the average marginal effects of the features; see :meth:`Inference.marginal_effects`.

    A derivative is a central difference; so is its gradient in the parameters, by which the delta
    method gives the standard error. The points of a feature that is 0 or 1 are these two.
    """
    if X.ndim != 2 or X.shape[1] != model.n_features:
        raise InvalidInput(Error.X_SHAPE, shape=tuple(X.shape), features=model.n_features)
    rows = np.asarray(to_numpy(X), np.float64)
    labels: list[object] = [None]
    means = []
    for j in range(model.n_features):
        x = rows[:, j]
        if np.isin(x, (0.0, 1.0)).all():
            low, high = np.zeros(len(x)), np.ones(len(x))
        else:
            step = _STEP * (x.std() or 1.0)
            low, high = x - step, x + step
        means.append(_difference(model, rows, j, low, high, offset))
    value = np.array([mean for mean, _ in means])  # (d, M)
    gradient = np.array([slope for _, slope in means])  # (d, M, P)
    responses = [f"{name}: " for name in model.experts.responses] or [""]
    if value.shape[1] > 1 and not model.experts.responses:
        known = model.classes
        labels = list(range(value.shape[1])) if known is None else np.asarray(known).tolist()
    elif model.classes is not None:
        labels = np.asarray(model.classes).tolist()[1:]
    about = [
        Parameter("marginal", None, None, label, before + term)
        for term in model.terms[1:]
        for before in responses
        for label in labels
    ]
    se = covariance.standard_errors(gradient.reshape(-1, model.n_parameters))
    return estimates(about, value.ravel(), se, level)


def _difference(
    model: MoE, rows: Floats, j: int, low: Floats, high: Floats, offset: Array | None
) -> tuple[Floats, Floats]:
    """Return the mean slope (M,) of the mean in a feature, and its gradient (M, P)."""
    value, gradient = np.zeros(1), np.zeros((1, model.n_parameters))
    for some in row_blocks(len(rows), model.n_parameters):
        for x, sign in ((high, 1.0), (low, -1.0)):
            part = rows[some].copy()
            part[:, j] = x[some]
            known = None if offset is None else like(offset[some], part)
            mean, slope = mean_gradient(model, design(part), known)
            per = sign / (high - low)[some] / len(rows)
            value = value + per @ mean
            gradient = gradient + np.einsum("n,nmp->mp", per, slope)
    return value, gradient
