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
from pydantic_core import PydanticCustomError

from otmoe.experts import FAMILIES, Experts
from otmoe.features import FeatureSpec, FeaturesRecord, check_features
from otmoe.grams import GramsRecord, check_grams
from otmoe.jsontext import fail, path_of, shown
from otmoe.numerics import Floats
from otmoe.records import (
    Label,
    Line,
    List,
    Matrix,
    Name,
    Positive,
    Record,
    Site,
    Whole,
    check_distinct,
    check_version,
    typed,
)

# -- fields --------------------------------------------------------------------------------------


def _family(name: str) -> str:
    if name not in FAMILIES:
        known = ", ".join(json.dumps(family) for family in FAMILIES)
        raise PydanticCustomError(
            "otmoe",
            "is {name}; this version of otmoe knows {known}: use one of these, or update it.",
            {"name": shown(name), "known": known},
        )
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
    status: Line
    warnings: List[Line] = []


class LocalModelRecord(Record):
    """What a site sends."""

    otmoe: Literal["local model"]
    schema_version: Whole
    site: Site
    n_samples: Positive
    log_likelihood: float
    fit: FitRecord
    constant_features: dict[str, float] = {}
    features: FeaturesRecord | None = None
    model: ModelRecord
    grams: GramsRecord | None = None
    versions: dict[Line, Line] = {}


class ModelFileRecord(Record):
    """A model alone, and what its author wanted to say about it."""

    otmoe: Literal["model"]
    schema_version: Whole
    about: dict[Line, Label] = {}
    features: FeaturesRecord | None = None
    model: ModelRecord
    versions: dict[Line, Line] = {}


@cache
def _experts_record(family: type[Experts]) -> type[Record]:
    """Return the fields of a family: coefficients, and dispersions where it has them."""
    blank = family.blank(1, 1)
    by_dimension: dict[int, Any] = {1: List[Positive], 2: Matrix, 3: List[Matrix]}
    types: dict[str, Any] = {
        field.name: (by_dimension[getattr(blank, field.name).ndim], ...) for field in fields(blank)
    }
    return create_model("ExpertsRecord", __base__=Record, **types)


# -- checks --------------------------------------------------------------------------------------


def check(document: dict[str, Any], source: str) -> LocalModelRecord | ModelFileRecord:
    """Return a document as a record, or say what is wrong with it.

    Parameters
    ----------
    document : dict
        As :func:`otmoe.jsontext.parse` returns it.
    source : str
        Where the document comes from; errors begin with it.
    """
    if "otmoe" not in document:
        fail(source, "otmoe", 'is missing; an otmoe file says "local model" or "model" there.')
    kind = document["otmoe"]
    check_version(document, source)
    record: LocalModelRecord | ModelFileRecord
    if kind == "local model":
        record = typed(LocalModelRecord, document, source)
    elif kind == "model":
        record = typed(ModelFileRecord, document, source)
    else:
        fail(source, "otmoe", f'is {shown(kind)}; give "local model" or "model".')
    model = record.model
    experts = _experts_record(FAMILIES[model.family])
    model.experts.update(typed(experts, model.experts, source, ("model", "experts")))
    _check_model(model, source)
    if record.features is not None:
        _check_features(record.features, model, source)
    if isinstance(record, LocalModelRecord):
        _check_constant(record, source)
        if record.grams is not None:
            _check_grams(record.grams, record, source)
    return record


def _check_model(model: ModelRecord, source: str) -> None:
    """Check that the parts of a model agree; the shape is that of the experts' coefficients."""
    coef, gate = model.experts["coef"], model.gate
    shape = _shape(coef, "model.experts.coef", source)
    K, p = shape[0], shape[-1]
    for name, value in model.experts.items():
        _check_shape(value, shape if name == "coef" else (K,), f"model.experts.{name}", source)
    _check_shape(gate.coef, (K, p), "model.gate.coef", source)
    if len(shape) == 3:
        if shape[1] < 2:
            fail(source, "model.experts.coef[0]", "has a row for one class; give two or more.")
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
                f"has {len(names)} names; give {p - 1}, one for each coefficient after the "
                "intercept.",
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
            fail(source, path + "[0]" * len(lengths), "is empty; give coefficients.")
        lengths.append(len(value))
        value = value[0]
    return tuple(lengths)


def _check_shape(value: Any, shape: tuple[int, ...], path: str, source: str) -> None:
    if len(value) != shape[0]:
        fail(
            source,
            path,
            f"has {len(value)} entries; give {shape[0]}, to agree with the start of "
            "`model.experts.coef`.",
        )
    if len(shape) > 1:
        for i, part in enumerate(value):
            _check_shape(part, shape[1:], f"{path}[{i}]", source)


def _check_zero(array: Floats, where: Floats, path: str, reason: str, source: str) -> None:
    """Refuse an array that is not zero where it has to be."""
    for index in np.argwhere((array != 0) & where)[:1].tolist():
        place = path + "".join(f"[{i}]" for i in index)
        fail(source, place, f"is {shown(float(array[tuple(index)]))}; give 0: {reason}.")


def _check_columns(columns: list[int] | None, p: int, source: str) -> None:
    path = "model.gate.columns"
    if columns is None:
        return
    for i, column in enumerate(columns):
        if not 0 <= column < p:
            fail(source, f"{path}[{i}]", f"is {shown(column)}; columns go from 0 to {p - 1}.")
    check_distinct(columns, path, source)
    if 0 not in columns:
        fail(source, path, "lacks 0, the intercept; add it.")


def _check_classes(classes: list[Any], n_classes: int, source: str) -> None:
    path = "model.classes"
    if n_classes == 0:
        fail(source, path, "is a list, but this family has no classes; give null.")
    if len(classes) != n_classes:
        fail(source, path, f"has {len(classes)} labels; give {n_classes}, as the experts have.")
    check_distinct(classes, path, source)
    # What NumPy makes of them has to be the same labels: no mixture of types, nothing cut off.
    array = np.array(classes)
    one_type = len({isinstance(label, bool) for label in classes}) == 1
    if not one_type or array.dtype.kind not in "biufU" or array.tolist() != classes:
        fail(source, path, "mixes types or has too large numbers; give labels of one type.")


def _check_features(features: FeaturesRecord, model: ModelRecord, source: str) -> None:
    """Check that a model is one of these features."""
    check_features(features, source, "features.")
    names, d = FeatureSpec.from_record(features).feature_names, len(model.gate.coef[0]) - 1
    if len(names) != d:
        fail(source, "features", f"makes {len(names)} features, but the model has {d}; mend it.")
    for name, other in zip(names, model.feature_names or names, strict=True):
        if name != other:
            problem = (
                f"makes {shown(name)} where `model.feature_names` has {shown(other)}; mend it."
            )
            fail(source, "features", problem)


def _check_grams(grams: GramsRecord, record: LocalModelRecord, source: str) -> None:
    shape = np.shape(record.model.experts["coef"])
    size = shape[-1] * (shape[1] - 1 if len(shape) == 3 else 1)
    check_grams(grams, shape[0], size, record.n_samples, source)


def _check_constant(record: LocalModelRecord, source: str) -> None:
    names, d = record.model.feature_names, len(record.model.gate.coef[0]) - 1
    known = set(f"x{j}" for j in range(d)) if names is None else set(names)
    for name in record.constant_features:
        if name not in known:
            place = path_of(("constant_features", name))
            fail(source, place, "is no feature of the model; use the names of the model.")
