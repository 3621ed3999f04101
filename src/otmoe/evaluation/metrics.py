"""How good a model is: errors of prediction, of clustering, of parameters.

Everything comes back as a plain number. Targets and labels may be arrays of any library.
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
        NaN comes back if y is zero throughout.

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

    It has a meaning only for responses whose zero has one, such as counts and durations.

    Parameters
    ----------
    y, prediction : array-like of shape (n,)
        NaN comes back if the mean of y is zero.

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
        Labels where the model has `classes`, class numbers where it has none.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data = simulate(1000, n_experts=2, n_features=3, random_state=0)
    >>> round(log_likelihood(data.truth, data.X, data.y), 1)
    -2.0
    """
    codes = Target.of(model).numbers(np.asarray(to_numpy(y)))
    _columns(X=X[:, 0], y=codes)
    return float(to_numpy(model.log_density(X, codes)).mean())


# -- clustering --------------------------------------------------------------------------------


def adjusted_rand_index(z: Any, labels: Any) -> float:
    """Return the share of pairs of rows that two clusterings agree on, corrected for chance.

    1 for the same clustering whatever the labels are called, about 0 for one drawn at random.
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
    """Return the share of rows in the wrong cluster, under the kindest naming (maths 10).

    Clusters are matched one to one; those without a partner, if their numbers differ, are wrong.

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
    """Return mean squared errors of the parameters of a model, its experts aligned (maths 10).

    Parameters
    ----------
    model, truth : MoE
        Of one family, with the same number of experts.
    X : array of shape (n, d)
        Rows over which experts are compared in order to pair them.

    Returns
    -------
    dict of str to float
        ``gate``, ``coef``, ``var`` (Gaussian experts only), and ``total`` over all their entries
        together. Coefficients of the gate, and of classes, are those less their mean over experts,
        or over classes: they do not depend on the reference.

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
    """Return the parameters that can be compared once experts are aligned."""
    coef = model.experts.coef
    if coef.ndim == 3:  # (K, C, p)
        coef = coef - coef.mean(axis=1, keepdims=True)
    parameters = {"gate": model.gate.centred, "coef": coef}
    if model.experts.dispersion is not None:
        parameters["var"] = model.experts.dispersion
    return parameters


# -- all at once -------------------------------------------------------------------------------


def evaluate(
    model: MoE, X: Array, y: Any, z: Any = None, truth: MoE | None = None
) -> dict[str, float]:
    """Return all that can be said about a model on some rows (maths 10).

    Parameters
    ----------
    model : MoE
    X : array of shape (n, d)
        Best rows that the model was not fitted to.
    y : array-like of shape (n,)
        Labels where the model has `classes`, class numbers where it has none.
    z : array-like of shape (n,), optional
        The expert that produced each row, where it is known.
    truth : MoE, optional
        The model that produced the rows, where it is known.

    Returns
    -------
    dict of str to float
        ``log_likelihood``, mean per row. For numbers and counts ``rpe``, ``rmse``, ``mae``, ``si``;
        for classes ``accuracy``. With `z`: ``ari``, ``clustering_error``, of the expert that the
        gate finds most probable at x, y unseen. With `truth`: ``transport``, T_c(truth, model)
        with KL costs, and, if the two have equally many experts, ``mse_gate``, ``mse_coef``,
        ``mse_var``, ``mse_total``.

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
    else:
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
    """Return two columns of the same length, at least one row; refuse others by name."""
    arrays = {name: np.asarray(to_numpy(a)) for name, a in named.items()}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise InvalidInput(Error.NOT_A_VECTOR, name=name, shape=array.shape)
    (first, rows), (second, others) = ((name, len(a)) for name, a in arrays.items())
    if rows != others or rows == 0:
        raise InvalidInput(Error.LENGTHS_DIFFER, name=first, rows=rows, other=second, others=others)
    return list(arrays.values())
