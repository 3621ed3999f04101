"""How well a site's rows are predicted by models that have not seen them: own, common, personal.

Part of the rows is held out, a model is fitted to the rest, and the log density of the part says
how well it predicts (maths 18).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats, to_numpy
from otmoe.likelihood.grouped import as_labels, coded
from otmoe.likelihood.iterations import newton_serves, run_em, run_newton
from otmoe.likelihood.prior import Prior, fit_with_prior
from otmoe.likelihood.rows import Rows
from otmoe.likelihood.stacking import stacking_weights
from otmoe.likelihood.statistics import RowPasses
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge

STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Factors of the deviations between sites that are tried; 0 is the common model."""

PARTS = 4
"""Parts into which a site's rows are cut."""

# `python -m benchmarks constants` halves and doubles it.
_MOST_ROWS = 20_000  # of a site that are looked at
_NEAR = 0.01  # squared standard errors from a maximum that is near enough for a prediction
_EM, _NEWTON = 5, 20  # iterations of a site's own model after rows were taken away


@dataclass(frozen=True)
class Score:
    """How well a model predicts rows that were held out.

    Attributes
    ----------
    value : float
        Mean log density of a row, in nats; NaN where there was no such model.
    gain, error : float
        Its lead over the common model, and the standard error of that.
    """

    value: float
    gain: float
    error: float


