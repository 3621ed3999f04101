"""A personal model for every shard: how shards differ, and fits shrunk to their mean (maths 18).

Three passes over the shards: their replies about the common model, the comparison of personal
models on held-out rows, and the personal fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otmoe.data.shards import Shard, grouped_by
from otmoe.distributed.rounds import Question, information_local
from otmoe.distributed.task import read, rows_in, rows_of
from otmoe.inference.between import Between, between_sites
from otmoe.inference.effects import Comparison
from otmoe.inference.memory import ended
from otmoe.likelihood.answers import pooled_scaling
from otmoe.likelihood.forecast import STRENGTHS, Forecast, best_strength, forecast
from otmoe.likelihood.prior import PersonalFit, Prior, fit_with_prior
from otmoe.likelihood.rows import Scaling
from otmoe.model.ensemble import Ensemble, pool
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.model.target import Target
from otmoe.workers.failures import TasksFailed
from otmoe.workers.gather import HERE, Workers, gather


@dataclass(frozen=True)
class PersonalModels:
    """A model for every shard.

    Attributes
    ----------
    between : Between
        How shards differ, with the strength that predicts best and the comparisons of shards.
    fits : dict of PersonalFit
        By the name of the shard.
    forecasts : dict of Forecast
        How well the models predict held-out rows.
    own : dict of MoE
        The shards' own models that they were compared with.
    """

    between: Between
    fits: Mapping[str, PersonalFit] = field(repr=False)
    forecasts: Mapping[str, Forecast] = field(repr=False)
    own: Mapping[str, MoE] = field(default_factory=dict, repr=False)

    def stacked(self, site: str) -> Ensemble:
        """Return the mixture of a site's models that predicts its held-out rows best (maths 18).

        It has the experts of all of them, and is for predictions only.

        Parameters
        ----------
        site : str
        """
        models = {"common": self.between.common, "personal": self.fits[site].model}
        if site in self.own:
            models["own"] = self.own[site]
        weights = self.forecasts[site].weights
        return pool([models[name] for name in weights], np.array(list(weights.values())))


@dataclass(frozen=True)
class _Asked:
    """What a shard is asked; it travels to where the rows are."""

    shard: Shard
    prior: Prior
    common: MoE
    target: Target
    ridge: Ridge
    own: MoE | None = None
    strengths: tuple[float, ...] = STRENGTHS


def _forecast_local(asked: _Asked) -> Forecast:
    found, name = read(asked.shard), asked.shard.name
    rows = rows_in(found, asked.target, name)
    how: dict[str, Any] = {"own": asked.own, "ridge": asked.ridge, "groups": found.groups}
    return forecast(name, rows, asked.common, asked.prior, strengths=asked.strengths, **how)


def _fit_local(asked: _Asked) -> PersonalFit:
    return fit_with_prior(rows_of(asked.shard, asked.target), asked.prior)


def personal_shards(
    shards: Sequence[Shard],
    model: MoE,
    *,
    scaling: Scaling,
    target: Target | None = None,
    ridge: Ridge | None = None,
    restrict: str = "auto",
    groups: str | None = None,
    own: Mapping[str, MoE] | None = None,
    workers: Workers = HERE,
) -> PersonalModels:
    """Return a personal model for every shard, shrunk towards the mean of all.

    Parameters
    ----------
    shards : sequence of Shard
    model : MoE
        The common model, on the user's scale, at the maximum of the likelihood of all rows.
    scaling : Scaling
        Some standardisation of the features, such as that of support points.
    target : Target, optional
        What the shards' y is; by default the model's response.
    ridge : Ridge, optional
        Of the shards' own models; by default that of the family.
    restrict : {"auto", "gate", "intercepts"}
        What may differ between shards.
    groups : str, optional
        Column with the label of the group of each row, whose rows are not independent, such as
        those of a day; or with the time. They stay together when rows are held out, and groups
        that follow each other need not be independent either.
    own : dict of MoE, optional
        The shards' own models, by name, for comparison.
    workers : Workers
    """
    target = Target.of(model) if target is None else target
    ridge = Ridge.of(model.experts) if ridge is None else ridge
    if groups is not None:
        shards = [grouped_by(shard, groups) for shard in shards]
    names = [shard.name for shard in shards]

    def asked(function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        found, failures = gather(function, tasks, names, workers)
        if failures:
            raise TasksFailed(failures)
        return found

    # 1) how they differ
    replies = asked(
        information_local,
        [Question(shard, model, scaling, target, moments=True, scatter=True) for shard in shards],
    )
    between = between_sites(model, scaling, pooled_scaling(replies), replies, restrict=restrict)
    # 2) how much of that helps to predict. If slow changes do not end within the rows of a shard,
    # its next rows are like its last ones and cannot tell how much is lasting: as little as can be
    known = {} if own is None else own
    growths = [reply.growth for reply in replies if reply.growth is not None]
    strengths = STRENGTHS if ended(growths) else STRENGTHS[:1]
    tasks = [
        _Asked(shard, between.prior, model, target, ridge, known.get(shard.name), strengths)
        for shard in shards
    ]
    forecasts = asked(_forecast_local, tasks)
    strength = best_strength(forecasts)
    forecasts = [replace(found, strength=strength) for found in forecasts]
    between = _compared(between, forecasts, strength)
    # 3) a model for each
    prior = between.personal_prior
    fits = asked(_fit_local, [replace(task, prior=prior) for task in tasks])
    return PersonalModels(
        between,
        dict(zip(names, fits, strict=True)),
        {found.site: found for found in forecasts},
        known,
    )


def _compared(between: Between, forecasts: Sequence[Forecast], strength: float) -> Between:
    """Return how sites differ, with what each has compared."""
    by_site = {found.site: found for found in forecasts}

    def comparison(found: Forecast) -> Comparison:
        value = {name: score.value for name, score in found.scores.items()}
        known = {name: v if np.isfinite(v) else None for name, v in value.items()}
        return Comparison(known.get("own"), known["common"], known["personal"], found.best)

    sites = [replace(s, comparison=comparison(by_site[s.site])) for s in between.sites]
    return replace(between, strength=strength, sites=tuple(sites))
