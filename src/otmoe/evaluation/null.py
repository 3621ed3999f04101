"""The null model of rows with an offset: an intercept beside it, and no covariates (maths 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.evaluation.values import Values
from otmoe.model.experts import FAMILIES, LogisticExperts


def offset_values(kind: Any, y: Floats, offset: Floats, weight: Floats) -> Values:
    """Return what the null model needs to know of some rows.

    Parameters
    ----------
    kind : type of Experts
    y : ndarray of shape (n,)
        Numbers, counts, class numbers or shares of trials.
    offset, weight : ndarray of shape (n,)
        The weight of a share counts its trials.
    """
    if kind.has_scale:
        return Values.of(y - offset, weight)  # which are all that such a model depends on
    return Values.of(y, weight, offset=offset)


def null_with_offset(
    family: str, values: Values, means: Mapping[str, float], variance: float
) -> tuple[dict[str, float], Floats]:
    """Return the measures of the null model, and its means at the values (B,).

    Parameters
    ----------
    family : str
    values : Values
        From :func:`offset_values`.
    means : mapping of float
        Means of the scores of the rows.
    variance : float
        Of y.
    """
    kind, share = FAMILIES[family], values.weight / values.weight.sum()
    if kind.has_scale:
        center = float(share @ values.y)
        spread = float(share @ (values.y - center) ** 2)
        if kind.null_by_values:
            log_prob = kind.best_constant(values.y, values.weight)
        else:
            log_prob = kind.null_log_prob(center, spread, means)
        found = {"log_likelihood": log_prob + means["base"], "rmse": float(np.sqrt(spread))}
        return found | {"r2": 1 - spread / variance}, np.full(len(share), center)
    trials = means.get("trials")
    expert: Any = (kind if trials is None else LogisticExperts).blank(1, 1)
    one, y = np.ones((len(share), 1)), values.y
    if np.isfinite(expert.highest):
        start = np.log(share @ y / (share @ (1 - y))) - share @ values.offset
    else:
        start = np.log(share @ y / (share @ np.exp(values.offset)))
    expert, response = replace(expert, coef=np.full((1, 1), start)), expert.observe(y)
    expert = expert.fit(one, response, share[:, None], offset=values.offset)
    eta = expert.predictor(one, values.offset)
    mean = np.asarray(expert.response(eta).mean)[:, 0]
    log_prob = float(share @ np.asarray(expert.expected_log_prob(eta, response))[:, 0])
    if trials is not None:
        deviance = 2 * (means["saturated"] - trials * log_prob)
        return {"log_likelihood": trials * log_prob + means["base"], "deviance": deviance}, mean
    scores = {name: float(share @ each) for name, each in expert.scores(y, mean).items()}
    found = {"log_likelihood": log_prob + means["base"]}
    if "squared" in scores:
        found |= {"rmse": float(np.sqrt(scores["squared"])), "r2": 1 - scores["squared"] / variance}
    found |= {name: scores[name] for name in ("deviance", "accuracy", "brier") if name in scores}
    return found, mean