@dataclass(frozen=True)
class Forecast:
    """How well models predict rows of a site that they have not seen.

    Attributes
    ----------
    site : str
    weight : float
        Rows that were predicted (the sum of their weights).
    common : float
        Mean log density of a row under the model of all sites, in nats.
    personal : dict of Score
        Of personal models, by the factor of the deviations between sites.
    own : Score, optional
        Of the site's own model.
    strength : float
        The factor that was chosen, for all sites together.
    stacks : dict of dict of float
        By the factor of the deviations: the weights, by name, of the mixture of the three models
        that predicts the rows best.
    """

    site: str
    weight: float
    common: float
    personal: Mapping[float, Score]
    own: Score | None = None
    strength: float = 1.0
    stacks: Mapping[float, Mapping[str, float]] = field(default_factory=dict, repr=False)

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights of the models, by name, in the mixture that predicts best; they add up to 1."""
        return self.stacks.get(self.strength, {"common": 1.0})

    @property
    def scores(self) -> dict[str, Score]:
        """The scores by the name of the model."""
        shared = Score(self.common, 0.0, 0.0)
        found = {"common": shared, "personal": self.personal.get(self.strength, shared)}
        return found if self.own is None else {**found, "own": self.own}

    @property
    def best(self) -> str:
        """The model that predicts best: "common", "personal" or "own".

        The own model has to lead the personal one by more than a standard error.
        """
        personal = self.scores["personal"]
        if self.own is not None and self.own.value > max(
            personal.value + self.own.error, self.common
        ):
            return "own"
        return "personal" if personal.gain > 0 else "common"


def best_strength(forecasts: Iterable[Forecast]) -> float:
    """Return the factor of the deviations that predicts best over all sites; 0 for none."""
    gains = {0.0: 0.0}
    for forecast in sorted(forecasts, key=lambda f: f.site):
        for strength, score in forecast.personal.items():
            gains[strength] = gains.get(strength, 0.0) + forecast.weight * score.gain
    return max(gains, key=lambda strength: (gains[strength], -strength))


def forecast(
    site: str,
    rows: Rows,
    common: MoE,
    prior: Prior,
    *,
    own: MoE | None = None,
    ridge: Ridge | None = None,
    groups: Any = None,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
) -> Forecast:
    """Return how well models predict rows of a site that they have not seen.

    Rows are held out at random. With groups, whole groups are, and only those before them in the
    order of the rows are learned from: so rows that follow each other in time do not give each
    other away. What is held out then comes soon after what is learned from, and favours models that
    suit these times only, so no factor above 1 is tried.

    Parameters
    ----------
    site : str
    rows : Rows
        On the user's scale. Of very many, some are looked at.
    common : MoE
        On the user's scale. It has seen the rows, as the mean over sites has; what that is worth on
        average is taken off.
    prior : Prior
    own : MoE, optional
        The site's own model, fitted to all its rows, on the user's scale.
    ridge : Ridge, optional
        Of the own model; by default that of the family.
    groups : array-like of shape (n,), optional
        Label of the group of each row.
    strengths : sequence of float
        Factors of the deviations between sites.
    seed : int
    """
    rng = np.random.default_rng(seed)
    labels = None if groups is None else as_labels(groups, len(rows))
    if len(rows) > _MOST_ROWS:
        some = np.sort(rng.choice(len(rows), _MOST_ROWS, replace=False))
        rows, labels = rows.take(some), None if labels is None else labels[some]
    part = _parts(rows, labels, common.experts.classifies, rng)
    splits = [
        (np.flatnonzero(part < j if labels is not None else part != j), np.flatnonzero(part == j))
        for j in range(PARTS)
    ]
    splits = [(seen, unseen) for seen, unseen in splits if len(seen) and len(unseen)]
    tested = [rows.take(unseen) for _, unseen in splits]
    learned = [rows.take(seen) for seen, _ in splits]
    weight = _joined(_weights(some) for some in tested)
    together = np.concatenate([np.zeros(0, int), *(unseen for _, unseen in splits)])
    if labels is not None:
        together = coded(labels[together])[0]
    # the common model has seen all rows, and so has the mean over sites: what that is worth
    optimism = prior.design_effect * common.n_parameters / max(prior.n_samples, 1.0)
    shared = _joined(_log_density(common, some) for some in tested) - optimism

    def said(models: Iterable[MoE | None], lead: float) -> Floats:
        found = [
            np.full(len(some), np.nan) if model is None else _log_density(model, some)
            for model, some in zip(models, tested, strict=True)
        ]
        return _joined(found) - lead

    mine = None
    if own is not None:
        again = _refitter(own, Ridge.of(own.experts) if ridge is None else ridge)
        mine = said([again(some) for some in learned], 0.0)
    stacks = {0.0: _stack({"common": shared, "own": mine}, weight)}
    personal: dict[float, Score] = {}
    if not any(prior.tau.values()):  # every factor is the common model then
        strengths = ()
    if labels is not None:
        strengths = [strength for strength in strengths if strength <= 1]
    starts: list[MoE | None] = [None] * len(splits)
    for strength in sorted(strengths):
        there = prior.at_strength(strength, common)
        starts = [
            fit_with_prior(some, there, start=start, tol=_NEAR).model
            for some, start in zip(learned, starts, strict=True)
        ]
        theirs = said(starts, optimism)
        personal[strength] = _score(theirs, shared, weight, together)
        stacks[strength] = _stack({"common": shared, "personal": theirs, "own": mine}, weight)
    mean = float(np.average(shared, weights=weight)) if len(shared) else np.nan
    alone = None if mine is None else _score(mine, shared, weight, together)
    return Forecast(site, float(weight.sum()), mean, personal, alone, stacks=stacks)


def _parts(rows: Rows, labels: Floats | None, classes: bool, rng: np.random.Generator) -> Floats:
    """Return the part to which each row belongs, (n,)."""
    n = len(rows)
    if labels is not None:
        _, first, code, size = np.unique(
            labels, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)
        begin = np.empty(len(first))
        begin[order] = np.cumsum(size[order]) - size[order]
        return np.asarray(PARTS * begin[code] // n).astype(int)
    found = np.empty(n, int)
    y = to_numpy(rows.y)
    kinds = [np.flatnonzero(y == label) for label in np.unique(y)] if classes else [np.arange(n)]
    place = 0
    for kind in kinds:  # every part has its share of each class
        found[rng.permutation(kind)] = (place + np.arange(len(kind))) % PARTS
        place += len(kind)
    return found


def _refitter(own: MoE, ridge: Ridge) -> Callable[[Rows], MoE | None]:
    """Return what fits a site's own model again, from where it is, to some of the rows."""

    def again(rows: Rows) -> MoE | None:
        there, _ = rows.standardised(own.experts, own.structure)
        if len(rows) <= own.n_parameters:
            return None  # rows that a model can learn by heart
        passes, start = RowPasses(there), there.scaling.from_user(own)
        run = run_em(passes, start, ridge=ridge, max_iter=_EM)
        if newton_serves(run.model):
            run = run_newton(passes, run.model, ridge=ridge, max_iter=_NEWTON, tol=_NEAR)
        return there.scaling.to_user(run.model)

    return again


def _stack(said: Mapping[str, Floats | None], weight: Floats) -> dict[str, float]:
    """Return the weights of models by what they say of held-out rows, log densities (n,) each."""
    known = {
        name: value
        for name, value in said.items()
        if value is not None and len(value) and np.all(value < np.inf)
    }
    if not known:
        return {"common": 1.0}
    found = stacking_weights(np.array(list(known.values())), weight)
    return {name: float(w) for name, w in zip(known, found, strict=True) if w > 0}


def _score(value: Floats, common: Floats, weight: Floats, together: Floats) -> Score:
    """Return the score of predictions; rows of one number in `together` are one observation."""
    if not len(value) or not np.all(np.isfinite(value)):
        return Score(np.nan, np.nan, np.nan)
    gain = value - common
    mean = np.average(gain, weights=weight)
    error = np.sqrt(np.sum(np.bincount(together, weight * (gain - mean)) ** 2)) / weight.sum()
    return Score(float(np.average(value, weights=weight)), float(mean), float(error))


def _log_density(model: MoE, rows: Rows) -> Floats:
    return to_numpy(model.log_density(rows.X, rows.y, rows.offset))


def _weights(rows: Rows) -> Floats:
    return np.ones(len(rows)) if rows.weight is None else to_numpy(rows.weight)


def _joined(parts: Iterable[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])
