"""What the page shows, as plain values."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec
from otmoe.data.terms import Spline
from otmoe.documents.aggregation import AggregationRecord, CovariatesRecord, InferenceRecord
from otmoe.evaluation.curves import curves_of
from otmoe.evaluation.filed import FiledInference
from otmoe.evaluation.scores import EXPLAINED, LOG_LIKELIHOOD, NULL
from otmoe.inference.between import Between
from otmoe.inference.curves import curve_places
from otmoe.inference.estimates import by_t, estimates, of_variance
from otmoe.inference.matrix import Matrix
from otmoe.inference.parameters import parameters
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.reporting.checks import checks_of, mean_lost
from otmoe.reporting.differences import differences, finding
from otmoe.text.records import TEXTS
from otmoe.text.sentences import Finding

LEVEL = 0.95
"""Confidence level of the intervals."""

PARTS = {
    "about": "name, number of rows, log-likelihood, versions",
    "model": "parameters",
    "features": "names and coding of features",
    "constant_features": "features that are constant",
    "grams": "Grams",
    "sketch": "sketch of the covariates",
    "support": "rows of x",
}
"""Parts of a message, and their names on the page."""

_NUMBER = 19.7  # bytes of a number in JSON, with its separator

_WIDTH = ("se", "low", "high")
_BAND = ("effect", "low", "high")
_STEPS = 41  # values of a column at which the features derived from it are given


def page_data(
    model: MoE,
    record: AggregationRecord | None,
    features: FeatureSpec | None,
    about: dict[str, Any],
    title: str,
    between: Between | None = None,
) -> dict[str, Any]:
    """Return everything that the page shows.

    Parameters
    ----------
    model : MoE
    record : AggregationRecord or None
        How the model was merged, if known.
    features : FeatureSpec or None
        How columns were encoded as features, if known.
    about : dict
        Facts about the model, by name.
    title : str
    between : Between or None
        How sites differ, if known.
    """
    merged = isinstance(model.gate, SoftmaxGate)
    data: dict[str, Any] = {
        "title": title,
        "otmoe": version("otmoe"),
        "about": {name: _fact(value) for name, value in about.items()},
        "parts": PARTS,
        "notes": [],
        "model": _model(model, record, features) if merged else None,
        "aggregation": None,
        "between": None if between is None else differences(between, LEVEL),
        "matrix": _matrix(model, record, features) if merged else None,
        "effects": _effects(model, record, features),
        "goodness": _goodness(model, about),
        "checks": [],
    }
    if not merged:
        data["notes"].append(str(Finding.NOT_MERGED()))
    if record is None:
        data["notes"].append(str(Finding.MODEL_ALONE()))
        return data
    mass = _mass(record)
    data["aggregation"] = _aggregation(record) | {
        "mass": None if mass is None else mass.sum(axis=0).tolist(),
        "lost": mean_lost(record),
        "round_bytes": _round_bytes(model),
    }
    told = None if between is None else finding(between)
    data["checks"] = checks_of(record, mass, () if told is None else (told,))
    return data


def _fact(value: Any) -> str:
    """Return a fact as text; eight digits of a number that is not whole."""
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def _matrix(
    model: MoE, record: AggregationRecord | None, features: FeatureSpec | None
) -> dict[str, Any]:
    """Return the coefficients as a table, a row per feature and a column per expert, and as CSV."""
    known = None if record is None else record.inference
    mass = None if record is None else _mass(record)
    errors = None if known is None else known.standard_errors
    curves = {} if features is None else features.curve_features
    tests = FiledInference.read(model, known).terms(curves) if curves else ()
    share = None if mass is None else mass.sum(axis=0)
    found = Matrix.of(model, share, errors, curves, tests)
    return {
        "experts": found.n_experts,
        "share": None if found.share is None else found.share.tolist(),
        "blocks": [
            {"heading": table.heading, "terms": list(table.terms), "cells": table.cells}
            for table in found.tables
        ],
        "csv": found.csv_rows(),
    }


def _effects(
    model: MoE, record: AggregationRecord | None, features: FeatureSpec | None
) -> dict[str, Any] | None:
    """Return joint tests of terms and the curves of splines; without standard errors, no bands."""
    if features is None or not isinstance(model.gate, SoftmaxGate):
        return None
    found = FiledInference.read(model, None if record is None else record.inference)
    several = {name: part for name, part in features.term_features.items() if len(part) > 1}
    tests = [test for test in found.terms(several) if test.df > 1]
    curves = []
    for term in features.terms:
        if not isinstance(term, Spline):
            continue
        mine = curves_of(found, features, term.column, level=LEVEL, n_grid=_STEPS)
        gate = curves_of(found, features, term.column, block="gate", level=LEVEL, n_grid=_STEPS)
        curves.append(
            {
                "column": term.column,
                "reference": mine[0].reference,
                "x": mine[0].x.tolist(),
                "knots": list(term.knots),
                "lines": [
                    {
                        "block": curve.block,
                        "expert": curve.expert,
                        "label": None if curve.label is None else str(curve.label),
                        **{key: list(map(_known, getattr(curve, key))) for key in _BAND},
                    }
                    for curve in (*mine, *gate)
                    if curve.effect.any()  # else it does not see the column
                ],
            }
        )
    shown = ("term", "block", "expert", "statistic", "df", "p")
    return {
        "curves": curves,
        "statistic": "chi-square" if found.df is None else "T²",
        "tests": [
            {key: getattr(test, key) for key in shown}
            | {"label": None if test.label is None else str(test.label)}
            for test in tests
        ],
    }


def _round_bytes(model: MoE) -> int:
    """Return about how many bytes a site sends per refine round: score and information."""
    P = model.n_parameters
    return round(_NUMBER * (P * (P + 1) / 2 + P + model.n_experts))


def _goodness(model: MoE, about: dict[str, Any]) -> dict[str, Any] | None:
    """Return measures of fit on the training rows, if the file has them."""
    names = (LOG_LIKELIHOOD, NULL, EXPLAINED, "rows")
    if not all(isinstance(about.get(name), int | float) for name in names):
        return None
    log_likelihood, null, explained, rows = (float(about[name]) for name in names)
    return {
        "what": "variance" if model.experts.has_scale else "deviance",
        "explained": explained,
        "better": (log_likelihood - null) / rows,
    }


def _mass(record: AggregationRecord) -> Floats | None:
    """Return the share of the mixture that each site contributes to each expert, (M, K)."""
    known = [site.mass for site in record.sites if site.mass is not None]
    if not known:
        return None
    found = np.zeros((len(record.sites), len(known[0][0])))
    for m, site in enumerate(record.sites):
        if site.mass is not None:  # else it does not contribute
            found[m] = site.weight * np.sum(site.mass, axis=0)
    return np.asarray(found / found.sum())


def _aggregation(record: AggregationRecord) -> dict[str, Any]:
    """Return the record, with the distinct versions of the sites' software as a list."""
    part: dict[str, Any] = record.model_dump(context=TEXTS)
    seen: dict[str, int] = {}
    for site in part["sites"]:
        words = ", ".join(f"{name} {number}" for name, number in site.pop("versions").items())
        site["versions"] = seen.setdefault(words or "unknown", len(seen))
        site["sent"] = {name: size for name, size in site["sent"].items() if size}
    return part | {"versions": list(seen)}


