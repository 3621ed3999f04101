"""Sketches in messages: their fields, the checks on them, and both ways of conversion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec
from otmoe.data.sketch import Sketch, derived_of
from otmoe.text.errors import MessageError, fail
from otmoe.text.records import List, Map, Matrix, Name, Number, Positive, Record, adds_up
from otmoe.text.sentences import Error
from otmoe.text.strict_json import path_of, shown

Share = Annotated[float, Field(ge=0, le=1)]


class UnitRecord(Record):
    """A feature that is (value - center) / scale."""

    center: Number
    scale: Positive


class CategoryRecord(Record):
    """Dummies that belong together, and the probabilities of the levels in each component."""

    features: List[Name]
    prob: List[List[Share]]


class SketchRecord(Record):
    """A small mixture of a site's covariates."""

    weight: List[Positive]
    numbers: List[Name] = []
    mean: Matrix
    cov: Matrix
    whole: List[Name] = []
    not_negative: List[Name] = []
    categories: List[CategoryRecord] = []
    constant: Map[Name, Number] = {}
    units: Map[Name, UnitRecord] = {}


def document_of(sketch: Sketch, names: Sequence[str]) -> dict[str, Any]:
    """Return a sketch as it stands in a message; `names` are those of the d features.

    Those of derived features come last, and are not in it.
    """
    if sketch.derived is not None:
        names = names[: sketch.derived.n_base]
    if sketch.n_features != len(names):
        raise MessageError(
            Error.SKETCH_OF_OTHER_FEATURES, features=sketch.n_features, wanted=len(names)
        )
    upper = np.triu_indices(len(sketch.numbers))

    def named(columns: Iterable[int]) -> list[str]:
        return [names[j] for j in columns]

    return {
        "weight": sketch.weight.tolist(),
        "numbers": named(sketch.numbers),
        "mean": sketch.mean.tolist(),
        "cov": [cov[upper].tolist() for cov in sketch.cov],
        "whole": named(sketch.whole),
        "not_negative": named(sketch.not_negative),
        "categories": [
            {"features": named(columns), "prob": prob.tolist()}
            for columns, prob in zip(sketch.categories, sketch.prob, strict=True)
        ],
        "constant": {names[j]: value for j, value in sketch.constant.items()},
        "units": {
            names[j]: {"center": center, "scale": scale}
            for j, (center, scale) in sketch.units.items()
        },
    }


def sketch_of(
    record: SketchRecord, names: Sequence[str], features: FeatureSpec | None = None
) -> Sketch:
    """Return the sketch of a checked record; `names` are those of all features."""
    place = {name: j for j, name in enumerate(names)}
    q = len(record.numbers)

    def columns(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(place[name] for name in names)

    return Sketch(
        np.array(record.weight),
        columns(record.numbers),
        np.array(record.mean, np.float64),
        np.array([symmetric(cov, q) for cov in record.cov]),
        tuple(columns(category.features) for category in record.categories),
        tuple(np.array(category.prob) for category in record.categories),
        {place[name]: value for name, value in record.constant.items()},
        columns(record.whole),
        columns(record.not_negative),
        {place[name]: (unit.center, unit.scale) for name, unit in record.units.items()},
        derived_of(features),
    )


def symmetric(triangle: list[float], size: int) -> Floats:
    """Return the symmetric matrix whose upper triangle is given row by row."""
    matrix = np.zeros((size, size))
    rows, columns = np.triu_indices(size)
    matrix[rows, columns] = matrix[columns, rows] = triangle
    return matrix


# -- checks --------------------------------------------------------------------------------------


def check_sketch(record: SketchRecord, names: Sequence[str], source: str) -> None:
    """Check that the parts of a sketch agree with each other and with the model's features.

    Parameters
    ----------
    record : SketchRecord
    names : sequence of d str
        The features of the model, less derived ones.
    source : str
        Where the message comes from; an error begins with it.
    """
    _check_names(record, names, source)
    G, q = len(record.weight), len(record.numbers)
    _check_sum(record.weight, "sketch.weight", source)
    for name, table, size in [
        ("mean", record.mean, q),
        ("cov", record.cov, q * (q + 1) // 2),
        *(
            (f"categories[{i}].prob", category.prob, len(category.features) + 1)
            for i, category in enumerate(record.categories)
        ),
    ]:
        if len(table) != G:
            fail(source, f"sketch.{name}", Error.ROWS_OF_SKETCH, rows=len(table), wanted=G)
        for g, row in enumerate(table):
            if len(row) != size:
                fail(source, f"sketch.{name}[{g}]", Error.LENGTH, length=len(row), wanted=size)
    for g, triangle in enumerate(record.cov):
        try:
            np.linalg.cholesky(symmetric(triangle, q))
        except np.linalg.LinAlgError:
            fail(source, f"sketch.cov[{g}]", Error.NOT_A_COVARIANCE)
    for i, category in enumerate(record.categories):
        for g, row in enumerate(category.prob):
            _check_sum(row, f"sketch.categories[{i}].prob[{g}]", source)


def _check_names(record: SketchRecord, names: Sequence[str], source: str) -> None:
    """Check that every feature is of one kind, and that lists of numbers name numbers."""
    known, seen = set(names), set[str]()
    lists = [("sketch.numbers", record.numbers), ("sketch.constant", list(record.constant))]
    for i, category in enumerate(record.categories):
        lists.append((f"sketch.categories[{i}].features", category.features))
    for path, found in lists:
        for name in found:
            if name not in known:
                fail(source, path, Error.NAMES_NO_FEATURE, name=shown(name))
            if name in seen:
                fail(source, path, Error.NAMED_TWICE, name=shown(name))
            seen.add(name)
    for name in names:
        if name not in seen:
            fail(source, "sketch", Error.SKETCH_LACKS, name=shown(name))
    for path, found in (("whole", record.whole), ("not_negative", record.not_negative)):
        for name in found:
            if name not in record.numbers:
                fail(source, f"sketch.{path}", Error.NAMES_NO_NUMBER, name=shown(name))
    for name in record.units:
        if name not in seen:
            fail(source, path_of(("sketch", "units", name)), Error.NOT_A_FEATURE)


def _check_sum(values: list[float], path: str, source: str) -> None:
    if not adds_up(sum(values), 1.0):
        fail(source, path, Error.SUM_NOT_ONE, total=sum(values))
