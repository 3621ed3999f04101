"""The fields of what a site sends, and how they have to agree."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from otmoe.data.features import FeatureSpec, FeaturesRecord
from otmoe.documents.grams import GramsRecord, check_grams, grams_of
from otmoe.documents.model import ModelRecord, check_model, model_of
from otmoe.documents.roster import PublicKey
from otmoe.documents.sketch import SketchRecord, check_sketch
from otmoe.text.errors import fail
from otmoe.text.records import (
    Line,
    List,
    Map,
    Matrix,
    Number,
    Positive,
    Record,
    Site,
    Told,
    Version,
    typed,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, path_of

_ROUNDING = 1e-6  # of weights that add up to one
_ROUNDED = (20, 0.25)  # rows, and share of them, by which Grams may be off that a site has rounded
_SAME = 1e-6  # relative: a constant may have been in single precision

MOST_SHARED = 10_000
"""Rows of x in a message, at most."""


class FitRecord(Record):
    """How a fit ended."""

    converged: bool
    status: Told
    warnings: List[Told] = []


class LocalModelRecord(Record):
    """What a site sends."""

    otmoe: Literal["local model"]
    schema_version: Version
    site: Site
    n_samples: Positive
    log_likelihood: Number
    fit: FitRecord
    constant_features: Map[str, Number] = {}
    features: FeaturesRecord | None = None
    model: ModelRecord
    grams: GramsRecord | None = None
    sketch: SketchRecord | None = None
    support: Matrix | None = None
    overrides: Map[Line, Line] = {}
    key: PublicKey | None = None
    versions: Map[Line, Line] = {}


def checked_record(document: dict[str, Any], source: str, limits: Limits) -> LocalModelRecord:
    """Return a document as a record whose parts agree, or say what is wrong with it."""
    record = typed(LocalModelRecord, document, source)
    check_model(record.model, record.features, source, limits)
    if record.n_samples < 1 - _ROUNDING:
        fail(source, "n_samples", Error.LESS_THAN_A_ROW, value=record.n_samples)
    _check_constant(record, source)
    if record.grams is not None:
        _check_grams(record.grams, record, source)
    if record.sketch is not None:
        names = _names(record.model)
        if record.features is not None:
            names = names[: FeatureSpec.from_record(record.features).layout.n_base]
        check_sketch(record.sketch, names, source)
    if record.support is not None:
        _check_support(record.support, len(_names(record.model)), source)
    return record


def _check_grams(grams: GramsRecord, record: LocalModelRecord, source: str) -> None:
    experts = model_of(record.model).experts
    shape = experts.coef.shape
    check_grams(grams, shape[0], shape[-1] * experts.n_linear, record.n_samples, source)
    most = experts.curvature_bound * (1.0 if experts.dispersion is None else experts.dispersion)
    exact = experts.dispersion is not None  # then every row counts one, and no less
    for k, (matrix, count) in enumerate(zip(grams_of(grams).matrices, grams.counts, strict=True)):
        for value in np.diagonal(matrix)[:: shape[-1]]:  # of the intercepts
            over = value - most[k] * count if np.isfinite(most[k]) else 0.0
            if (abs(over) if exact else over) > _ROUNDED[0] + _ROUNDED[1] * count:
                at = f"grams.triangles[{k}][0]"
                facts = {"value": float(value), "rows": count, "most": float(most[k])}
                fail(source, at, Error.GRAM_NOT_ROWS, **facts)


def _check_constant(record: LocalModelRecord, source: str) -> None:
    known = set(_names(record.model))
    for name in record.constant_features:
        if name not in known:
            place = path_of(("constant_features", name))
            fail(source, place, Error.NOT_A_FEATURE)
    for name, value in record.constant_features.items():
        if varies(name, value, record):
            place = path_of(("constant_features", name))
            fail(source, place, Error.CONSTANT_VARIES, value=value)


def varies(name: str, value: float, record: LocalModelRecord) -> bool:
    """Say whether the sketch or the rows of a message have other values of a constant feature."""
    seen = []
    if record.support is not None:
        column = _names(record.model).index(name)
        seen += [row[column] for row in record.support if column < len(row)]
    sketch = record.sketch
    if sketch is not None:
        if name in sketch.constant:
            unit, known = sketch.units.get(name), sketch.constant[name]
            seen.append(known if unit is None else (known - unit.center) / unit.scale)
        for category in sketch.categories:
            if name in category.features:  # it does not vary if all rows have it, or none has
                level = category.features.index(name) + 1
                seen += [row[level] for row in category.prob if level < len(row)]
        if name in sketch.numbers:
            return True
    return any(abs(x - value) > _SAME * (1 + abs(value)) for x in seen)


def _check_support(rows: list[list[float]], d: int, source: str) -> None:
    if not 0 < len(rows) <= MOST_SHARED:
        fail(source, "support", Error.SUPPORT_ROWS, rows=len(rows), most=MOST_SHARED)
    for i, row in enumerate(rows):
        if len(row) != d:
            sizes = {"length": len(row), "wanted": d}
            fail(source, f"support[{i}]", Error.LENGTH_OF_FEATURES, **sizes)


def _names(model: ModelRecord) -> list[str]:
    """Return the names of the features, given or made up as `MoE.terms` does."""
    d = len(model.gate.coef[0]) - 1
    return [f"x{j}" for j in range(d)] if model.feature_names is None else model.feature_names
