"""Metrics: errors of predictions, of clusterings and of parameters.

All are plain numbers. Targets and labels may be arrays of any library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn import metrics
from sklearn.metrics.cluster import contingency_matrix

from otmoe.arrays.numerics import Array, Floats, to_numpy
from otmoe.model.divergence import transport_divergence
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.model.target import Target
from otmoe.text.errors import InvalidInput
from otmoe.text.sentences import Error

# -- prediction --------------------------------------------------------------------------------


def relative_prediction_error(y: Any, prediction: Any) -> float:
    """Return the sum of squared errors as a share of the sum of squares of y (maths 10).

    Parameters
    ----------
    y, prediction : array-like of shape (n,)
        The result is NaN if y is zero throughout.

    Examples
    --------
    >>> relative_prediction_error([3.0, 4.0], [3.0, 3.0])
    0.04
    """
    y, prediction = _columns(y=y, prediction=prediction)
    return _ratio(np.sum((y - prediction) ** 2), np.sum(y**2))


def root_mean_squared_error(y: Any, prediction: Any) -> float:
    """Return the root of the mean squared error (maths 10).

    Parameters
    ----------
    y, prediction : array-like of shape (n,)

    Examples
    --------
    >>> root_mean_squared_error([3.0, 4.0, 5.0, 0.0], [3.0, 4.0, 5.0, 2.0])
    1.0
    """
    return float(metrics.root_mean_squared_error(*_columns(y=y, prediction=prediction)))


def mean_absolute_error(y: Any, prediction: Any) -> float:
    """Return the mean absolute error (maths 10).

    Parameters
    ----------
    y, prediction : array-like of shape (n,)

    Examples
    --------
    >>> mean_absolute_error([3.0, 4.0], [3.0, 3.0])
    0.5
    """
    return float(metrics.mean_absolute_error(*_columns(y=y, prediction=prediction)))


def scatter_index(y: Any, prediction: Any) -> float:
    """Return the root mean squared error as a share of the mean of y (maths 10).

    It is meaningful only for responses on a ratio scale, such as counts and durations.

    Parameters
    ----------
    y, prediction : array-like of shape (n,)
        The result is NaN if the mean of y is zero.

    Examples
    --------
    >>> scatter_index([3.0, 5.0], [3.5, 4.5])
    0.125
    """
    return _ratio(root_mean_squared_error(y, prediction), np.mean(np.asarray(to_numpy(y))))


def log_likelihood(model: MoE, X: Array, y: Any) -> float:
    """Return the mean over rows of log f(y | x) (maths 10).

    Parameters
    ----------
    model : MoE
    X : array of shape (n, d)
    y : array-like of shape (n,)
        Labels if the model has `classes`, otherwise class numbers.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data = simulate(1000, n_experts=2, n_features=3, random_state=0)
    >>> round(log_likelihood(data.truth, data.X, data.y), 1)
    -2.0
    """
    codes = Target.of(model).numbers(np.asarray(to_numpy(y)))
    _columns(X=X[:, 0], y=codes if codes.ndim == 1 else codes[:, 0])
    return float(to_numpy(model.log_density(X, codes)).mean())


# -- clustering --------------------------------------------------------------------------------


def adjusted_rand_index(z: Any, labels: Any) -> float:
    """Return the share of pairs of rows that two clusterings agree on, corrected for chance.

    1 for the same clustering up to the names of labels, about 0 for a random one.
    This is :func:`sklearn.metrics.adjusted_rand_score`.

    Parameters
    ----------
    z, labels : array-like of shape (n,)

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    return float(metrics.adjusted_rand_score(*_columns(z=z, labels=labels)))


def clustering_error(z: Any, labels: Any) -> float:
    """Return the share of rows in the wrong cluster, under the best matching (maths 10).

    Clusters are matched one to one; if their numbers differ, unmatched clusters count as wrong.

    Parameters
    ----------
    z, labels : array-like of shape (n,)

    Examples
    --------
    >>> clustering_error([0, 0, 1, 1], [1, 1, 0, 1])
    0.25
    """
    counts = contingency_matrix(*_columns(z=z, labels=labels))
    return float(1 - counts[linear_sum_assignment(counts, maximize=True)].sum() / counts.sum())


# -- parameters --------------------------------------------------------------------------------


