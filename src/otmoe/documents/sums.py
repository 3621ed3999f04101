"""What documents of refine rounds share: standardisations, and sums over rows."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from otmoe.documents.grams import is_semidefinite
from otmoe.documents.sketch import symmetric
from otmoe.likelihood.answers import LastReply
from otmoe.likelihood.grouped import Scatter
from otmoe.likelihood.information import Information
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import fail
from otmoe.text.records import List, Number, Positive, Record, Row, Whole, adds_up
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

NotNegative = Annotated[float, Field(ge=0, le=1e60)]
Round = Annotated[Whole, Field(ge=1, le=1_000_000)]
Count = Annotated[Whole, Field(ge=1, le=2**53)]

_SMALL = 1e-200  # squares of scores below this are rounded as no others are


class ScalingRecord(Record):
    """A standardisation of the features: (x - center) / scale."""

    x_center: Row
    x_scale: List[Positive]


class InformationRecord(Record):
    """Log-likelihood, score and observed information: sums over rows.

    The information is symmetric: its upper triangle, row by row, diagonal included.
    """

    n_samples: Positive
    log_likelihood: Number
    mass: List[NotNegative]
    score: Row
    information: Row


class RoundingRecord(Record):
    """Rounding of a reply: of coefficients, in standard errors, and of the log-likelihood."""

    digits: NotNegative
    log_likelihood: NotNegative


class ScatterRecord(Record):
    """Products of the summed scores of groups of rows, summed over groups.

    Without a number of groups, every row is one. The matrix is symmetric: its upper triangle, row
    by row, diagonal included.
    """

    n_rows: Count
    n_groups: Count | None = None
    matrix: Row


class LastReplyRecord(Record):
    """What is kept of a site's reply about the best model, to check the next one."""

    squares: List[NotNegative] | None
    score: Row
    turn: Row | None


def check_length(found: list[float], wanted: int, at: str, what: str, source: str) -> None:
    """Refuse a list of another length."""
    if len(found) != wanted:
        fail(source, at, Error.LENGTH_FOR_EACH, length=len(found), wanted=wanted, what=what)


def check_scaling(record: ScalingRecord, n_features: int, at: str, source: str) -> None:
    """Check that a standardisation is one of the model's features."""
    for name, value in (("x_center", record.x_center), ("x_scale", record.x_scale)):
        check_length(value, n_features, f"{at}.{name}", "feature of the model", source)


def check_information(
    record: InformationRecord, n_experts: int, n_parameters: int, source: str, at: str = ""
) -> None:
    """Check that sums over rows are about a model of this size."""
    P, found = n_parameters, len(record.information)
    check_length(record.mass, n_experts, f"{at}mass", "expert of the model", source)
    check_length(record.score, P, f"{at}score", "free parameter of the model", source)
    if found != (wanted := P * (P + 1) // 2):
        fail(source, f"{at}information", Error.TRIANGLE, length=found, size=P, wanted=wanted)
    total, rows = sum(record.mass), record.n_samples
    if not adds_up(total, rows):
        fail(source, f"{at}mass", Error.SUM_NOT_ROWS, total=total, rows=rows)


def check_scatter(record: ScatterRecord, score: Row, source: str, at: str) -> None:
    """Check that a scatter is one of scores that add up to the score beside it.

    For G vectors u_g, sum u_g u_g' - (sum u_g) (sum u_g)' / G has no negative eigenvalue.
    """
    P, found = len(score), len(record.matrix)
    if found != (wanted := P * (P + 1) // 2):
        fail(source, f"{at}.matrix", Error.TRIANGLE, length=found, size=P, wanted=wanted)
    G, rows = record.n_groups, record.n_rows
    if G is not None and G > rows:
        fail(source, f"{at}.n_groups", Error.GROUPS_ABOVE_ROWS, value=shown(G), rows=rows)
    scatter, total = scatter_of(record, P), np.array(score, np.float64)
    size = np.diagonal(scatter.matrix)
    spread = scatter.matrix - np.outer(total, total) / scatter.n_scores
    unit = np.where(size > _SMALL, size, 1.0)
    if np.any(size < 0) or not is_semidefinite(spread, unit):
        fail(source, f"{at}.matrix", Error.NOT_A_SCATTER)


def scaling_document(scaling: Scaling, model: MoE) -> dict[str, Any]:
    """Return a standardisation as it stands in a document."""
    d = model.n_features
    center = np.zeros(d) if scaling.x_center is None else scaling.x_center
    scale = np.ones(d) if scaling.x_scale is None else scaling.x_scale
    return {"x_center": center.tolist(), "x_scale": scale.tolist()}


def scaling_of(record: ScalingRecord) -> Scaling:
    """Return the standardisation of a checked record."""
    return Scaling(np.array(record.x_center, np.float64), np.array(record.x_scale, np.float64))


def information_document(information: Information, n_samples: float) -> dict[str, Any]:
    """Return sums over rows as they stand in a document."""
    upper = np.triu_indices(len(information.score))
    return {
        "n_samples": float(n_samples),
        "log_likelihood": float(information.log_likelihood),
        "mass": information.mass.tolist(),
        "score": information.score.tolist(),
        "information": information.matrix[upper].tolist(),
    }


def information_of(record: InformationRecord) -> Information:
    """Return the sums of a checked record."""
    return Information(
        record.log_likelihood,
        np.array(record.score, np.float64),
        symmetric(record.information, len(record.score)),
        np.array(record.mass, np.float64),
    )


def scatter_document(scatter: Scatter) -> dict[str, Any]:
    """Return a scatter as it stands in a document."""
    groups = {} if scatter.n_groups is None else {"n_groups": int(scatter.n_groups)}
    upper = np.triu_indices(len(scatter.matrix))
    return {"n_rows": int(scatter.n_rows), **groups, "matrix": scatter.matrix[upper].tolist()}


def scatter_of(record: ScatterRecord, n_parameters: int) -> Scatter:
    """Return the scatter of a record whose matrix has this size."""
    matrix = symmetric(record.matrix, n_parameters)
    return Scatter(matrix, record.n_rows, record.n_groups)


def last_document(last: LastReply) -> dict[str, Any]:
    """Return what is kept of a reply as it stands in a document."""
    parts = {"squares": last.squares, "score": last.score, "turn": last.turn}
    return {name: None if part is None else part.tolist() for name, part in parts.items()}


def last_of(record: LastReplyRecord) -> LastReply:
    """Return what is kept of a reply, of a checked record."""
    parts = record.squares, record.score, record.turn
    squares, score, turn = (None if part is None else np.array(part, float) for part in parts)
    assert score is not None
    return LastReply(squares, score, turn)