def _model(
    model: MoE, record: AggregationRecord | None, features: FeatureSpec | None
) -> dict[str, Any]:
    """Return gate and experts, and every free parameter with its interval."""
    found = None if record is None else record.inference
    about, value = parameters(model), model.to_vector()
    curves = {} if features is None else features.curve_features
    bent = {j for _, _, places in curve_places(model, curves) for j in places}
    errors = [None] * len(about) if found is None else found.standard_errors
    se = np.array([np.nan if error is None else error for error in errors])
    df = None if found is None else found.df
    rows = [
        (of_variance(row) if row.block == "variance" else row, j in bent)
        for j, row in enumerate(estimates(about, value, se, LEVEL, df))
        if not model.held[j]
    ]
    return {
        "family": model.experts.family,
        "terms": list(model.terms),
        "n_experts": model.n_experts,
        "n_parameters": model.n_free,
        "gate": np.asarray(model.gate.coef).tolist(),
        "gate_columns": list(range(len(model.terms)))
        if model.gate.columns is None
        else [int(j) for j in model.gate.columns],
        "estimates": [
            {
                "block": row.block,
                "expert": row.expert,
                "label": None if row.label is None else str(row.label),
                "term": row.term,
                "estimate": row.estimate,
                **({} if found is None else {key: _known(getattr(row, key)) for key in _WIDTH}),
                **({"curve": True} if curve else {}),
            }
            for row, curve in rows
        ],
        "units": None if features is None else _units(features),
        "n_base": model.n_features if features is None else features.layout.n_base,
        "followers": {}
        if features is None or record is None
        else _followers(features, record.covariates),
        "categories": []
        if features is None
        else _categories(features, None if record is None else record.covariates),
        "level": LEVEL,
        "has_intervals": found is not None,
        "intervals_from": None if found is None else _source(found),
        "no_intervals": str(Finding.FIT_UNKNOWN()) if record is None else str(record.no_inference),
    }


