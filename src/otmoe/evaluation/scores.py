"""Scores of a model and of the null model, as sums that add up (maths 10)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.evaluation.null import null_with_offset, offset_values
from otmoe.evaluation.values import Values
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.sharing import GroupSums
from otmoe.model.experts import FAMILIES
from otmoe.model.mixture import MoE
from otmoe.model.target import Target

LOG_LIKELIHOOD, NULL, EXPLAINED = "log-likelihood", "null log-likelihood", "share explained"
"""Names under which a model file may keep measures of fit in `about`."""

_BINS = 2**14  # bins of probabilities, for the area under the ROC curve


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True)
class Score:
    """The score of a model on some rows, as sums: scores of different rows add up.

    Attributes
    ----------
    n_rows : int
    weight : float
        Sum of the case weights.
    sums : dict of float
        Weighted sums of measures computed row by row.
    mean, spread : float
        Weighted mean of the response, and weighted sum of squares around it.
    family : str
        Of the experts.
    classes : ndarray of shape (C,)
        Weight of each class; empty for numbers and counts.
    ranks : ndarray of shape (2, B)
        For two classes, the weight of each by the predicted probability of the second class, in B
        bins; otherwise empty.
    responses : dict of Score
        Of each of several responses by itself, whatever the others are; empty where there is one.
    values : Values
        Of y, for families whose null model needs them or if there is an offset; otherwise empty.
    with_offset : bool
        Whether the rows have an offset, which the null model then has, too.
    """

    n_rows: int
    weight: float
    sums: dict[str, float]
    mean: float = 0.0
    spread: float = 0.0
    family: str = "gaussian"
    classes: Floats = field(default_factory=_none, repr=False)
    ranks: Floats = field(default_factory=_none, repr=False)
    responses: dict[str, Score] = field(default_factory=dict)
    values: Values = field(default=Values(), repr=False)
    with_offset: bool = False

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
            {name: score + other.responses[name] for name, score in self.responses.items()},
            self.values + other.values,
            self.with_offset,
        )

    @property
    def measures(self) -> dict[str, float]:
        """Means over the rows: ``log_likelihood``, and measures for its type (maths 10).

        For numbers and counts ``rmse``, ``mae`` and ``r2``, the share of the variance explained;
        for counts and shares of trials also ``deviance``; for classes ``accuracy``, ``log_loss``
        and ``brier``, and ``auc`` if there are two. NaN if there is no weight, or no variance to
        explain. Several responses have their joint log-likelihood; the rest is in `responses`.
        """
        found = self._means()
        found.pop("base")
        if "squared" in found:
            squared = found.pop("squared")
            found |= {"rmse": float(np.sqrt(squared)), "r2": 1 - squared / self._variance}
        for name in ("saturated", "successes", "trials", "logarithm"):  # for the null model
            found.pop(name, None)
        if "accuracy" in found:
            found["log_loss"] = -found["log_likelihood"]
        if self.ranks.size:
            found["auc"] = self._auc()
        return found

    @property
    def null(self) -> dict[str, float]:
        """The measures of the null model: the best model of the same rows without covariates.

        If the rows have an offset, the null model is an intercept beside it.
        Names are those of `measures`; measures that are undefined for it are left out. Several
        responses are independent under it.
        """
        if not self.weight > 0:
            return {}
        if self.responses:
            each = [score.null.get("log_likelihood", np.nan) for score in self.responses.values()]
            return {"log_likelihood": sum(each)} if np.isfinite(sum(each)) else {}
        if self.with_offset and self._varies:
            return self._null_with_offset()
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
        found, mean, trials = {}, self.mean, means.get("trials", 1.0)
        if "trials" in means:
            mean = means["successes"] / trials if trials > 0 else np.nan
        if family.null_by_values:
            log_prob = family.best_constant(self.values.y, self.values.weight)
        else:
            log_prob = family.null_log_prob(mean, self._variance, means)
        if np.isfinite(log_prob):
            found["log_likelihood"] = log_prob + means["base"]
        found |= {"rmse": float(np.sqrt(self._variance)), "r2": 0.0}
        if "saturated" in means:
            found["deviance"] = 2 * (means["saturated"] - trials * family.saturated(mean))
        return found

    @property
    def explained(self) -> float:
        """Share of the null model's deviance that the model explains; NaN if there is none.

        For numbers this is R², for counts it refers to the Poisson deviance, for classes to twice
        the log loss.
        """
        mine, null = self.measures, self.null
        name = next((name for name in ("log_loss", "deviance") if name in mine), None)
        if name is None:
            gap = null.get("rmse", np.nan) ** 2
            return 1 - mine["rmse"] ** 2 / gap if gap > 0 else np.nan
        return 1 - mine[name] / null[name] if null.get(name, 0.0) > 0 else np.nan

    @property
    def _varies(self) -> bool:
        """Whether y has more than one value."""
        return bool(np.sum(self.classes > 0) > 1 if self.classes.size else self._variance > 0)

    def _null_with_offset(self) -> dict[str, float]:
        found, mean = null_with_offset(self.family, self.values, self._means(), self._variance)
        if self.classes.size:
            found["log_loss"] = -found["log_likelihood"]
            ranks = _ranks(self.values.y.astype(int), mean, self.values.weight)
            found["auc"] = replace(self, ranks=ranks)._auc()
        return found

    def _means(self) -> dict[str, float]:
        weight = self.weight or np.nan
        return {name: value / weight for name, value in self.sums.items()}

    @property
    def _variance(self) -> float:
        return self.spread / (self.weight or np.nan) if self.spread > 0 else np.nan

    def _auc(self) -> float:
        """Return how often a row of the second class ranks above one of the first."""
        negative, positive = self.ranks
        total = negative.sum() * positive.sum()
        below = np.cumsum(negative) - negative
        return float(positive @ (below + 0.5 * negative) / total) if total > 0 else np.nan


def goodness(score: Score) -> dict[str, float]:
    """Return the measures of fit on the training rows that a model file keeps in `about`."""
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
    groups: Floats | None = None,
) -> Score:
    """Return the score of a model on some rows.

    Parameters
    ----------
    model : MoE
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,), or (n, C) for successes and failures or several responses
        Labels if the model has `classes`, otherwise class numbers.
    weight, offset : ndarray of shape (n,), optional
        The null model has the offset, too.
    groups : ndarray of shape (n,), optional
        If rows of a group share their expert: the log-likelihood is then that of groups, and
        otherwise that of single rows.

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
    if groups is not None and model.expert_per == "group":
        there = GroupSums.of(model, Rows(X, y, weight, offset), groups)
        sums["log_likelihood"] = there.log_likelihood
    sums["base"] = float(w @ np.broadcast_to(np.asarray(experts.log_base(y)), w.shape))
    if not experts.classifies:
        if experts.responses:
            score = Score(len(y), total, sums, family=experts.family)
            return replace(score, responses=_each(model, X, y, weight, groups))
        counted = w * found.get("trials", 1.0)
        y = y if y.ndim == 1 else np.asarray(experts.observe(y).mean)[:, 0]
        mean = float(w @ y) / total if total else 0.0
        spread = float(w @ (y - mean) ** 2)
        values = Values.of(y, w) if experts.null_by_values else Values()
        score = Score(len(y), total, sums, mean, spread, experts.family, values=values)
        return score if offset is None else _with_offset(score, experts, y, offset, counted)
    codes, size = y.astype(int), experts.n_classes_of(experts.coef.shape)
    classes = np.bincount(codes, weights=w, minlength=size)
    ranks = _none()
    if size == 2:
        second = prediction if prediction.ndim == 1 else prediction[:, 1]
        ranks = _ranks(codes, second, w)
    score = Score(len(y), total, sums, 0.0, 0.0, experts.family, classes, ranks)
    return score if offset is None else _with_offset(score, experts, y, offset, w)


def _with_offset(score: Score, experts: Any, y: Floats, offset: Floats, weight: Floats) -> Score:
    values = offset_values(type(experts), y, offset, weight)
    return replace(score, values=values, with_offset=True)


def _ranks(codes: Floats, second: Floats, weight: Floats) -> Floats:
    """Return the weight of both classes by the probability of the second, in bins, (2, B)."""
    bins = np.minimum((second * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(codes * _BINS + bins, weights=weight, minlength=2 * _BINS)
    return np.asarray(counts.reshape(2, -1))


def _each(
    model: MoE, X: Floats, y: Floats, weight: Floats | None, groups: Floats | None
) -> dict[str, Score]:
    """Return the score of each response: of the model without the others, its margin."""
    columns = model.experts.split(y)
    return {
        name: score_rows(alone, X, column, weight, groups=groups)
        for (name, alone), column in zip(model.margins.items(), columns, strict=True)
    }
