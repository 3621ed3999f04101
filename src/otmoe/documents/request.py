"""Refine requests: what the server asks all sites in a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, Literal, Self

from otmoe.data.features import FeatureSpec, FeaturesRecord
from otmoe.documents.model import (
    ModelRecord,
    check_model,
    features_of,
    features_part,
    model_document,
    model_of,
    versions_used,
)
from otmoe.documents.roster import Roster, RosterRecord, roster_of, roster_part
from otmoe.documents.sums import Round, ScalingRecord, check_scaling, scaling_document, scaling_of
from otmoe.likelihood.answers import digest
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.document import Document
from otmoe.text.errors import fail
from otmoe.text.records import Line, Map, Record, Version, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, to_text


class RequestRecord(Record):
    """What the server asks: log-likelihood, score and information of the rows at this model."""

    otmoe: Literal["refine request"]
    schema_version: Version
    round: Round
    digest: Line
    moments: bool = False
    sandwich: bool = False
    between: bool = False
    roster: RosterRecord | None = None
    scaling: ScalingRecord
    features: FeaturesRecord | None = None
    model: ModelRecord
    versions: Map[Line, Line] = {}


def check_reply_size(model: MoE, source: str, limits: Limits) -> None:
    """Refuse, before any row is read, a model about which no reply could be read."""
    P = model.n_parameters
    if (values := P * (P + 3) // 2) > limits.values:
        facts = {"parameters": P, "values": values, "most": limits.values}
        fail(source, "model", Error.REPLY_TOO_LARGE, **facts)


@dataclass(frozen=True)
class RefineRequest(Document):
    """What the server asks all sites in a round.

    Attributes
    ----------
    round : int
        From 1.
    model : MoE
        On the user's scale.
    scaling : Scaling
        Of the parameters in which sites answer.
    features : FeatureSpec, optional
        How columns become the model's features; None for plain numbers.
    moments : bool
        Whether means and variances of the features are asked for: once is enough.
    sandwich : bool
        Whether the scatter of the scores is asked for, of sites that agree to send it.
    between : bool
        Whether it is also used to estimate how sites differ.
    roster : Roster, optional
        The sites whose replies are masked, so that the server learns only their sum.
    """

    kind: ClassVar[str] = "refine request"
    called: ClassVar[str] = "request"

    round: int
    model: MoE
    scaling: Scaling = field(repr=False)
    features: FeatureSpec | None = field(default=None, repr=False)
    moments: bool = False
    sandwich: bool = False
    between: bool = False
    roster: Roster | None = None

    @property
    def digest(self) -> str:
        """A hash of the question; a reply repeats it."""
        return digest(self.model, self.scaling)

    @property
    def context(self) -> str:
        """A hash of the whole request, its roster included; masks are made for it alone."""
        body = {name: value for name, value in self.body().items() if name != "versions"}
        return sha256(to_text(body).encode()).hexdigest()

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        return {
            "round": self.round,
            "digest": self.digest,
            "moments": self.moments,
            **({"sandwich": True} if self.sandwich else {}),
            **({"between": True} if self.between else {}),
            **roster_part(self.roster),
            "scaling": scaling_document(self.scaling, self.model),
            **features_part(self.features),
            "model": model_document(self.model),
            "versions": versions_used(),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the request of a parsed document, checked."""
        record = typed(RequestRecord, document, source)
        check_model(record.model, record.features, source, limits)
        model = model_of(record.model)
        check_reply_size(model, source, limits)
        check_scaling(record.scaling, model.n_features, "scaling", source)
        features, scaling = features_of(record.features), scaling_of(record.scaling)
        asked = record.moments, record.sandwich, record.between
        roster = roster_of(record.roster, source)
        found = cls(record.round, model, scaling, features, *asked, roster)
        if record.digest != found.digest:
            fail(source, "digest", Error.DIGEST)
        return found