def parameter_errors(model: MoE, truth: MoE, X: Array) -> dict[str, float]:
    """Return mean squared errors of the parameters, after aligning the experts (maths 10).

    Parameters
    ----------
    model, truth : MoE
        Of the same family, with the same number of experts.
    X : array of shape (n, d)
        Rows on which experts are compared to match them.

    Returns
    -------
    dict of str to float
        ``gate``, ``coef``, ``var`` (families with a dispersion), and ``total`` over all entries.
        Coefficients of the gate and of classes are centred over experts and over classes, so that
        they do not depend on the reference.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data = simulate(200, n_experts=3, n_features=2, random_state=0)
    >>> errors = parameter_errors(data.truth.take([2, 0, 1]), data.truth, data.X)
    >>> {name: round(error, 10) for name, error in errors.items()}
    {'gate': 0.0, 'coef': 0.0, 'var': 0.0, 'total': 0.0}
    """
    mine, theirs = _parameters(model.aligned_to(truth, X)), _parameters(truth)
    squares = {name: np.square(mine[name] - theirs[name]).ravel() for name in theirs}
    squares["total"] = np.concatenate(list(squares.values()))
    return {name: float(square.mean()) for name, square in squares.items()}


def _parameters(model: MoE) -> dict[str, Floats]:
    """Return the parameters that are compared after aligning the experts."""
    coef = model.experts.coef
    if model.experts.classifies and coef.ndim == 3:  # (K, C, p)
        coef = coef - coef.mean(axis=1, keepdims=True)
    parameters = {"gate": model.gate.centred, "coef": coef}
    if model.experts.dispersion is not None:
        parameters["var"] = model.experts.dispersion
    return parameters


# -- all at once -------------------------------------------------------------------------------


def evaluate(
    model: MoE, X: Array, y: Any, z: Any = None, truth: MoE | None = None
) -> dict[str, float]:
    """Return all metrics of a model on some rows (maths 10).

    Parameters
    ----------
    model : MoE
    X : array of shape (n, d)
        Preferably rows that the model was not fitted to.
    y : array-like of shape (n,), or (n, C) where families take several columns
        Labels if the model has `classes`, otherwise class numbers.
    z : array-like of shape (n,), optional
        The expert that produced each row, if known.
    truth : MoE, optional
        The model that produced the rows, if known.

    Returns
    -------
    dict of str to float
        ``log_likelihood``, mean per row. For numbers and counts ``rpe``, ``rmse``, ``mae``, ``si``;
        for classes ``accuracy``; for several responses those of each, as in ``y0: rmse``. With `z`:
        ``ari`` and ``clustering_error`` of the most probable expert under the gate, without using
        y. With `truth`: ``transport``, T_c(truth, model) with KL costs and, if both have the same
        number of experts, ``mse_gate``, ``mse_coef``, ``mse_var``, ``mse_total``.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data = simulate(500, n_experts=2, n_features=3, random_state=0)
    >>> report = evaluate(data.truth, data.X, data.y, data.z, data.truth)
    >>> round(report["transport"], 9), round(report["mse_total"], 9), round(report["ari"], 2)
    (0.0, 0.0, 0.98)
    """
    report = {"log_likelihood": log_likelihood(model, X, y)}
    prediction = to_numpy(model.predict(X))
    if model.experts.classifies:
        codes = Target.of(model).numbers(np.asarray(to_numpy(y)))
        report["accuracy"] = float(model.experts.scores(codes, prediction)["accuracy"].mean())
    elif model.margins:
        columns = model.experts.split(np.asarray(to_numpy(y)))
        for (name, alone), column in zip(model.margins.items(), columns, strict=True):
            own = evaluate(alone, X, column)
            report |= {f"{name}: {measure}": value for measure, value in own.items()}
    else:
        y = np.asarray(to_numpy(y))
        y = y if y.ndim == 1 else model.experts.observe(y).mean[:, 0]
        report |= {
            "rpe": relative_prediction_error(y, prediction),
            "rmse": root_mean_squared_error(y, prediction),
            "mae": mean_absolute_error(y, prediction),
            "si": scatter_index(y, prediction),
        }
    if z is not None:
        labels = to_numpy(model.gate_prob(X)).argmax(axis=1)
        report |= {
            "ari": adjusted_rand_index(z, labels),
            "clustering_error": clustering_error(z, labels),
        }
    if truth is not None:
        report["transport"] = transport_divergence(truth, model, X)
        if model.n_experts == truth.n_experts and isinstance(model.gate, SoftmaxGate):
            errors = parameter_errors(model, truth, X)
            report |= {f"mse_{name}": error for name, error in errors.items()}
    return report


def _ratio(a: Any, b: Any) -> float:
    return float(a / b) if b else float("nan")


def _columns(**named: Any) -> list[Floats]:
    """Return two columns of the same length with at least one row, or raise an error."""
    arrays = {name: np.asarray(to_numpy(a)) for name, a in named.items()}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise InvalidInput(Error.NOT_A_VECTOR, name=name, shape=array.shape)
    (first, rows), (second, others) = ((name, len(a)) for name, a in arrays.items())
    if rows != others or rows == 0:
        raise InvalidInput(Error.LENGTHS_DIFFER, name=first, rows=rows, other=second, others=others)
    return list(arrays.values())
