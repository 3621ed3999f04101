"""What rows say about a model, in sums that add up, beside the null model (maths 10)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.model.experts import FAMILIES
from otmoe.model.experts.values import Response
from otmoe.model.mixture import MoE
from otmoe.model.target import Target

LOG_LIKELIHOOD, NULL, EXPLAINED = "log-likelihood", "null log-likelihood", "share explained"
"""What a model file may say in `about` of the rows of the fit."""

_BINS = 2**14  # of probabilities, for the area under the curve


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True)
class Score:
    """What some rows say about a model: sums, so that scores of different rows add up.

    Attributes
    ----------
    n_rows : int
    weight : float
        Sum of the case weights.
    sums : dict of float
        Weighted sums of what is measured row by row.
    mean, spread : float
        Weighted mean of the response, and weighted sum of squares around it.
    family : str
        Of the experts.
    classes : ndarray of shape (C,)
        Weight of each class; empty for numbers and counts.
    ranks : ndarray of shape (2, B)
        Where there are two classes: weight of either by the probability of the second one, which
        is rounded down to one of B values; else empty.
    """

    n_rows: int
    weight: float
    sums: dict[str, float]
    mean: float = 0.0
    spread: float = 0.0
    family: str = "gaussian"
    classes: Floats = field(default_factory=_none, repr=False)
    ranks: Floats = field(default_factory=_none, repr=False)

    def __add__(self, other: Score) -> Score:
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        step = other.mean - self.mean
        return Score(
            self.n_rows + other.n_rows,
            weight,
            {name: value + other.sums[name] for name, value in self.sums.items()},
            self.mean + share * step,
            self.spread + other.spread + self.weight * share * step**2,
            self.family,
            self.classes + other.classes,
            self.ranks + other.ranks,
        )

    @property
    def measures(self) -> dict[str, float]:
        """Means over the rows: ``log_likelihood``, and what suits the response (maths 10).

        For numbers and counts ``rmse``, ``mae`` and ``r2``, the share of the variance explained;
        for counts ``deviance`` as well; for classes ``accuracy``, ``log_loss`` and ``brier``, and
        ``auc`` where there are two. NaN where there is no weight, or no variance to explain.
        """
        found = self._means()
        found.pop("base")
        if "squared" in found:
            squared = found.pop("squared")
            found |= {"rmse": float(np.sqrt(squared)), "r2": 1 - squared / self._variance}
        if "saturated" in found:
            found.pop("saturated")
        if "accuracy" in found:
            found["log_loss"] = -found["log_likelihood"]
        if self.ranks.size:
            found["auc"] = self._auc()
        return found

    @property
    def null(self) -> dict[str, float]:
        """The measures of the null model: the best one of the same rows that knows no covariate.

        Names are those of `measures`; what it has no value of is left out.
        """
        if not self.weight > 0:
            return {}
        if self.classes.size:
            share = self.classes / (self.weight or np.nan)
            entropy = -float(np.sum(share[share > 0] * np.log(share[share > 0])))
            brier = float(np.sum(share * (1 - share))) / (2 if self.ranks.size else 1)
            found = {"log_likelihood": -entropy, "accuracy": float(share.max())}
            found |= {"log_loss": entropy, "brier": brier}
            return found | ({"auc": 0.5} if self.ranks.size else {})
        if not self._variance > 0:
            return {}
        means, family = self._means(), FAMILIES[self.family]
        found = {}
        if family.by_moments:  # else more would have to be known of y
            response = Response(np.array([[self.mean]]), np.array([[self._variance]]))
            one = np.ones((1, 1))
            expert = family.blank(1, 1).fit(one, response, one)
            log_prob = expert.expected_log_prob(expert.predictor(one), response)
            found["log_likelihood"] = float(log_prob[0, 0]) + means["base"]
        found |= {"rmse": float(np.sqrt(self._variance)), "r2": 0.0}
        if "saturated" in means:
            found["deviance"] = 2 * (means["saturated"] - family.saturated(self.mean))
        return found

    @property
    def explained(self) -> float:
        """Share of the null model's deviance that the model takes away; NaN if there is none.

        For numbers this is R², for counts the deviance of Poisson variables, for classes twice the
        log loss.
        """
        mine, null = self.measures, self.null
        name = next((name for name in ("log_loss", "deviance") if name in mine), None)
        if name is None:
            return mine["r2"]
        return 1 - mine[name] / null[name] if null.get(name, 0.0) > 0 else np.nan

    def _means(self) -> dict[str, float]:
        weight = self.weight or np.nan
        return {name: value / weight for name, value in self.sums.items()}

    @property
    def _variance(self) -> float:
        return self.spread / (self.weight or np.nan) if self.spread > 0 else np.nan

    def _auc(self) -> float:
        """Return how often a row of the second class has the higher probability of the two."""
        negative, positive = self.ranks
        total = negative.sum() * positive.sum()
        below = np.cumsum(negative) - negative
        return float(positive @ (below + 0.5 * negative) / total) if total > 0 else np.nan


def goodness(score: Score) -> dict[str, float]:
    """Return how good a model is on the rows of its fit, as a model file keeps it in `about`."""
    weight, null = score.weight, score.null.get("log_likelihood", np.nan)
    found = {
        LOG_LIKELIHOOD: weight * score.measures["log_likelihood"],
        NULL: weight * null,
        EXPLAINED: score.explained,
    }
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def score_rows(
    model: MoE,
    X: Floats,
    y: Floats,
    weight: Floats | None = None,
    offset: Floats | None = None,
) -> Score:
    """Return what some rows say about a model.

    Parameters
    ----------
    model : MoE
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
        Labels where the model has `classes`, class numbers where it has none.
    weight, offset : ndarray of shape (n,), optional
        The null model knows no offset.

    Examples
    --------
    >>> from otmoe import simulate
    >>> data = simulate(1000, n_experts=2, n_features=3, random_state=0)
    >>> some = score_rows(data.truth, data.X[:400], data.y[:400])
    >>> others = score_rows(data.truth, data.X[400:], data.y[400:])
    >>> {name: round(value, 2) for name, value in (some + others).measures.items()}
    {'log_likelihood': -1.96, 'mae': 1.43, 'rmse': 1.89, 'r2': 0.98}
    >>> {name: round(value, 2) for name, value in (some + others).null.items()}
    {'log_likelihood': -3.95, 'rmse': 12.56, 'r2': 0.0}
    """
    w = np.ones(len(y)) if weight is None else weight
    y = Target.of(model).numbers(np.asarray(y))
    prediction, total = model.predict(X, offset), float(w.sum())
    experts = model.experts
    found = {"log_likelihood": model.log_density(X, y, offset), **experts.scores(y, prediction)}
    sums = {name: float(w @ values) for name, values in found.items()}
    sums["base"] = float(w @ np.broadcast_to(np.asarray(experts.log_base(y)), y.shape))
    if not experts.classifies:
        mean = float(w @ y) / total if total else 0.0
        spread = float(w @ (y - mean) ** 2)
        return Score(len(y), total, sums, mean, spread, experts.family)
    codes, size = y.astype(int), experts.n_classes_of(experts.coef.shape)
    classes = np.bincount(codes, weights=w, minlength=size)
    ranks = _none()
    if size == 2:
        second = prediction if prediction.ndim == 1 else prediction[:, 1]
        bins = np.minimum((second * _BINS).astype(int), _BINS - 1)
        ranks = np.bincount(codes * _BINS + bins, weights=w, minlength=2 * _BINS).reshape(2, -1)
    return Score(len(y), total, sums, 0.0, 0.0, experts.family, classes, ranks)
