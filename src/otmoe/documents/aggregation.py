"""How a model was merged, as its file keeps it: fields, and the checks on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from otmoe.documents.sketch import Share
from otmoe.inference.estimates import degrees_of_freedom
from otmoe.text.errors import fail
from otmoe.text.records import (
    LARGEST,
    Line,
    List,
    Map,
    Number,
    Positive,
    Record,
    Row,
    Site,
    Told,
    Whole,
    adds_up,
    check_distinct,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, shown

Count = Annotated[Whole, Field(ge=0, le=2**53)]
Groups = Annotated[Whole, Field(ge=2, le=2**53)]  # one alone does not vary
Size = Annotated[float, Field(ge=0, le=LARGEST)]


class SentRecord(Record):
    """Bytes of a message by part; `about` is everything else."""

    about: Count = 0
    model: Count = 0
    features: Count = 0
    constant_features: Count = 0
    grams: Count = 0
    sketch: Count = 0
    support: Count = 0


class ContributionRecord(Record):
    """The contribution of one site."""

    site: Site
    n_samples: Positive
    log_likelihood: Number
    converged: bool
    status: Told
    warnings: List[Told] = []
    weight: Share
    cost: Size | None = None
    mass: List[List[Share]] | None = None
    coverage: Share = 1.0
    disagreement: Number | None = None
    flagged: List[Told] = []
    lost: Number | None = None
    influence: Number | None = None
    sent: SentRecord
    versions: Map[Line, Line] = {}


class CandidateRecord(Record):
    """One of the models that a server could choose."""

    method: Line
    n_experts: Count
    lost: Number | None = None


class AlternativeRecord(Record):
    """A merging method and its expected loss: on average, and at the median site."""

    method: Line
    lost: Number | None = None
    typical: Number | None = None


class CovariatesRecord(Record):
    """Distribution of the support points, feature by feature: moments and the middle 95 %."""

    mean: Row
    sd: List[Size]
    low: Row
    high: Row


class GateDependenceRecord(Record):
    """Mean probability of each expert as one column takes other values at the support points."""

    first: Count
    values: Row | None = None
    prob: List[List[Share]]


class MissedRecord(Record):
    """A round that a site did not answer."""

    round: Count
    site: Line


class RefinementRecord(Record):
    """Refine rounds."""

    rounds: Count
    converged: bool
    status: Told
    log_likelihood: Number
    n_samples: Positive
    trace: Row
    missing: List[MissedRecord] = []


class JointRecord(Record):
    """Covariance of the coefficients of a term, in one expert or row of the gate."""

    at: List[Count]
    covariance: Row


class InferenceRecord(Record):
    """Standard errors of the free parameters, null where the rows do not determine one."""

    kind: Literal["information", "sandwich", "clustered"]
    n_groups: Groups | None = None
    standard_errors: List[Size | None]
    joint: List[JointRecord] = []
    warnings: List[Told] = []

    @property
    def df(self) -> int | None:
        """Degrees of freedom of the t quantiles of intervals; None for normal ones."""
        return degrees_of_freedom(self.n_groups if self.kind == "clustered" else None)


class AggregationRecord(Record):
    """How a model was merged from many."""

    method: Line
    cost: Size | None = None
    trace: Row = []
    converged: bool
    status: Told
    warnings: List[Told] = []
    sites: List[ContributionRecord]
    left_out: Map[Site, Told] = {}
    n_support: Count
    candidates: List[CandidateRecord] = []
    alternatives: List[AlternativeRecord] = []
    covariates: CovariatesRecord | None = None
    gate: List[GateDependenceRecord] = []
    refinement: RefinementRecord | None = None
    inference: InferenceRecord | None = None
    no_inference: Told | None = None


def check_aggregation(
    record: AggregationRecord,
    n_experts: int,
    n_features: int,
    n_parameters: int,
    source: str,
    limits: Limits | None = None,
) -> None:
    """Check that what is said about an aggregation fits the model beside it.

    Parameters
    ----------
    record : AggregationRecord
    n_experts, n_features, n_parameters : int
        Of the model.
    source : str
        Where the record comes from; an error begins with it.
    limits : Limits, optional
    """
    if not record.sites:
        fail(source, "aggregation.sites", Error.NO_SITES_MERGED)
    check_distinct([site.site for site in record.sites], "aggregation.sites", source)
    for i, site in enumerate(record.sites):
        if site.mass is not None:
            _check_mass(site.mass, n_experts, f"aggregation.sites[{i}].mass", source, limits)
    covariates = record.covariates
    if covariates is not None:
        for name in ("mean", "sd", "low", "high"):
            _check_length(getattr(covariates, name), n_features, f"covariates.{name}", source)
        for j, (low, high) in enumerate(zip(covariates.low, covariates.high, strict=True)):
            if low > high:
                at = f"aggregation.covariates.low[{j}]"
                fail(source, at, Error.LOW_ABOVE_HIGH, low=shown(low), high=shown(high))
    for i, effect in enumerate(record.gate):
        place = f"aggregation.gate[{i}]"
        if effect.first >= n_features:
            known = {"feature": effect.first, "last": n_features - 1}
            fail(source, f"{place}.first", Error.FEATURE_INDEX, **known)
        if effect.values is not None and len(effect.values) != len(effect.prob):
            sizes = {"length": len(effect.values), "wanted": len(effect.prob)}
            fail(source, f"{place}.values", Error.LENGTH, **sizes)
        for v, row in enumerate(effect.prob):
            if len(row) != n_experts:
                sizes = {"length": len(row), "wanted": n_experts}
                fail(source, f"{place}.prob[{v}]", Error.LENGTH_OF_EXPERTS, **sizes)
    if record.inference is not None:
        errors = record.inference.standard_errors
        _check_length(errors, n_parameters, "inference.standard_errors", source)
        for i, joint in enumerate(record.inference.joint):
            _check_joint(joint, n_parameters, f"inference.joint[{i}]", source)


def _check_mass(
    mass: list[list[float]], n_experts: int, path: str, source: str, limits: Limits | None
) -> None:
    if limits is not None:
        limits.check("experts", len(mass), source)
    for k, row in enumerate(mass):
        if len(row) != n_experts:
            sizes = {"length": len(row), "wanted": n_experts}
            fail(source, f"{path}[{k}]", Error.LENGTH_OF_EXPERTS, **sizes)
    total = sum(map(sum, mass))
    if not adds_up(total, 1.0):
        fail(source, path, Error.SUM_NOT_ONE, total=total)


def _check_joint(joint: JointRecord, n_parameters: int, name: str, source: str) -> None:
    m = len(joint.at)
    _check_length(joint.covariance, m * (m + 1) // 2, f"{name}.covariance", source)
    for place in joint.at:
        if place >= n_parameters:
            facts = {"parameter": place, "last": n_parameters - 1}
            fail(source, f"aggregation.{name}.at", Error.PARAMETER_INDEX, **facts)
    check_distinct([str(place) for place in joint.at], f"aggregation.{name}.at", source)


def _check_length(values: Sequence[float | None], size: int, name: str, source: str) -> None:
    if len(values) != size:
        fail(source, f"aggregation.{name}", Error.LENGTH, length=len(values), wanted=size)
