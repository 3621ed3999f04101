"""The structure of a model in documents: its fields, the checks on them, both conversions."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.model.experts import Experts
from otmoe.model.structure import LOG_OF_NOTHING, Structure, takes_zeros
from otmoe.text.errors import fail
from otmoe.text.records import List, Name, Record, Whole, check_distinct
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown


class StructureRecord(Record):
    """What experts use and share; columns are those of the design, 0 is the intercept."""

    columns: List[List[Whole]] | None = None
    response_columns: List[List[List[Whole]]] | None = None
    common: List[Whole] = []
    common_variance: bool = False
    names: List[Name] | None = None


def structure_document(structure: Structure) -> dict[str, Any]:
    """Return a structure as it stands in a document."""
    names, written = structure.names, [[list(seen) for seen in own] for own in structure.sets]
    if len({len(own) for own in written} - {1}):
        where: dict[str, Any] = {"columns": None, "response_columns": written}
    else:
        where = {"columns": [own[0] for own in written] or None}
    return {
        **where,
        "common": list(structure.common),
        "common_variance": structure.common_variance,
        "names": None if names is None else list(names),
    }


def structure_of(record: StructureRecord | None) -> Structure | None:
    """Return the structure of a checked record."""
    if record is None:
        return None
    columns, names = _columns(record), record.names
    return Structure(
        None if columns is None else tuple(tuple(map(tuple, own)) for own in columns),
        tuple(record.common),
        record.common_variance,
        None if names is None else tuple(names),
    )


def check_columns(columns: list[int], p: int, path: str, source: str) -> None:
    """Refuse columns of the design that are not there, or twice."""
    for i, column in enumerate(columns):
        if not 0 <= column < p:
            fail(source, f"{path}[{i}]", Error.GATE_COLUMN, value=shown(column), last=p - 1)
    check_distinct(columns, path, source)


def _columns(record: StructureRecord) -> list[list[list[int]]] | None:
    """Return the columns by expert and response, where they are given."""
    if record.columns is not None:
        return [[own] for own in record.columns]
    return record.response_columns


def check_structure(
    record: StructureRecord,
    kind: type[Experts],
    experts: dict[str, Any],
    n_columns: int,
    at: str,
    source: str,
) -> None:
    """Check a structure, and that the experts beside it have it.

    Parameters
    ----------
    record : StructureRecord
    kind : type of Experts
        The family.
    experts : dict
        Fields of the experts, of checked shapes.
    n_columns : int
    at : str
        Path of the model.
    source : str
    """
    here, coef = f"{at}.structure", np.array(experts["coef"], np.float64)
    K, each = len(coef), coef.reshape(len(coef), -1, n_columns)
    _check_sets(record, kind, K, n_columns, here, source)
    structure = structure_of(record)
    assert structure is not None
    sees = structure.sees(K, each.shape[1], n_columns)
    sees[structure.zeros] = True
    wrong = np.argwhere(((each != 0) & ~sees).reshape(coef.shape))
    if len(wrong):
        place = "".join(f"[{i}]" for i in wrong[0].tolist())
        value = shown(float(coef[tuple(wrong[0])]))
        reason = f"`{here}.{_field(record)}` leaves this column out"
        fail(source, f"{at}.experts.coef{place}", Error.NOT_ZERO, value=value, reason=reason)
    for k in structure.zeros:
        if np.any(coef[k].ravel() != [LOG_OF_NOTHING, *[0.0] * (coef[k].size - 1)]):
            fail(source, f"{at}.experts.coef[{k}]", Error.NOT_A_ZERO, intercept=LOG_OF_NOTHING)
    sees[structure.zeros] = False
    for q, j in product(range(each.shape[1]), record.common):
        if not _same(each[sees[:, q, j], q, j]):
            field = f"{here}.common"
            fail(source, f"{at}.experts.coef", Error.NOT_COMMON, field=field)
    if record.common_variance:
        for name, values in experts.items():
            if name != "coef" and not _same(np.array(values, np.float64)):
                field = f"{here}.common_variance"
                fail(source, f"{at}.experts.{name}", Error.NOT_COMMON, field=field)


def _same(values: Floats) -> bool:
    """Say whether numbers of experts, on the first axis, are the same but for rounding."""
    return bool(np.all(np.abs(values - values[:1]) <= 1e-8 * np.abs(values[:1])))


def _field(record: StructureRecord) -> str:
    """Return the name of the field that says which columns experts use."""
    return "columns" if record.columns is not None else "response_columns"


def _check_sets(
    record: StructureRecord, kind: type[Experts], K: int, p: int, here: str, source: str
) -> None:
    """Check the columns of experts and responses: how many, whether they exist, not none."""
    columns, field = _columns(record), _field(record)
    if record.columns is not None and record.response_columns is not None:
        fail(source, f"{here}.response_columns", Error.STRUCTURE_TWICE)
    for name, parts in ((field, columns), ("names", record.names)):
        if parts is not None and (len(parts) != K and (len(parts) != 1 or name == "names")):
            facts = {"length": len(parts), "experts": K}
            fail(source, f"{here}.{name}", Error.STRUCTURE_COUNT, **facts)
    zeros = takes_zeros(kind) and any(map(any, columns or []))
    responses = 1 if field == "columns" else max(len(getattr(kind, "kinds", ())), 1)
    for i, own in enumerate(columns or []):
        path = f"{here}.{field}[{i}]"
        if len(own) != responses:
            facts = {"length": len(own), "responses": responses}
            fail(source, path, Error.STRUCTURE_RESPONSES, **facts)
        for q, seen in enumerate(own):
            place = path if field == "columns" else f"{path}[{q}]"
            check_columns(seen, p, place, source)
            if not seen and not zeros:
                fail(source, place, Error.NO_COLUMNS)
    check_columns(record.common, p, f"{here}.common", source)
