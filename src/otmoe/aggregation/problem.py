"""What every aggregator starts from, checked: local models, site weights, support points."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from numbers import Integral
from reprlib import repr as brief
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from otmoe.aggregation.sources import Sources
from otmoe.aggregation.support import N_POINTS, points_from
from otmoe.arrays.numerics import Array, Floats, namespace, take, to_numpy
from otmoe.data.features import FeatureSpec
from otmoe.data.sketch import comparable
from otmoe.documents.message import LocalModel
from otmoe.likelihood.rows import Scaling
from otmoe.model.ensemble import Constant, Ensemble, pool
from otmoe.model.mixture import MoE
from otmoe.text.arguments import check_whole, generator

POINTS_PER_COLUMN = 10
"""Support points per column of the design below which a warning is given."""


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
    warnings : tuple of str
    """

    messages: tuple[LocalModel, ...]
    site_weight: Floats
    models: tuple[MoE, ...]
    constant: tuple[Constant, ...]
    weight: Floats
    which: Floats
    n_experts: int
    sources: Sources = field(repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def ensemble(self) -> Ensemble:
        """f^W, the weighted average of the local models."""
        return self.sources.ensemble

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
) -> Problem:
    """Check the inputs of :func:`otmoe.aggregate` and arrange them."""
    messages = check_messages(messages)
    by_density = isinstance(site_weight, str)
    if by_density:
        _check_sketches(site_weight, messages)
    weight = _check_weight(None if by_density else site_weight, messages)
    first = messages[0].model
    warnings: list[str] = []
    if support is None or isinstance(support, Integral):
        n_points = N_POINTS if support is None else int(support)
        check_whole("support", n_points)
        support, warnings = points_from(messages, weight, n_points, generator(random_state))
    X = _check_support(support, first, messages[0].site)
    if n_experts is None:
        n_experts = max(message.model.n_experts for message in messages)
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

    # 2) support points at which at least one site has a say
    density = None
    if by_density:
        sketches = [message.sketch for message in chosen if message.sketch is not None]
        density = [sketch.log_density for sketch in comparable(sketches, pooled_weight)]
    ensemble = pool(models, pooled_weight, constant, density)
    X, unheard = _heard(ensemble, X)
    warnings += unheard
    n_points, p = int(X.shape[0]), first.n_features + 1
    if n_points < POINTS_PER_COLUMN * p:
        warnings.append(
            f"the support has {n_points} points for {p} columns (intercept included): give at "
            f"least {POINTS_PER_COLUMN * p}, better 2,000, or the merged coefficients will be "
            "unstable."
        )
    sources = Sources(ensemble, X, Scaling.of(X), pool_of_threads)
    return Problem(
        messages,
        weight / weight.sum(),
        models,
        constant,
        ensemble.gate.site_weight,
        which,
        int(n_experts),
        sources,
        tuple(warnings),
    )


def check_messages(messages: Iterable[LocalModel]) -> tuple[LocalModel, ...]:
    """Return messages that can be merged; refuse those that do not match the first, by name."""
    if isinstance(messages, LocalModel):
        raise TypeError("messages is a LocalModel; give a list of them.")
    messages = tuple(messages)
    if not messages:
        raise ValueError("there is no message to aggregate: give at least one LocalModel.")
    for i, message in enumerate(messages):
        if not isinstance(message, LocalModel):
            raise TypeError(
                f"message {i} is a {type(message).__name__}, not a LocalModel: make one by "
                "to_message() of a fitted estimator, or read one by LocalModel.load(path)."
            )
    names = [message.site for message in messages]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(
            f"two messages come from site {twice!r}: a site may send one; rename or drop one."
        )
    for message in messages:
        _check_against(message, messages[0])
    return messages


