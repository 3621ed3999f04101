"""What a column does to the gate's probabilities, averaged over the support points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from otmoe.arrays.numerics import Floats, design, softmax
from otmoe.data.features import FeatureSpec
from otmoe.model.mixture import MoE

_POINTS = 400  # support points that are averaged over
_STEPS = 21  # values of a number


@dataclass(frozen=True)
class GateDependence:
    """Partial dependence of the gate on one column.

    Attributes
    ----------
    first : int
        The column's feature, or the first of its features, from 0.
    values : ndarray of shape (V,), optional
        What a number is set to at every support point; None for a category, which is set to each of
        its levels, the reference first.
    prob : ndarray of shape (V, K)
        Mean probability of each expert there.
    """

    first: int
    values: Floats | None
    prob: Floats


def gate_dependence(
    model: MoE, X: Floats, features: FeatureSpec | None = None
) -> tuple[GateDependence, ...]:
    """Return what each column does to the gate, the others as they are at some points.

    Unlike a curve with the others at their means, the mean of such curves is about rows that there
    are: at the means, a gate may be sure of an expert that few rows have.

    Parameters
    ----------
    model : MoE
    X : ndarray of shape (n, d)
        Support points; 400 at most are used, evenly spaced.
    features : FeatureSpec, optional
        How columns became features; by default each feature is a number.

    Returns
    -------
    tuple of GateDependence
        For the columns that the gate sees; none where there is one expert.
    """
    if model.n_experts == 1 or not len(X):
        return ()
    X = X[np.linspace(0, len(X) - 1, min(len(X), _POINTS)).astype(int)]
    coef, logits = np.asarray(model.gate.coef), model.gate.logits(design(X))
    found = []
    for place, settings in _settings(X, features):
        prob = []
        for setting in settings:
            moved = X.copy()
            moved[:, place] = setting
            if features is not None:
                features.layout.derive(moved)
            at = np.flatnonzero(np.any(moved != X, axis=0) & np.any(coef[:, 1:] != 0, axis=0))
            change = (moved[:, at] - X[:, at]) @ coef[:, 1 + at].T
            prob.append(softmax(logits + change)[0].mean(axis=0))
        if np.any(np.ptp(prob, axis=0) > 0):
            values = settings[:, 0] if len(place) == 1 else None
            found.append(GateDependence(place[0], values, np.array(prob)))
    return tuple(found)


def _settings(X: Floats, features: FeatureSpec | None) -> Iterator[tuple[list[int], Floats]]:
    """Yield the features of each column, and the values that these are set to, (V, features)."""
    columns = [(range(j, j + 1), False) for j in range(X.shape[1])]
    if features is not None:
        place = features.layout.of_columns
        columns = [(place[c.name], c.kind == "category") for c in features.columns]
    for these, category in columns:
        if category and len(these) > 1:
            yield list(these), np.eye(len(these) + 1)[:, 1:]
            continue
        x = X[:, these[0]]
        low, high = np.quantile(x, [0.025, 0.975])
        values = np.linspace(low, high, _STEPS)
        if np.isin(x, (0.0, 1.0)).all():
            values = np.array([0.0, 1.0])
        yield [these[0]], values[:, None]
