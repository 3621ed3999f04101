"""State of the server between refine rounds; with the next replies it is all that is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from otmoe.data.features import FeatureSpec, FeaturesRecord
from otmoe.data.variables import Variables
from otmoe.documents.aggregation import AggregationRecord, check_aggregation
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
from otmoe.documents.sums import (
    InformationRecord,
    LastReplyRecord,
    NotNegative,
    Round,
    ScalingRecord,
    ScatterRecord,
    check_information,
    check_length,
    check_scaling,
    check_scatter,
    information_document,
    information_of,
    last_document,
    last_of,
    scaling_document,
    scaling_of,
    scatter_document,
    scatter_of,
)
from otmoe.inference import Inference, refined_inference
from otmoe.likelihood.answers import LastReply
from otmoe.likelihood.rounds import Best, Refinement
from otmoe.model.mixture import MoE
from otmoe.model.ridge import Ridge
from otmoe.text.document import Document
from otmoe.text.errors import fail
from otmoe.text.notices import Notice
from otmoe.text.records import (
    Label,
    Line,
    List,
    Map,
    Number,
    Positive,
    Record,
    Row,
    Site,
    Told,
    Version,
    Whole,
    notice_document,
    typed,
)
from otmoe.text.sentences import Error
from otmoe.text.strict_json import UNLIMITED, Limits

Rounds = Annotated[Whole, Field(ge=0, le=1_000_000)]
ColumnOfFit = Literal["target", "offset", "expert per"]


class BestRecord(InformationRecord):
    """The best model so far: its parameters, the summed replies, log-likelihoods by site."""

    theta: Row
    sites: Map[Site, Number]
    scatter: ScatterRecord | None = None
    unscattered: List[Site] = []


class MissingRecord(Record):
    """A site that did not answer a round."""

    round: Round
    site: Site


class StateRecord(Record):
    """State of the server; with the next replies it is all that is needed to continue."""

    otmoe: Literal["refine state"]
    schema_version: Version
    most_rounds: Rounds | None  # none: as many as it takes
    alpha: NotNegative
    expert_alpha: NotNegative = 0.0
    sandwich: bool = False
    between: Literal["auto", "gate", "intercepts"] | None = None  # what may differ between sites
    kept: bool | None = None  # the last step, once sites have looked at it
    digits: NotNegative = 0.0  # step to which sites round their scores, in standard errors
    slack: NotNegative = 0.0  # what rounding leaves unsure of the log-likelihood
    sites: Map[Site, Positive]
    roster: RosterRecord | None = None  # of secure sums
    rounds: Rounds
    radius: Positive | None  # none: infinite
    decrement: Number | None  # none: infinite
    trace: Row
    missing: List[MissingRecord]
    dropped: Map[Site, Told] = {}  # sites whose replies cannot be right, and why
    last: Map[Site, LastReplyRecord] = {}
    scaling: ScalingRecord
    pooled: ScalingRecord | None
    features: FeaturesRecord | None = None
    columns: Map[ColumnOfFit, Label] = {}  # as in the notes of a model file
    model: ModelRecord
    best: BestRecord | None
    aggregation: AggregationRecord | None = None
    versions: Map[Line, Line] = {}


def _checked(document: dict[str, Any], source: str, limits: Limits) -> tuple[StateRecord, MoE]:
    """Return a document as a record whose parts agree, and the model in it."""
    record = typed(StateRecord, document, source)
    check_model(record.model, record.features, source, limits)
    model = model_of(record.model)
    check_scaling(record.scaling, model.n_features, "scaling", source)
    if not record.sites:
        fail(source, "sites", Error.NO_SITES_ASKED)
    if record.pooled is not None:
        check_scaling(record.pooled, model.n_features, "pooled", source)
    roster = roster_of(record.roster, source)
    if roster is not None and roster.keys.keys() != record.sites.keys():
        fail(source, "roster.sites", Error.STATE_ROSTER)
    fresh = record.rounds == 0 or (roster is not None and record.best is None)  # begun again
    if not fresh == (record.best is None) == (record.pooled is None):
        fail(source, "best", Error.STATE_INCOMPLETE)
    if record.best is not None:
        P, best = model.n_parameters, record.best
        check_information(best, model.n_experts, P, source, "best.")
        check_length(best.theta, P, "best.theta", "free parameter of the model", source)
        asked = record.sites.keys() if roster is None else {roster.name}
        if not best.sites or not best.sites.keys() <= asked:
            fail(source, "best.sites", Error.STATE_SITES)
        if not best.sites.keys() >= set(best.unscattered):
            fail(source, "best.unscattered", Error.STATE_SITES)
        if best.scatter is not None:
            check_scatter(best.scatter, best.score, source, "best.scatter")
    for i, gap in enumerate(record.missing):
        if gap.site not in record.sites or gap.round > record.rounds:
            fail(source, f"missing[{i}]", Error.STATE_MISSING)
    if not record.dropped.keys() <= record.sites.keys():
        fail(source, "dropped", Error.STATE_SITES)
    known = record.sites.keys() if roster is None else {roster.name}
    if record.last and (record.best is None or not record.last.keys() <= known):
        fail(source, "last", Error.STATE_SITES)
    for site, last in record.last.items():
        at, P = f"last.{site}", model.n_parameters
        check_length(last.score, P, f"{at}.score", "free parameter of the model", source)
        if last.turn is not None:
            check_length(last.turn, P, f"{at}.turn", "free parameter of the model", source)
        if last.squares is not None:
            d = model.n_features
            check_length(last.squares, d, f"{at}.squares", "feature of the model", source)
    if record.aggregation is not None:
        sizes = model.n_experts, model.n_features, model.n_parameters
        check_aggregation(record.aggregation, *sizes, source, limits)
    return record, model


@dataclass(frozen=True)
class RefineState(Document):
    """Where the server stands between two rounds.

    Attributes
    ----------
    refinement : Refinement
    sites : dict of float
        The sites that are asked, and the rows that each has (the sum of their weights).
    rounds : int or "auto"
        Number of rounds; "auto" for as many as needed.
    features : FeatureSpec, optional
    aggregation : AggregationRecord, optional
        How the initial model was merged, for the file of the final one.
    between : {"auto", "gate", "intercepts"}, optional
        What may differ between sites; None if differences are not estimated.
    roster : Roster, optional
        Of the same sites, if their replies are masked: then what is known of the best model is
        known of all sites in sum, under the name of the roster.
    dropped : dict of Notice
        Sites that are left out because a reply of theirs cannot be right, and why.
    last : dict of LastReply
        What is kept of the other sites' replies, to check the next ones.
    columns : dict
        What the file of the merged model calls the columns of the fits, such as ``target``; for the
        file of the final one.
    """

    kind: ClassVar[str] = "refine state"
    called: ClassVar[str] = "state"

    refinement: Refinement
    sites: Mapping[str, float] = field(repr=False)
    rounds: int | str = "auto"
    features: FeatureSpec | None = field(default=None, repr=False)
    aggregation: AggregationRecord | None = field(default=None, repr=False)
    between: str | None = None
    roster: Roster | None = None
    dropped: Mapping[str, Notice] = field(default_factory=dict)
    last: Mapping[str, LastReply] = field(default_factory=dict, repr=False)
    columns: Mapping[str, Any] = field(default_factory=dict, repr=False)

    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        if not checked:  # else it was, on its way from a file
            _checked(self.document(), "state", UNLIMITED)

    @property
    def model(self) -> MoE:
        """What the sites are asked about next; the answer, once it is done."""
        return self.refinement.model

    @property
    def done(self) -> bool:
        """Whether there is nothing more to ask."""
        return self.refinement.is_done(self.rounds) and not self.looking

    @property
    def looking(self) -> bool:
        """Whether sites are asked for the last time, to check the last step."""
        return self.refinement.is_unseen(self.rounds)

    @property
    def asked(self) -> tuple[str, ...]:
        """Sites that are asked, or would be: all but those that were dropped."""
        return tuple(site for site in self.sites if site not in self.dropped)

    @property
    def absent(self) -> tuple[str, ...]:
        """Sites that have no part in the model so far: they missed the round that decided on it."""
        best = self.refinement.best
        if best is None or self.roster is not None:
            return ()
        return tuple(s for s in self.sites if s not in best.log_likelihood)

    def inference(self) -> Inference:
        """Return standard errors, tests and intervals, from what the sites sent.

        Raises
        ------
        InferenceError
            If the model is not at the maximum yet.
        """
        curves = None if self.features is None else self.features.curve_features
        found = refined_inference(self.refinement, curves)
        return replace(found, variables=Variables(tuple(found.model.terms[1:]), self.features))

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        state, best, how = self.refinement, self.refinement.best, self.aggregation
        return {
            "most_rounds": None if self.rounds == "auto" else self.rounds,
            "alpha": float(state.ridge.gate),
            "expert_alpha": float(state.ridge.experts),
            **({"sandwich": True} if state.sandwich else {}),
            **({} if self.between is None else {"between": self.between}),
            **({} if state.kept is None else {"kept": state.kept}),
            **({"digits": float(state.digits)} if state.digits else {}),
            **({"slack": float(state.slack)} if state.slack else {}),
            "sites": dict(self.sites),
            **roster_part(self.roster),
            "rounds": state.rounds,
            "radius": float(state.radius) if state.radius != np.inf else None,
            "decrement": float(state.decrement) if state.decrement != np.inf else None,
            "trace": [float(value) for value in state.trace],
            "missing": [{"round": r, "site": site} for r, site in state.missing],
            **self._checks(),
            "scaling": scaling_document(state.scaling, state.model),
            "pooled": None if state.pooled is None else scaling_document(state.pooled, state.model),
            **features_part(self.features),
            **({"columns": dict(self.columns)} if self.columns else {}),
            "model": model_document(state.model),
            "best": None if best is None else _best_document(best),
            **({} if how is None else {"aggregation": how.model_dump(exclude_unset=True)}),
            "versions": versions_used(),
        }

    def _checks(self) -> dict[str, Any]:
        """Return who was dropped, and what the next replies are checked against."""
        parts = {
            "dropped": {site: notice_document(why) for site, why in self.dropped.items()},
            "last": {site: last_document(last) for site, last in self.last.items()},
        }
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the state of a parsed document, checked."""
        record, model = _checked(document, source, limits)
        state = Refinement(
            model,
            scaling_of(record.scaling),
            Ridge(record.alpha, record.expert_alpha),
            record.rounds,
            None if record.best is None else _best_of(record.best),
            None if record.pooled is None else scaling_of(record.pooled),
            np.inf if record.radius is None else record.radius,
            np.inf if record.decrement is None else record.decrement,
            tuple(record.trace),
            tuple((gap.round, gap.site) for gap in record.missing),
            record.sandwich,
            record.kept,
            record.digits,
            record.slack,
        )
        rounds = "auto" if record.most_rounds is None else record.most_rounds
        last = {site: last_of(found) for site, found in record.last.items()}
        about = features_of(record.features), record.aggregation, record.between
        roster = roster_of(record.roster, source)
        checks = record.dropped, last
        columns: dict[str, Any] = {str(name): column for name, column in record.columns.items()}
        sites = record.sites
        return cls(state, sites, rounds, *about, roster, *checks, columns=columns, checked=True)


def _best_document(best: Best) -> dict[str, Any]:
    lacking = list(best.unscattered)
    return {
        "theta": best.theta.tolist(),
        "sites": dict(best.log_likelihood),
        **information_document(best.information, best.n_samples),
        **({} if best.scatter is None else {"scatter": scatter_document(best.scatter)}),
        **({"unscattered": lacking} if lacking else {}),
    }


def _best_of(record: BestRecord) -> Best:
    found = record.scatter
    return Best(
        np.array(record.theta, np.float64),
        information_of(record),
        record.sites,
        record.n_samples,
        None if found is None else scatter_of(found, len(record.theta)),
        tuple(record.unscattered),
    )
