"""What documents of refine rounds share: standardisations, and sums over rows."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from otmoe.documents.sketch import symmetric
from otmoe.likelihood.information import Information
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import fail
from otmoe.text.records import List, Number, Positive, Record, Row, Whole, adds_up
from otmoe.text.sentences import Error

NotNegative = Annotated[float, Field(ge=0, le=1e60)]
Round = Annotated[Whole, Field(ge=1, le=1_000_000)]


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
