"""What every aggregator starts from, checked: local models, site weights, support points."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np

from otmoe.aggregation.covariates import Places, Sampler, SiteCovariates, places, sizes
from otmoe.aggregation.expected import PseudoRows, pseudo_rows
from otmoe.aggregation.messages import (
    check_messages,
    check_sketches,
    check_weights,
    usual_experts,
)
from otmoe.aggregation.sources import Sources
from otmoe.aggregation.support import (
    N_SUPPORT,
    Support,
    check_support,
    drawn_from,
    points_from,
    samplers_of,
)
from otmoe.arrays.numerics import Array, Floats, namespace, take, to_numpy
from otmoe.data.sketch import comparable
from otmoe.documents.message import LocalModel
from otmoe.likelihood.rows import Scaling, take_rows
from otmoe.model.ensemble import Constant, Ensemble, pool
from otmoe.model.mixture import MoE
from otmoe.model.structure import Structure
from otmoe.text.arguments import check_whole, generator
from otmoe.text.errors import InvalidInput
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Warn

_PILOT = 100  # points that say how many pseudo-rows an x becomes

POINTS_PER_COLUMN = 10
"""Support points per column of the design below which a warning is given.

`python -m benchmarks constants` says what is lost at that number, at half and at twice of it.
"""


@dataclass(frozen=True)
class Problem:
    """Local models to be aggregated.

    Models that are equal bit for bit are pooled into one and the rest put in an order that depends
    on the models alone: neither the order of the messages nor a site sent in two halves can matter.

    Attributes
    ----------
    messages : tuple of LocalModel
        In the order given.
    site_weight : ndarray of shape (M,)
        lambda_m, adding up to one; where it depends on x, in proportion to the rows.
    models : tuple of MoE
        The U distinct models of positive weight.
    constant : tuple of Constant
        Features that did not vary at the sites of each distinct model.
    weight : ndarray of shape (U,)
        Their weights.
    which : ndarray of int of shape (M,)
        The distinct model of each message, or -1 where the site has no weight.
    n_experts : int
        K asked for.
    sources : Sources
        Their experts at the support points.
    samplers : tuple of U tuples of (Sampler, float)
        What is known of the covariates of the sites that have each distinct model, and their
        weights.
    seed : int
        Of the draws of covariates.
    warnings : tuple of Notice
    rows : ndarray of shape (M,)
        Rows that each site counts as: those it claims, or fewer.
    by_rows : bool
        Whether sites weigh by their rows, at each x or everywhere; else weights were given.
    suspects : frozenset of int
        Distinct models that stand out: the result is none of them.
    """

    messages: tuple[LocalModel, ...]
    site_weight: Floats
    models: tuple[MoE, ...]
    constant: tuple[Constant, ...]
    weight: Floats
    which: Floats
    n_experts: int
    sources: Sources = field(repr=False)
    samplers: tuple[tuple[tuple[Sampler, float], ...], ...] = field(default=(), repr=False)
    seed: int = 0
    warnings: tuple[Notice, ...] = ()
    rows: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    by_rows: bool = True
    suspects: frozenset[int] = frozenset()

    @property
    def ensemble(self) -> Ensemble:
        """f^W, the weighted average of the local models."""
        return self.sources.ensemble

    @property
    def n_rows(self) -> float:
        """Rows that all sites count as."""
        return float(np.sort(self.rows).sum())

    @property
    def without_grams(self) -> list[str]:
        """The sites that count and have not sent their Grams."""
        pairs = zip(self.messages, self.which, strict=True)
        return [message.site for message, u in pairs if u >= 0 and message.grams is None]

    @property
    def can_pool_grams(self) -> bool:
        """Whether all sites sent Grams, and weigh the same at every x."""
        return not self.without_grams and self.ensemble.gate.density is None

    @property
    def structure(self) -> Structure | None:
        """What experts of all models see and share, on the user's scale."""
        return self.models[0].structure

    @property
    def structure_here(self) -> Structure | None:
        """The same on the standardised scale of the support."""
        scaling, found = self.sources.scaling, self.structure
        return None if found is None else found.at(scaling.transform[:, 0])

    @property
    def kept(self) -> Self:
        """The same without what can be computed again, and without threads."""
        return replace(self, sources=replace(self.sources, pool=None, kept=False))

    def mean(self, values: Floats) -> float:
        """Return the mean of values of the distinct models (U,) by weight, where they are known."""
        known = ~np.isnan(values)
        return float(np.average(values[known], weights=self.weight[known]))

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of a model with as many experts as are asked for."""
        if self.structure is not None:
            return max(model.n_free for model in self.models)
        experts, p = self.ensemble.experts, self.ensemble.n_features + 1
        each = experts.n_linear * p + experts.n_constant
        return (self.n_experts - 1) * p + self.n_experts * each

    @property
    def cost_by_chance(self) -> float:
        """R_c to be expected of sites whose experts differ by errors of estimation alone."""
        return sum(model.experts.n_parameters for model in self.models) / (2 * self.n_rows)

    @cached_property
    def _places(self) -> Places:
        X = take_rows(self.sources.X, np.arange(min(_PILOT, len(self.sources))))
        pilot = [SiteCovariates(X, np.ones(len(X)))]
        first = min(self.models, key=lambda model: abs(model.n_experts - self.n_experts))
        each = len(pseudo_rows([first], pilot, seed=self.seed)) / len(X)
        wanted = sizes(self.n_parameters, len(self.models), each, self.n_rows)
        rng = np.random.default_rng(self.seed)
        found = places(self.samplers, self.ensemble.gate, self.sources.X, *wanted, rng)
        return found.bounded([model.n_experts for model in self.models], 2 * self.n_experts)

    @property
    def fitted_places(self) -> list[tuple[MoE, SiteCovariates]]:
        """The distinct models, and covariates of their own."""
        return list(zip(self.models, self._places.fit, strict=True))

    @cached_property
    def expected_rows(self) -> PseudoRows:
        """What the models predict at covariates of their own, to fit to (maths 17)."""
        return pseudo_rows(self.models, self._places.fit, self.sources.pool, self.seed)

    def few_rows(self, n: int) -> PseudoRows:
        """Return those of about n covariates; where there are none yet, no more are made."""
        step = max(self.n_covariates // n, 1)
        if "expected_rows" in vars(self):
            return self.expected_rows.thinned(step)
        some = [at.every(step) for at in self._places.fit]
        return pseudo_rows(self.models, some, self.sources.pool, self.seed)

    @property
    def n_covariates(self) -> int:
        """Covariates of all sites that are fitted to."""
        return sum(len(at.X) for at in self._places.fit)

    @cached_property
    def fresh_rows(self) -> PseudoRows:
        """The same at other covariates, to judge by."""
        return pseudo_rows(self.models, self._places.fresh, self.sources.pool)

    def name(self, u: int) -> str:
        """Return the name of the first site that has the distinct model u."""
        return self.messages[int(np.flatnonzero(self.which == u)[0])].site


def prepare(
    messages: Iterable[LocalModel],
    support: Any,
    n_experts: int | None = None,
    site_weight: Any = None,
    pool_of_threads: Executor | None = None,
    random_state: Any = 0,
    counted: Mapping[str, float] | None = None,
) -> Problem:
    """Check the inputs of :func:`otmoe.aggregate` and arrange them; `counted` replaces claims."""
    messages = check_messages(messages)
    by_density = isinstance(site_weight, str)
    if by_density:
        check_sketches(site_weight, messages)
    counted = counted or {}
    rows = np.array([counted.get(m.site, m.n_samples) for m in messages], np.float64)
    weight = rows
    if site_weight is not None and not by_density:
        weight = check_weights(site_weight, messages)
    first = messages[0].model
    warnings: list[Notice] = []
    known: Mapping[str | int, Sampler] = {}
    if support is None or isinstance(support, Integral):
        n_support = N_SUPPORT if support is None else int(support)
        check_whole("support", n_support)
        support, warnings = points_from(messages, weight, n_support, generator(random_state))
        known = {m.site: Sampler(m.support, m.sketch) for m in messages}
    elif isinstance(support, Mapping):
        support = drawn_from(support, messages, weight, generator(random_state))
    if isinstance(support, Support):
        known = known or samplers_of(support, messages)
        support = support.rows
    X = check_support(support, first, messages[0].site)
    if n_experts is None:
        n_experts = usual_experts(messages, weight)
    check_whole("n_experts", n_experts)

    # 1) distinct models, in an order of their own
    keys = [_key(message, by_density) for message in messages]
    distinct = sorted({key for key, w in zip(keys, weight, strict=True) if w > 0})
    place = {key: u for u, key in enumerate(distinct)}
    which = np.array(
        [place[key] if w > 0 else -1 for key, w in zip(keys, weight, strict=True)], dtype=int
    )
    members = [np.flatnonzero(which == u) for u in range(len(distinct))]
    chosen = [messages[int(m[0])] for m in members]
    # Sorted sums: the total of a split site does not depend on the order of its halves.
    pooled_weight = np.array([np.sort(weight[m]).sum() for m in members])
    models = tuple(message.model for message in chosen)
    constant = tuple(_constant(message) for message in chosen)

    # 2) support points at which at least one site contributes
    density = None
    if by_density:
        sketches = [message.sketch for message in chosen if message.sketch is not None]
        density = [sketch.log_density for sketch in comparable(sketches, pooled_weight)]
    ensemble = pool(models, pooled_weight, constant, density)
    X, unheard = _covered(ensemble, X)
    warnings += unheard
    n_points, p = int(X.shape[0]), first.n_features + 1
    if n_points < POINTS_PER_COLUMN * p:
        least = POINTS_PER_COLUMN * p
        warnings.append(Warn.SUPPORT_SHORT(points=n_points, columns=p, least=least))
    sources = Sources(ensemble, X, Scaling.of(X), pool_of_threads, kept=True)
    n_rows = float(np.sort(rows).sum())
    nothing = Sampler()
    return Problem(
        messages,
        weight / weight.sum(),
        models,
        constant,
        ensemble.gate.site_weight,
        which,
        int(n_experts),
        sources,
        tuple(
            tuple(
                (known.get(messages[m].site, nothing), n_rows * weight[m] / weight.sum())
                for m in mine
            )
            for mine in members
        ),
        warnings=tuple(warnings),
        rows=rows,
        by_rows=site_weight is None or by_density,
    )


def _key(message: LocalModel, with_sketch: bool) -> tuple[int, bytes, str]:
    """Return what two sites share if and only if they sent the same model (and sketch).

    Keys are sorted by leading digits: of bytes in the other order the last digits come first, and
    rounding would decide which site gets which random draws.
    """
    model = message.model
    vector = np.concatenate([model.gate.coef.ravel(), model.experts.to_vector()]) + 0.0
    about = f"{model.gate.columns} {sorted(message.constant.items())}"
    if with_sketch:
        about += json.dumps(message.support_document()["sketch"])
    return model.n_experts, vector.astype(">f8").tobytes(), about


def _constant(message: LocalModel) -> Constant:
    """Return the constant features of a site by index."""
    names = message.model.terms[1:]
    return {names.index(name): float(value) for name, value in message.constant.items()}


def _covered(ensemble: Ensemble, X: Array) -> tuple[Array, list[Notice]]:
    """Drop support points at which no site contributes."""
    gate = ensemble.gate
    if gate.constant is None or not any(gate.constant):
        return X, []
    xp = namespace(X)
    ones = xp.concat([xp.ones_like(X[:, :1]), X], axis=1)
    contributes = gate.contributes(ones)
    here = to_numpy(xp.any(contributes, axis=1))
    if here.all():
        return X, []
    if not here.any():
        raise InvalidInput(Error.SUPPORT_UNCOVERED)
    lost = int((~here).sum())
    warning = Warn.SUPPORT_UNCOVERED(lost=lost, points=len(here))
    return take(X, np.flatnonzero(here)), [warning]
