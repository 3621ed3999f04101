"""Weights of models of the same rows: the mixture that predicts held-out rows best (maths 18)."""

from __future__ import annotations

import numpy as np

from otmoe.arrays.numerics import Floats

_TOL, _MAX_ITER = 1e-7, 1000  # mean log density, and steps
_NONE = 1e-4  # a weight that counts as none


def stacking_weights(log_density: Floats, weight: Floats | None = None) -> Floats:
    """Return the weights of the mixture of models with the highest log density, (J,).

    The log density is concave in the weights; they are found by EM from equal ones. A model that
    says impossible things of some rows (minus infinity) has a weight below one, not none.

    Parameters
    ----------
    log_density : ndarray of shape (J, n)
        Of rows that the models have not seen.
    weight : ndarray of shape (n,), optional
        Of the rows.

    Examples
    --------
    >>> sure, careful = np.log([0.8, 0.1, 0.8]), np.log([0.5, 0.5, 0.5])
    >>> stacking_weights(np.array([sure, careful])).round(2).tolist()
    [0.28, 0.72]
    """
    J, n = log_density.shape
    found = np.full(J, 1 / J)
    share = np.full(n, 1.0) if weight is None else weight
    top = log_density.max(axis=0)
    some = (top > -np.inf) & (share > 0)  # of a row that no model can explain, nothing is learned
    if not np.any(some):
        return found
    share, top = share[some] / share[some].sum(), top[some]
    density = np.exp(log_density[:, some] - top)
    before = -np.inf
    for _ in range(_MAX_ITER):
        mixed = found @ density
        value = float(share @ np.log(mixed))
        if value - before < _TOL:
            break
        before = value
        found = found * (density @ (share / mixed))
    found = np.where(found < _NONE, 0.0, found)
    return np.asarray(found / found.sum())
