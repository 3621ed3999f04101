"""The fields of messages and model files, and the checks on them.

Pydantic sees to types; then the fields have to agree with each other. What is wrong is said in one
sentence, which names its place by a path such as ``model.experts.var[2]``.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, create_model

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec, FeaturesRecord, check_features
from otmoe.documents.aggregation import AggregationRecord, check_aggregation
from otmoe.documents.sketch import SketchRecord, check_sketch
from otmoe.likelihood.grams import GramsRecord, check_grams
from otmoe.model.experts import FAMILIES, Experts
from otmoe.text.errors import fail
from otmoe.text.records import (
    LONGEST_NAME,
    Label,
    Line,
    List,
    Map,
    Matrix,
    Name,
    Number,
    Positive,
    Record,
    Site,
    Told,
    Version,
    Whole,
    check_distinct,
    check_version,
    problem,
    typed,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, path_of, shown

MOST_SHARED = 10_000
"""Rows of x in a message, at most."""

# -- fields --------------------------------------------------------------------------------------


def _family(name: str) -> str:
    if name not in FAMILIES:
        known = ", ".join(json.dumps(family) for family in FAMILIES)
        raise problem(Error.FAMILY_UNKNOWN, name=shown(name), known=known)
    return name


class GateRecord(Record):
    """A gate: coefficients (K, p) and, unless it uses all, the columns that it uses."""

    coef: Matrix
    columns: List[Whole] | None = None


class ModelRecord(Record):
    """A mixture of experts. What parameters the experts have depends on the family."""

    family: Annotated[str, AfterValidator(_family)]
    feature_names: List[Name] | None = None
    classes: List[Label] | None = None
    gate: GateRecord
    experts: dict[str, Any]


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
    versions: Map[Line, Line] = {}


class ModelFileRecord(Record):
    """A model, what its author wanted to say about it and, if it was merged, how."""

    otmoe: Literal["model"]
    schema_version: Version
    about: Map[Line, Label] = {}
    features: FeaturesRecord | None = None
    model: ModelRecord
    aggregation: AggregationRecord | None = None
    versions: Map[Line, Line] = {}


def experts_record(family: str) -> type[Record]:
    """Return the fields of a family: coefficients, and dispersions where it has them."""
    return _experts_record(FAMILIES[family])


@cache
def _experts_record(family: type[Experts]) -> type[Record]:
    blank = family.blank(1, 1)
    by_dimension: dict[int, Any] = {1: List[Positive], 2: Matrix, 3: List[Matrix]}
    types: dict[str, Any] = {
        field.name: (by_dimension[getattr(blank, field.name).ndim], ...) for field in fields(blank)
    }
    return create_model("ExpertsRecord", __base__=Record, **types)


# -- checks --------------------------------------------------------------------------------------


def check(
    document: dict[str, Any], source: str, limits: Limits | None = None
) -> LocalModelRecord | ModelFileRecord:
    """Return a document as a record, or say what is wrong with it.

    Parameters
    ----------
    document : dict
        As :func:`otmoe.text.strict_json.parse` returns it.
    source : str
        Where the document comes from; errors begin with it.
    limits : Limits, optional
        For what comes from elsewhere.
    """
    if "otmoe" not in document:
        fail(source, "otmoe", Error.KIND_MISSING)
    kind = document["otmoe"]
    check_version(document, source)
    record: LocalModelRecord | ModelFileRecord
    if kind == "local model":
        record = typed(LocalModelRecord, document, source)
    elif kind == "model":
        record = typed(ModelFileRecord, document, source)
    else:
        fail(
            source,
            "otmoe",
            Error.OTHER_DOCUMENT,
            kind=shown(kind),
            wanted='"local model" or "model"',
        )
    model = record.model
    check_model(model, record.features, source, limits)
    if isinstance(record, LocalModelRecord):
        _check_constant(record, source)
        if record.grams is not None:
            _check_grams(record.grams, record, source)
        if record.sketch is not None:
            check_sketch(record.sketch, _names(model), source)
        if record.support is not None:
            _check_support(record.support, len(_names(model)), source)
    elif record.aggregation is not None:
        coef, n_parameters = np.shape(model.experts["coef"]), _n_parameters(model)
        check_aggregation(record.aggregation, coef[0], coef[-1] - 1, n_parameters, source, limits)
    return record


def _n_parameters(model: ModelRecord) -> int:
    """Return the number of free parameters, as :attr:`MoE.n_parameters` has it."""
    shape = np.shape(model.experts["coef"])
    K, p, columns = shape[0], shape[-1], model.gate.columns
    rows = shape[1] - 1 if len(shape) == 3 else 1  # the last class is the reference
    gate = (K - 1) * (p if columns is None else len(columns))
    return gate + K * rows * p + K * (len(model.experts) - 1)


def check_model(
    model: ModelRecord, features: FeaturesRecord | None, source: str, limits: Limits | None
) -> None:
    """Check a model and the features beside it; its experts become those of its family."""
    experts = typed(experts_record(model.family), model.experts, source, ("model", "experts"))
    model.experts.clear()
    model.experts.update(experts)
    _check_parts(model, source, limits)
    if features is not None:
        _check_features(features, model, source)


def _check_parts(model: ModelRecord, source: str, limits: Limits | None) -> None:
    """Check that the parts of a model agree; the shape is that of the experts' coefficients."""
    coef, gate = model.experts["coef"], model.gate
    shape = _shape(coef, "model.experts.coef", source)
    K, p = shape[0], shape[-1]
    if limits is not None:
        limits.check("experts", K, source)
        limits.check("features", p - 1, source)
        limits.check("classes", shape[1] if len(shape) == 3 else 0, source)
    for name, value in model.experts.items():
        _check_shape(value, shape if name == "coef" else (K,), f"model.experts.{name}", source)
    _check_shape(gate.coef, (K, p), "model.gate.coef", source)
    if len(shape) == 3:
        if shape[1] < 2:
            fail(source, "model.experts.coef[0]", Error.ONE_CLASS)
        reference = np.arange(shape[1])[:, None] == shape[1] - 1
        reason = "the last class is the reference"
        _check_zero(np.array(coef), reference, "model.experts.coef", reason, source)
    _check_columns(gate.columns, p, source)
    reference = np.arange(K)[:, None] == K - 1
    reason = "the last expert is the reference"
    _check_zero(np.array(gate.coef), reference, "model.gate.coef", reason, source)
    if gate.columns is not None:
        unused = ~np.isin(np.arange(p), gate.columns)
        reason = "`model.gate.columns` leaves this column out"
        _check_zero(np.array(gate.coef), unused, "model.gate.coef", reason, source)
    names = model.feature_names
    if names is not None:
        if len(names) != p - 1:
            fail(
                source,
                "model.feature_names",
                Error.LENGTH_OF_NAMES,
                length=len(names),
                wanted=p - 1,
            )
        check_distinct(names, "model.feature_names", source)
    if model.classes is not None:
        n_classes = shape[1] if len(shape) == 3 else 2 if model.family == "logistic" else 0
        _check_classes(model.classes, n_classes, source)


