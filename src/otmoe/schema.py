"""The fields of messages and model files, and the checks on them.

Pydantic sees to types; then the fields have to agree with each other. What is wrong is said in one
sentence, which names its place by a path such as ``model.experts.var[2]``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar
from unicodedata import category

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)
from pydantic_core import PydanticCustomError

from otmoe.experts import FAMILIES, Experts
from otmoe.jsontext import Twice, fail, path_of, shown
from otmoe.numerics import Floats

SCHEMA_VERSION = 1

_LONGEST_SITE = 200

# -- types ---------------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    """Let 3.0 pass for 3: languages with one type of number write that."""
    return int(value) if type(value) is float and value.is_integer() else value


def _text(allowed: str) -> Callable[[str], str]:
    """Refuse control characters, which could forge lines or colours on somebody's screen."""

    def check(text: str) -> str:
        for character in text:
            if category(character) in ("Cc", "Cs", "Zl", "Zp") and character not in allowed:
                raise PydanticCustomError(
                    "otmoe",
                    "holds the control character U+{code}; remove it.",
                    {"code": f"{ord(character):04X}"},
                )
        return text

    return check


def _site(site: str) -> str:
    if not site.strip():
        raise PydanticCustomError("otmoe", "is empty; give the site a name.")
    if len(site) > _LONGEST_SITE:
        raise PydanticCustomError(
            "otmoe",
            "has {length} characters; give a name of at most {most}.",
            {"length": len(site), "most": _LONGEST_SITE},
        )
    return site


def _family(name: str) -> str:
    if name not in FAMILIES:
        known = ", ".join(json.dumps(family) for family in FAMILIES)
        raise PydanticCustomError(
            "otmoe",
            "is {name}; this version of otmoe knows {known}: use one of these, or update it.",
            {"name": shown(name), "known": known},
        )
    return name


def _label(value: Any) -> Any:
    if isinstance(value, str):
        return _text("\t\n\r")(value)
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise PydanticCustomError(
        "otmoe", "is {value}; give text, a number, true or false.", {"value": shown(value)}
    )


# One wrong entry is enough to refuse a list: a million of them are not gathered.
T = TypeVar("T")
List = Annotated[list[T], Field(fail_fast=True)]
Row = List[float]
Matrix = List[Row]
Positive = Annotated[float, Field(gt=0)]
Whole = Annotated[int, BeforeValidator(_whole)]
Line = Annotated[str, AfterValidator(_text(""))]
Name = Annotated[str, AfterValidator(_text("\t\n\r"))]
Label = Annotated[Any, AfterValidator(_label)]

# -- fields --------------------------------------------------------------------------------------


class Record(BaseModel):
    """Fields and their types, exactly: nothing converted, nothing more, nothing infinite."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


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
    site: Annotated[Line, AfterValidator(_site)]
    n_samples: Positive
    log_likelihood: float
    fit: FitRecord
    constant_features: dict[str, float] = {}
    model: ModelRecord
    versions: dict[Line, Line] = {}


class ModelFileRecord(Record):
    """A model alone, and what its author wanted to say about it."""

    otmoe: Literal["model"]
    schema_version: Whole
    about: dict[Line, Label] = {}
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
    kind, version = document["otmoe"], document.get("schema_version")
    if type(version) not in (int, float) or version != SCHEMA_VERSION:
        fail(
            source,
            "schema_version",
            f"is {shown(version)}; this version of otmoe reads {SCHEMA_VERSION}: update otmoe, or "
            f"ask for the file in version {SCHEMA_VERSION}.",
        )
    record: LocalModelRecord | ModelFileRecord
    if kind == "local model":
        record = _typed(LocalModelRecord, document, source)
    elif kind == "model":
        record = _typed(ModelFileRecord, document, source)
    else:
        fail(source, "otmoe", f'is {shown(kind)}; give "local model" or "model".')
    model = record.model
    experts = _experts_record(FAMILIES[model.family])
    model.experts.update(_typed(experts, model.experts, source, ("model", "experts")))
    _check_model(model, source)
    if isinstance(record, LocalModelRecord):
        _check_constant(record, source)
    return record


R = TypeVar("R", bound=Record)


def _typed(
    schema: type[R], value: dict[str, Any], source: str, place: tuple[int | str, ...] = ()
) -> R:
    """Let pydantic check a part of a document, and report the first thing that it finds."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    twice = [error for error in errors if isinstance(error["input"], Twice)]
    first = (twice or errors)[0]
    if twice:
        place, problem = (*first["loc"], first["input"].key), "occurs twice; keep one of the two."
    elif first["type"] == "otmoe":
        place, problem = (*place, *first["loc"]), first["msg"]
    else:
        problem = _PROBLEMS.get(first["type"], f"is {{value}}; {first['msg']}.")
        place, problem = (*place, *first["loc"]), problem.format(value=shown(first["input"]))
    fail(source, path_of(place), problem)


_PROBLEMS = {
    "missing": "is missing; add it.",
    "extra_forbidden": f"is not a field of schema version {SCHEMA_VERSION}; remove it.",
    "float_type": "is {value}; give a number.",
    "finite_number": "is {value}; give a finite number.",
    "greater_than": "is {value}; give a number above 0.",
    "int_type": "is {value}; give a whole number.",
    "bool_type": "is {value}; give true or false.",
    "string_type": "is {value}; give text.",
    "list_type": "is {value}; give a list.",
    "dict_type": "is {value}; give an object.",
    "model_type": "is {value}; give an object.",
}
"""What to say about the errors of pydantic, by their names there."""


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
        _check_distinct(names, "model.feature_names", source)
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
    _check_distinct(columns, path, source)
    if 0 not in columns:
        fail(source, path, "lacks 0, the intercept; add it.")


def _check_classes(classes: list[Any], n_classes: int, source: str) -> None:
    path = "model.classes"
    if n_classes == 0:
        fail(source, path, "is a list, but this family has no classes; give null.")
    if len(classes) != n_classes:
        fail(source, path, f"has {len(classes)} labels; give {n_classes}, as the experts have.")
    _check_distinct(classes, path, source)
    # What NumPy makes of them has to be the same labels: no mixture of types, nothing cut off.
    array = np.array(classes)
    one_type = len({isinstance(label, bool) for label in classes}) == 1
    if not one_type or array.dtype.kind not in "biufU" or array.tolist() != classes:
        fail(source, path, "mixes types or has too large numbers; give labels of one type.")


def _check_distinct(values: list[Any], path: str, source: str) -> None:
    seen = set()
    for i, value in enumerate(values):
        if value in seen:
            fail(source, f"{path}[{i}]", f"is {shown(value)} a second time; give each once.")
        seen.add(value)


def _check_constant(record: LocalModelRecord, source: str) -> None:
    names, d = record.model.feature_names, len(record.model.gate.coef[0]) - 1
    known = set(f"x{j}" for j in range(d)) if names is None else set(names)
    for name in record.constant_features:
        if name not in known:
            place = path_of(("constant_features", name))
            fail(source, place, "is no feature of the model; use the names of the model.")
