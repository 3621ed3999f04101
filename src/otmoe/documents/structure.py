"""The structure of a model in documents: its fields, the checks on them, both conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from otmoe.arrays.numerics import Floats
from otmoe.model.structure import Structure
from otmoe.text.errors import fail
from otmoe.text.records import List, Name, Record, Whole, check_distinct
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown


class StructureRecord(Record):
    """What experts see and share; columns are those of the design, 0 is the intercept."""

    columns: List[List[Whole]] | None = None
    common: List[Whole] = []
    common_variance: bool = False
    names: List[Name] | None = None


def structure_document(structure: Structure) -> dict[str, Any]:
    """Return a structure as it stands in a document."""
    columns, names = structure.columns, structure.names
    return {
        "columns": None if columns is None else [list(own) for own in columns],
        "common": list(structure.common),
        "common_variance": structure.common_variance,
        "names": None if names is None else list(names),
    }


def structure_of(record: StructureRecord | None) -> Structure | None:
    """Return the structure of a checked record."""
    if record is None:
        return None
    columns, names = record.columns, record.names
    return Structure(
        None if columns is None else tuple(map(tuple, columns)),
        tuple(record.common),
        record.common_variance,
        None if names is None else tuple(names),
    )


def check_columns(columns: list[int], p: int, path: str, source: str) -> None:
    """Refuse columns of the design that are not there, or twice, or lack the intercept."""
    for i, column in enumerate(columns):
        if not 0 <= column < p:
            fail(source, f"{path}[{i}]", Error.GATE_COLUMN, value=shown(column), last=p - 1)
    check_distinct(columns, path, source)
    if 0 not in columns:
        fail(source, path, Error.GATE_WITHOUT_INTERCEPT)


def check_structure(
    record: StructureRecord, experts: dict[str, Any], n_columns: int, at: str, source: str
) -> None:
    """Check a structure, and that the experts beside it have it.

    Parameters
    ----------
    record : StructureRecord
    experts : dict
        Fields of the experts, of checked shapes.
    n_columns : int
    at : str
        Path of the model.
    source : str
    """
    here, coef = f"{at}.structure", np.array(experts["coef"], np.float64)
    K = len(coef)
    for name, parts in (("columns", record.columns), ("names", record.names)):
        if parts is not None and (len(parts) != K and (len(parts) != 1 or name == "names")):
            facts = {"length": len(parts), "experts": K}
            fail(source, f"{here}.{name}", Error.STRUCTURE_COUNT, **facts)
    for i, own in enumerate(record.columns or []):
        check_columns(own, n_columns, f"{here}.columns[{i}]", source)
    check_columns([0, *(j for j in record.common if j)], n_columns, f"{here}.common", source)
    structure = structure_of(record)
    assert structure is not None
    for k in range(K):
        unseen = ~np.isin(np.arange(n_columns), structure.seen(k, n_columns))
        wrong = np.argwhere((coef[k] != 0) & unseen)
        if len(wrong):
            place = "".join(f"[{i}]" for i in (k, *wrong[0].tolist()))
            value = shown(float(coef[(k, *wrong[0])]))
            reason = f"`{here}.columns` leaves this column out"
            fail(source, f"{at}.experts.coef{place}", Error.NOT_ZERO, value=value, reason=reason)
    for j in record.common:
        sees = [k for k in range(K) if j in structure.seen(k, n_columns)]
        if sees and not _same(coef[sees][..., j]):
            field = f"{here}.common"
            fail(source, f"{at}.experts.coef", Error.NOT_COMMON, field=field)
    if record.common_variance:
        for name, values in experts.items():
            if name != "coef" and not _same(np.array(values, np.float64)):
                field = f"{here}.common_variance"
                fail(source, f"{at}.experts.{name}", Error.NOT_COMMON, field=field)


def _same(values: Floats) -> bool:
    """Say whether numbers of experts, on the first axis, are the same but for rounding."""
    return bool(np.all(np.abs(values - values[0]) <= 1e-8 * np.abs(values[0])))