def _shape(value: Any, path: str, source: str) -> tuple[int, ...]:
    """Return the lengths of nested lists, as the first of each level has it."""
    lengths: list[int] = []
    while isinstance(value, list):
        if not value:
            fail(source, path + "[0]" * len(lengths), Error.EMPTY)
        lengths.append(len(value))
        value = value[0]
    return tuple(lengths)


def _check_shape(value: Any, shape: tuple[int, ...], path: str, source: str) -> None:
    if len(value) != shape[0]:
        fail(source, path, Error.LENGTH_OF_MODEL, length=len(value), wanted=shape[0])
    if len(shape) > 1:
        for i, part in enumerate(value):
            _check_shape(part, shape[1:], f"{path}[{i}]", source)


def _check_zero(array: Floats, where: Floats, path: str, reason: str, source: str) -> None:
    """Refuse an array that is not zero where it has to be."""
    for index in np.argwhere((array != 0) & where)[:1].tolist():
        place = path + "".join(f"[{i}]" for i in index)
        fail(source, place, Error.NOT_ZERO, value=shown(float(array[tuple(index)])), reason=reason)


def _check_columns(columns: list[int] | None, p: int, source: str) -> None:
    path = "model.gate.columns"
    if columns is None:
        return
    for i, column in enumerate(columns):
        if not 0 <= column < p:
            fail(source, f"{path}[{i}]", Error.GATE_COLUMN, value=shown(column), last=p - 1)
    check_distinct(columns, path, source)
    if 0 not in columns:
        fail(source, path, Error.GATE_WITHOUT_INTERCEPT)


def _check_classes(classes: list[Any], n_classes: int, source: str) -> None:
    path = "model.classes"
    if n_classes == 0:
        fail(source, path, Error.NO_CLASSES_HERE)
    if len(classes) != n_classes:
        fail(source, path, Error.LENGTH_OF_CLASSES, length=len(classes), wanted=n_classes)
    check_distinct(classes, path, source)
    for i, label in enumerate(classes):  # NumPy gives all of them the room of the longest
        if isinstance(label, str) and len(label) > LONGEST_NAME:
            sizes = {"length": len(label), "most": LONGEST_NAME}
            fail(source, f"{path}[{i}]", Error.LABEL_TOO_LONG, **sizes)
    # What NumPy makes of numbers has to be the same labels: no mixture of types, nothing cut off.
    if all(isinstance(label, str) for label in classes):
        return
    array = np.array([None if isinstance(label, str) else label for label in classes])
    one_type = len({isinstance(label, bool) for label in classes}) == 1
    if not one_type or array.dtype.kind not in "biuf" or array.tolist() != classes:
        fail(source, path, Error.CLASSES_MIXED)


def _check_features(features: FeaturesRecord, model: ModelRecord, source: str) -> None:
    """Check that a model is one of these features."""
    check_features(features, source, "features.")
    names, d = FeatureSpec.from_record(features).feature_names, len(model.gate.coef[0]) - 1
    if len(names) != d:
        fail(source, "features", Error.FEATURES_COUNT, features=len(names), wanted=d)
    for name, other in zip(names, model.feature_names or names, strict=True):
        if name != other:
            fail(source, "features", Error.FEATURES_OTHER, name=shown(name), wanted=shown(other))


def _check_grams(grams: GramsRecord, record: LocalModelRecord, source: str) -> None:
    shape = np.shape(record.model.experts["coef"])
    size = shape[-1] * (shape[1] - 1 if len(shape) == 3 else 1)
    check_grams(grams, shape[0], size, record.n_samples, source)


def _check_constant(record: LocalModelRecord, source: str) -> None:
    known = set(_names(record.model))
    for name in record.constant_features:
        if name not in known:
            place = path_of(("constant_features", name))
            fail(source, place, Error.NOT_A_FEATURE)


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
