"""Models merged by robust methods, for comparison with the merged model (maths 20)."""

from __future__ import annotations

from functools import partial

import numpy as np

from otmoe.aggregation.choice import expected_losses
from otmoe.aggregation.contribution import Alternative
from otmoe.aggregation.problem import Problem
from otmoe.aggregation.robust import ROBUST, geometric_median, votes
from otmoe.arrays.numerics import Floats
from otmoe.text.errors import InvalidInput

# Bounds of time: with more free parameters they would take seconds.
_MOST_PARAMETERS, _MOST_FOR_DENSITIES = 200, 80
_LEAST_SITES = 3  # of which one can be outvoted
_COVARIATES = 1000  # at which densities are merged: enough to compare, in a tenth of the time


def alternatives(problem: Problem, method: str, lost: Floats) -> tuple[Alternative, ...]:
    """Return the expected loss of a merged model, then those of the robust methods.

    Methods that refuse these messages are left out, and for large models slow ones too.

    Parameters
    ----------
    problem : Problem
    method : str
        By which the model was merged.
    lost : ndarray of shape (U,)
        Nats per row that each distinct model is expected to lose to it.
    """
    if len(problem.models) < _LEAST_SITES or np.all(np.isnan(lost)):
        return ()
    losses = {method: lost}
    rng = np.random.default_rng(0)
    quick = ROBUST | {"geometric_median": partial(geometric_median, covariates=_COVARIATES)}
    for name in [name for name in ROBUST if name != method]:
        most = _MOST_FOR_DENSITIES if name == "geometric_median" else _MOST_PARAMETERS
        if problem.n_parameters > most:
            continue
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                losses[name] = expected_losses(problem, quick[name](problem, rng).model)
        except (InvalidInput, ArithmeticError, np.linalg.LinAlgError):
            continue
    one_of_each = votes(problem)[0]
    return tuple(
        Alternative(name, problem.mean(found), float(np.nanmedian(found[one_of_each])))
        for name, found in losses.items()
        if np.all(np.isfinite(found[one_of_each]) | np.isnan(lost[one_of_each]))
    )
