"""The model inside every other document: its fields, the checks on them, both conversions.

Pydantic checks types; then the fields have to agree with each other. An error is one sentence,
which names the place by a path such as ``model.experts.var[2]``.
"""

from __future__ import annotations

import json
import platform
from dataclasses import fields
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, create_model

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec, FeaturesRecord, check_features
from otmoe.documents.structure import (
    StructureRecord,
    check_columns,
    check_structure,
    structure_document,
    structure_of,
)
from otmoe.model.experts import FAMILIES, Experts
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import ExpertPer, MoE
from otmoe.text.errors import MessageError, fail
from otmoe.text.records import (
    LONGEST_NAME,
    Label,
    List,
    Matrix,
    Name,
    Positive,
    Record,
    Whole,
    check_distinct,
    problem,
    typed,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, shown

# -- fields --------------------------------------------------------------------------------------


def _family(name: str) -> str:
    if name not in FAMILIES:
        known = ", ".join([*(json.dumps(family) for family in FAMILIES), FAMILIES.more])
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
    response_names: List[Name] | None = None
    gate: GateRecord
    experts: dict[str, Any]
    structure: StructureRecord | None = None
    expert_per: ExpertPer = "row"


def experts_record(family: str) -> type[Record]:
    """Return the fields of a family: coefficients, and dispersions where it has them."""
    return _experts_record(FAMILIES[family])


@lru_cache(maxsize=1024)
def _experts_record(family: type[Experts]) -> type[Record]:
    blank = family.blank(1, 1)
    by_dimension: dict[int, Any] = {1: List[Positive], 2: Matrix, 3: List[Matrix]}
    types: dict[str, Any] = {
        field.name: (by_dimension[getattr(blank, field.name).ndim], ...) for field in fields(blank)
    }
    if "scales" in types:  # of several responses
        types["scales"] = (List[List[Positive]], ...)
    return create_model("ExpertsRecord", __base__=Record, **types)


# -- checks --------------------------------------------------------------------------------------


def check_model(
    model: ModelRecord,
    features: FeaturesRecord | None,
    source: str,
    limits: Limits | None,
    at: str = "model",
) -> None:
    """Check a model and the features beside it; its experts become those of its family."""
    place = (*at.split("."), "experts")
    experts = typed(experts_record(model.family), model.experts, source, place)
    model.experts.clear()
    model.experts.update(experts)
    _check_parts(model, source, limits, at)
    if features is not None:
        _check_features(features, model, source)


def _check_parts(model: ModelRecord, source: str, limits: Limits | None, at: str) -> None:
    """Check that the parts of a model agree; the shape is that of the experts' coefficients."""
    coef, gate = model.experts["coef"], model.gate
    shape = _shape(coef, f"{at}.experts.coef", source)
    K, p, family = shape[0], shape[-1], FAMILIES[model.family]
    n_classes = family.n_classes_of(shape)
    if limits is not None:
        limits.check("experts", K, source)
        limits.check("features", p - 1, source)
        limits.check("classes", shape[1] if len(shape) == 3 else 0, source)
    blank = family.blank(K, p, n_classes or 2)
    for name, value in model.experts.items():
        wanted = shape if n_classes and name == "coef" else np.shape(getattr(blank, name))
        _check_shape(value, wanted, f"{at}.experts.{name}", source)
    _check_shape(gate.coef, (K, p), f"{at}.gate.coef", source)
    if n_classes and len(shape) == 3:
        if shape[1] < 2:
            fail(source, f"{at}.experts.coef[0]", Error.ONE_CLASS)
        reference = np.arange(shape[1])[:, None] == shape[1] - 1
        reason = "the last class is the reference"
        _check_zero(np.array(coef), reference, f"{at}.experts.coef", reason, source)
    if gate.columns is not None:
        check_columns(gate.columns, p, f"{at}.gate.columns", source)
        if 0 not in gate.columns:
            fail(source, f"{at}.gate.columns", Error.GATE_WITHOUT_INTERCEPT)
    reference = np.arange(K)[:, None] == K - 1
    reason = "the last expert is the reference"
    _check_zero(np.array(gate.coef), reference, f"{at}.gate.coef", reason, source)
    if gate.columns is not None:
        unused = ~np.isin(np.arange(p), gate.columns)
        reason = f"`{at}.gate.columns` leaves this column out"
        _check_zero(np.array(gate.coef), unused, f"{at}.gate.coef", reason, source)
    if model.structure is not None:
        check_structure(model.structure, FAMILIES[model.family], model.experts, p, at, source)
    names = model.feature_names
    if names is not None:
        if len(names) != p - 1:
            fail(
                source,
                f"{at}.feature_names",
                Error.LENGTH_OF_NAMES,
                length=len(names),
                wanted=p - 1,
            )
        check_distinct(names, f"{at}.feature_names", source)
    if model.response_names is not None:
        _check_responses(model.response_names, family, f"{at}.response_names", source)
    if model.classes is not None:
        _check_classes(model.classes, n_classes, f"{at}.classes", source)


def _check_responses(names: list[str], family: type[Experts], path: str, source: str) -> None:
    wanted = len(getattr(family, "kinds", ()))
    if len(names) != wanted:
        fail(source, path, Error.LENGTH_OF_RESPONSES, length=len(names), wanted=wanted)
    check_distinct(names, path, source)


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


def _check_classes(classes: list[Any], n_classes: int, path: str, source: str) -> None:
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


# -- conversions ---------------------------------------------------------------------------------


def model_document(model: MoE) -> dict[str, Any]:
    """Return a model as it stands in a document."""
    gate, experts = model.gate, model.experts
    if not isinstance(gate, SoftmaxGate):
        raise MessageError(Error.GATE_WITHOUT_FILE, where="model", kind=type(gate).__name__)
    labels = getattr(experts, "labels", ())
    return {
        "family": experts.family,
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "classes": None if model.classes is None else np.asarray(model.classes).tolist(),
        **({"response_names": list(labels)} if labels else {}),
        "gate": {
            "coef": np.asarray(gate.coef).tolist(),
            "columns": None if gate.columns is None else [int(j) for j in gate.columns],
        },
        "experts": {f.name: np.asarray(getattr(experts, f.name)).tolist() for f in fields(experts)},
        **({} if model.structure is None else {"structure": structure_document(model.structure)}),
        **({} if model.expert_per == "row" else {"expert_per": model.expert_per}),
    }


def model_of(record: ModelRecord) -> MoE:
    """Return the model of a checked record."""
    columns = record.gate.columns
    parameters = {name: np.array(value, np.float64) for name, value in record.experts.items()}
    return MoE(
        SoftmaxGate(
            np.array(record.gate.coef, np.float64), None if columns is None else tuple(columns)
        ),
        FAMILIES[record.family].called(record.response_names or ())(**parameters),
        None if record.feature_names is None else tuple(record.feature_names),
        None if record.classes is None else np.array(record.classes),
        structure_of(record.structure),
        record.expert_per,
    )


def features_part(features: FeatureSpec | None) -> dict[str, Any]:
    """Return the field of a document that holds a specification, if there is one."""
    return {} if features is None else {"features": features.body()}


def features_of(record: FeaturesRecord | None) -> FeatureSpec | None:
    """Return the specification of a checked record, if there is one."""
    return None if record is None else FeatureSpec.from_record(record)


_version = cache(version)  # which reads a file


def versions_used() -> dict[str, str]:
    """Return the versions of otmoe, Python and NumPy, by name."""
    return {
        "otmoe": _version("otmoe"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
