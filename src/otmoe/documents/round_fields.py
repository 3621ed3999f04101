"""The fields of refine rounds: a request, a site's reply, the server's state; and their checks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from otmoe.data.features import FeaturesRecord
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.model import ModelRecord
from otmoe.text.errors import fail
from otmoe.text.records import (
    Line,
    List,
    Map,
    Number,
    Positive,
    Record,
    Row,
    Site,
    Version,
    Whole,
    check_version,
    typed,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import shown

_SAME = 1e-6  # relative: what a site rounds in its reply

NotNegative = Annotated[float, Field(ge=0, le=1e60)]
Round = Annotated[Whole, Field(ge=1, le=1_000_000)]
Rounds = Annotated[Whole, Field(ge=0, le=1_000_000)]


class ScalingRecord(Record):
    """A standardisation of the features: (x - center) / scale."""

    x_center: Row
    x_scale: List[Positive]


class RequestRecord(Record):
    """What the server asks: how likely are your rows under this model, and where to go from it."""

    otmoe: Literal["refine request"]
    schema_version: Version
    round: Round
    digest: Line
    scaling: ScalingRecord
    features: FeaturesRecord | None = None
    model: ModelRecord
    versions: Map[Line, Line] = {}


class InformationRecord(Record):
    """Log-likelihood, score and observed information: sums over rows.

    The information is symmetric: its upper triangle, row by row, diagonal included.
    """

    n_samples: Positive
    log_likelihood: Number
    mass: List[NotNegative]
    score: Row
    information: Row


class ReplyRecord(InformationRecord):
    """What a site answers."""

    otmoe: Literal["refine reply"]
    schema_version: Version
    site: Site
    round: Round
    digest: Line
    x_mean: Row
    x_var: List[NotNegative]
    versions: Map[Line, Line] = {}


class BestRecord(InformationRecord):
    """The best model so far: its parameters, what the sites said in all, and each of them."""

    theta: Row
    sites: Map[Site, Number]


class MissingRecord(Record):
    """A site that did not answer a round."""

    round: Round
    site: Site


class StateRecord(Record):
    """Where the server stands; with the replies to come it is all that it needs to go on."""

    otmoe: Literal["refine state"]
    schema_version: Version
    most_rounds: Rounds | None  # none: as many as it takes
    alpha: NotNegative
    sites: Map[Site, Positive]
    rounds: Rounds
    radius: Positive | None  # none: infinite
    decrement: Number | None  # none: infinite
    trace: Row
    missing: List[MissingRecord]
    scaling: ScalingRecord
    pooled: ScalingRecord | None
    features: FeaturesRecord | None = None
    model: ModelRecord
    best: BestRecord | None
    aggregation: AggregationRecord | None = None
    versions: Map[Line, Line] = {}


R = TypeVar("R", bound=Record)


def read_as(schema: type[R], document: dict[str, Any], source: str) -> R:
    """Return a document as a record of one kind, or say what is wrong with it."""
    (kind,) = schema.model_fields["otmoe"].annotation.__args__  # type: ignore[union-attr]
    if document.get("otmoe") != kind:
        fail(
            source,
            "otmoe",
            Error.OTHER_DOCUMENT,
            kind=shown(document.get("otmoe")),
            wanted=shown(kind),
        )
    check_version(document, source)
    return typed(schema, document, source)


def check_length(found: list[float], wanted: int, path: str, what: str, source: str) -> None:
    """Refuse a list of another length."""
    if len(found) != wanted:
        fail(source, path, Error.LENGTH_FOR_EACH, length=len(found), wanted=wanted, what=what)


def check_scaling(record: ScalingRecord, n_features: int, path: str, source: str) -> None:
    """Check that a standardisation is one of the model's features."""
    for name, value in (("x_center", record.x_center), ("x_scale", record.x_scale)):
        check_length(value, n_features, f"{path}.{name}", "feature of the model", source)


def check_information(
    record: InformationRecord, n_experts: int, n_parameters: int, source: str, path: str = ""
) -> None:
    """Check that sums over rows are about a model of this size."""
    P = n_parameters
    check_length(record.mass, n_experts, f"{path}mass", "expert of the model", source)
    check_length(record.score, P, f"{path}score", "free parameter of the model", source)
    if len(record.information) != P * (P + 1) // 2:
        fail(
            source,
            f"{path}information",
            Error.TRIANGLE,
            length=len(record.information),
            size=P,
            wanted=P * (P + 1) // 2,
        )
    total = sum(record.mass)
    if abs(total - record.n_samples) > _SAME * record.n_samples:
        fail(source, f"{path}mass", Error.SUM_NOT_ROWS, total=total, rows=record.n_samples)