def _check_against(message: LocalModel, first: LocalModel) -> None:
    """Refuse a model that is broken or does not match that of the first message."""
    site, model, other = message.site, message.model, first.model
    who = f"site {site!r}"
    if model.experts.family != other.experts.family:
        raise ValueError(
            f"{who} has {model.experts.family} experts, but site {first.site!r} has "
            f"{other.experts.family} ones: aggregate models of one family."
        )
    if model.n_features != other.n_features:
        raise ValueError(
            f"{who} has {model.n_features} features, but site {first.site!r} has "
            f"{other.n_features}: fit all sites to the same columns."
        )
    if model.feature_names != other.feature_names:
        raise ValueError(_name_trouble(who, model, first))
    if _spec(message) != _spec(first):
        raise ValueError(_spec_trouble(who, message, first))
    ours = None if model.classes is None else list(np.asarray(model.classes).tolist())
    theirs = None if other.classes is None else list(np.asarray(other.classes).tolist())
    shape, shape_there = model.experts.coef.shape[1:], other.experts.coef.shape[1:]
    if shape != shape_there:
        raise ValueError(
            f"{who} has {shape[0]} classes, but site {first.site!r} has {shape_there[0]}: declare "
            "the same classes, in the same order, at every site."
        )
    if ours != theirs:
        raise ValueError(
            f"{who} has the classes {brief(ours)}, but site {first.site!r} has {brief(theirs)}: "
            "declare the same classes, in the same order, at every site."
        )
    dispersion = model.experts.dispersion
    if dispersion is not None and not np.all((dispersion > 0) & np.isfinite(dispersion)):
        k = int(np.flatnonzero(~((dispersion > 0) & np.isfinite(dispersion)))[0])
        raise ValueError(
            f"{who}: the variance of expert {k} is {dispersion[k]:g}; it must be positive and "
            "finite. Fit the site again."
        )
    for part, coef in (("gate", model.gate.coef), ("experts", model.experts.coef)):
        if not np.all(np.isfinite(coef)):
            raise ValueError(
                f"{who}: a coefficient of the {part} is NaN or infinite. Fit the site again, or "
                "leave it out."
            )
    if not (np.isfinite(message.n_samples) and message.n_samples > 0):
        raise ValueError(
            f"{who}: n_samples is {message.n_samples!r}; it must be a positive number."
        )


def _name_trouble(who: str, model: MoE, first: LocalModel) -> str:
    names, others = model.feature_names, first.model.feature_names
    there = f"site {first.site!r}"
    if names is None or others is None:
        bare, named = (who, there) if names is None else (there, who)
        return (
            f"{bare} has no feature names, but {named} has: fit all sites to frames with the same "
            "columns."
        )
    if sorted(names) == sorted(others):
        j = next(j for j, (a, b) in enumerate(zip(names, others, strict=True)) if a != b)
        return (
            f"{who} has the features of {there} in another order (feature {j} is "
            f"{brief(names[j])} instead of {brief(others[j])}): fit it to the columns in the same "
            "order."
        )
    extra = sorted(set(names) - set(others))
    missing = sorted(set(others) - set(names))
    return (
        f"{who} has the features {brief(extra)} where {there} has {brief(missing)}: fit all sites "
        "to the same columns."
    )


def _spec(message: LocalModel) -> FeatureSpec | None:
    """Return how columns became features; a message without a word on it means plain numbers."""
    names = message.model.feature_names
    if message.features is not None or names is None:
        return message.features
    return FeatureSpec.of_names(names)


def _spec_trouble(who: str, message: LocalModel, first: LocalModel) -> str:
    ours, theirs = _spec(message), _spec(first)
    what = "another word on unknown levels"
    if ours is not None and theirs is not None and ours.columns != theirs.columns:
        pairs = zip(ours.columns, theirs.columns, strict=False)
        name = next(a.name for a, b in pairs if a != b)
        what = f"column {name!r} encoded otherwise"
    return (
        f"{who} has {what} than site {first.site!r}, so their coefficients cannot be compared: fit "
        "all sites with the same file of features."
    )


def _check_weight(site_weight: Any, messages: Sequence[LocalModel]) -> Floats:
    if site_weight is None:
        return np.array([message.n_samples for message in messages], dtype=np.float64)
    names = [message.site for message in messages]
    if isinstance(site_weight, Mapping):
        unknown = sorted(set(site_weight) - set(names))
        missing = sorted(set(names) - set(site_weight))
        if unknown or missing:
            trouble = f"names unknown sites {unknown}" if unknown else f"lacks the sites {missing}"
            raise ValueError(f"site_weight {trouble}: give one weight for each of {names}.")
        site_weight = [site_weight[name] for name in names]
    try:
        weight = np.asarray(site_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"site_weight must hold numbers, one per site ({error}).") from error
    if weight.shape != (len(names),):
        raise ValueError(
            f"site_weight has shape {weight.shape}, but there are {len(names)} messages: give one "
            "number per site."
        )
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise ValueError(
            f"the weight of site {names[wrong[0]]!r} is {weight[wrong[0]]}: give numbers that are "
            "zero or positive."
        )
    if not weight.sum() > 0:
        raise ValueError("every site has weight zero: there is nothing to aggregate.")
    return weight