def _source(found: InferenceRecord) -> str:
    """Return what the intervals are based on, in words."""
    groups = "groups" if found.n_groups is None else f"{found.n_groups:,} groups"
    words = by_t(found.df)
    return {
        "information": "the information of all rows",
        "sandwich": "the sandwich of all rows",
        "clustered": f"the sandwich of {groups} of rows{words and ' and ' + words}",
    }[found.kind]


def _units(features: FeatureSpec) -> list[tuple[float, float]]:
    """Return centre and scale of every feature; (0, 1) if the column is used unchanged."""
    found = [(0.0, 1.0)] * len(features.feature_names)
    for column in features.columns:
        found[features.layout.of_columns[column.name][0]] = (column.center, column.scale)
    return found


def _followers(
    features: FeatureSpec, covariates: CovariatesRecord | None
) -> dict[int, dict[str, Any]]:
    """Return, for numeric columns, the features derived from them (splines, products) on a grid.

    The other columns are at their means.
    """
    layout = features.layout
    if covariates is None or not features.terms:
        return {}
    middle = np.array(covariates.mean)[: layout.n_base]
    found = {}
    for column in features.columns:
        j = layout.of_columns[column.name][0]
        if column.kind == "category":
            continue
        X = np.empty((_STEPS, layout.n_features))
        X[:, : layout.n_base] = middle
        X[:, j] = np.linspace(covariates.low[j], covariates.high[j], _STEPS)
        layout.derive(X)
        moved = [i for i in range(layout.n_base, layout.n_features) if np.ptp(X[:, i]) > 0]
        if moved:
            others = {i: X[:, i].tolist() for i in moved}
            found[j] = {"values": X[:, j].tolist(), "others": others}
    return found


def _categories(features: FeatureSpec, covariates: CovariatesRecord | None) -> list[dict[str, Any]]:
    """Return the categories with several coefficients, and where these begin among the terms.

    Products are given at each level, the reference first, with the other columns at their means.
    """
    layout, found = features.layout, []
    for column in features.columns:
        place = layout.of_columns[column.name]
        if column.kind != "category" or len(place) < 2:
            continue
        (reference,) = set(column.levels) - set(column.shown_levels)
        others: dict[int, list[float]] = {}
        if covariates is not None and features.terms:
            X = np.empty((len(column.levels), layout.n_features))
            X[:, : layout.n_base] = np.array(covariates.mean)[: layout.n_base]
            X[:, place.start : place.stop] = np.eye(len(column.levels))[:, 1:]
            layout.derive(X)
            moved = [i for i in range(layout.n_base, layout.n_features) if np.ptp(X[:, i]) > 0]
            others = {i: X[:, i].tolist() for i in moved}
        found.append(
            {
                "name": column.name,
                "reference": reference,
                "levels": list(column.shown_levels),
                "first": 1 + place.start,  # after the intercept
                "others": others,
            }
        )
    return found


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
