"""Refine replies: what a site answers to a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from otmoe.documents.model import versions_used
from otmoe.documents.sums import (
    InformationRecord,
    NotNegative,
    Round,
    RoundingRecord,
    ScatterRecord,
    check_information,
    check_length,
    check_scatter,
    information_document,
    information_of,
    scatter_document,
    scatter_of,
)
from otmoe.likelihood.answers import FeatureMoments, Rounding, SiteInformation
from otmoe.text.document import Document
from otmoe.text.records import Line, List, Map, Row, Site, Version, typed
from otmoe.text.strict_json import UNLIMITED, Limits, shown


class ReplyRecord(InformationRecord):
    """What a site answers; means and variances of the features once, if they are asked for.

    And the scatter of the scores, if it is asked for and the site agrees; the rounding, if the site
    rounds; and the rules of its policy that the site has overridden this once, and why.
    """

    otmoe: Literal["refine reply"]
    schema_version: Version
    site: Site
    round: Round
    digest: Line
    x_mean: Row | None = None
    x_var: List[NotNegative] | None = None
    scatter: ScatterRecord | None = None
    rounding: RoundingRecord | None = None
    overrides: Map[Line, Line] = {}
    versions: Map[Line, Line] = {}


@dataclass(frozen=True)
class RefineReply(Document):
    """What a site replies to a request.

    Attributes
    ----------
    round : int
    digest : str
        Of the request.
    content : SiteInformation
    overrides : dict of str
        Rules of its policy that the site has overridden this once, and why.
    source : str
        The file it was read from, for errors.
    """

    kind: ClassVar[str] = "refine reply"
    called: ClassVar[str] = "reply"

    round: int
    digest: str
    content: SiteInformation
    source: str = field(default="", repr=False, compare=False)
    overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        if not checked:  # else it was, on its way from a file
            _checked(self.document(), self.name, UNLIMITED)

    @property
    def site(self) -> str:
        """The name of the site."""
        return self.content.site

    @property
    def name(self) -> str:
        """What errors call it: its file, or its site."""
        return self.source or f"site {shown(self.site)}"

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        found, moments = self.content, self.content.moments
        part: dict[str, Any] = {}
        if moments is not None:
            part = {"x_mean": moments.mean.tolist(), "x_var": moments.var.tolist()}
        if found.scatter is not None:
            part["scatter"] = scatter_document(found.scatter)
        if found.rounding is not None:
            part["rounding"] = asdict(found.rounding)
        if self.overrides:
            part["overrides"] = dict(self.overrides)
        return {
            "site": found.site,
            "round": self.round,
            "digest": self.digest,
            **part,
            **information_document(found.information, found.n_samples),
            "versions": versions_used(),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the reply of a parsed document, checked."""
        record = _checked(document, source, limits)
        moments = None
        if record.x_mean is not None and record.x_var is not None:
            moments = FeatureMoments(*(np.array(x, float) for x in (record.x_mean, record.x_var)))
        scatter = None
        if record.scatter is not None:
            scatter = scatter_of(record.scatter, len(record.score))
        rounding = None if record.rounding is None else Rounding(**record.rounding.model_dump())
        sums = information_of(record), record.n_samples
        found = SiteInformation(record.site, *sums, moments, scatter, rounding)
        return cls(record.round, record.digest, found, source, record.overrides, checked=True)


def _checked(document: dict[str, Any], source: str, limits: Limits) -> ReplyRecord:
    """Return a document as a record whose parts agree; whether with the model, `step` sees."""
    record = typed(ReplyRecord, document, source)
    check_information(record, len(record.mass), len(record.score), source)
    mean, var = record.x_mean or [], record.x_var or []
    check_length(var, len(mean), "x_var", "entry of x_mean", source)
    if record.scatter is not None:
        check_scatter(record.scatter, record.score, source, "scatter")
    return record