def _check_sketches(site_weight: str, messages: Sequence[LocalModel]) -> None:
    if site_weight != "covariate":
        raise ValueError(
            f"site_weight is {site_weight!r}; give numbers, or 'covariate' for weights by sketches."
        )
    without = [message.site for message in messages if message.sketch is None]
    if without:
        raise ValueError(
            f"site_weight='covariate' needs a sketch from every site, and {without} sent none: ask "
            "for them, as made by to_message(..., X=X, sketch=True), or leave site_weight out."
        )
    units = [message.sketch.units for message in messages if message.sketch is not None]
    for message, other in zip(messages, units, strict=True):
        if other != units[0]:
            raise ValueError(
                f"the sketches of the sites {message.site!r} and {messages[0].site!r} have "
                "different units: fit all sites with the same features."
            )


def _check_support(support: Any, model: MoE, site: str) -> Array:
    """Return the support as an array (S, d) in the order of the model's features."""
    names = getattr(support, "columns", None)
    if names is not None and not callable(names) and model.feature_names is not None:
        given = [str(name) for name in names]
        missing = [name for name in model.feature_names if name not in given]
        if missing:
            raise ValueError(
                f"support lacks the columns {brief(missing)}: the models were fitted to "
                f"{brief(list(model.feature_names))}."
            )
        support = support[list(model.feature_names)]
    X = support if is_array_api_obj(support) else np.asarray(support)
    if isinstance(X, np.ndarray):
        try:
            X = X.astype(np.float64, copy=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"support must hold numbers only ({error}).") from error
    if X.ndim != 2 or X.shape[1] != model.n_features:
        raise ValueError(
            f"support has shape {tuple(X.shape)}, but the models have {model.n_features} features "
            f"(site {site!r}): give an array of shape (S, {model.n_features}), without y."
        )
    if X.shape[0] < X.shape[1] or X.shape[0] == 0:
        raise ValueError(
            f"support has {X.shape[0]} rows for {X.shape[1]} columns: give more rows than columns, "
            "better 2,000."
        )
    xp = namespace(X)
    if not bool(xp.all(xp.isfinite(X))):
        row = int(np.flatnonzero(~np.isfinite(to_numpy(X)).all(axis=1))[0])
        raise ValueError(f"support holds NaN or infinity in row {row}: drop such rows.")
    return X


def _key(message: LocalModel, with_sketch: bool) -> tuple[int, bytes, str]:
    """Return what two sites share if and only if they sent the same model (and sketch)."""
    model = message.model
    vector = np.concatenate([model.gate.coef.ravel(), model.experts.to_vector()]) + 0.0
    about = f"{model.gate.columns} {sorted(message.constant.items())}"
    if with_sketch:
        about += json.dumps(message.support_document()["sketch"])
    return model.n_experts, vector.tobytes(), about


def _constant(message: LocalModel) -> Constant:
    """Return the constant features of a site by index."""
    names = message.model.terms[1:]
    return {names.index(name): float(value) for name, value in message.constant.items()}


def _heard(ensemble: Ensemble, X: Array) -> tuple[Array, list[str]]:
    """Drop support points at which no site has a say."""
    gate = ensemble.gate
    if gate.constant is None or not any(gate.constant):
        return X, []
    xp = namespace(X)
    ones = xp.concat([xp.ones_like(X[:, :1]), X], axis=1)
    voters = gate.voters(ones)
    heard = to_numpy(xp.any(voters, axis=1))
    if heard.all():
        return X, []
    if not heard.any():
        raise ValueError(
            "no site has a say at any support point: every site has features that never varied "
            "there and differ from the support; give support points from the sites themselves."
        )
    lost = int((~heard).sum())
    warning = (
        f"{lost} of {len(heard)} support points were left out, since every site has a feature that "
        "never varied there and has another value at these points."
    )
    return take(X, np.flatnonzero(heard)), [warning]
