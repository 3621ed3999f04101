"""Refine rounds in files: what the server asks, what a site replies, where the server stands.

The mathematics is that of :mod:`otmoe.likelihood.rounds`; this is how it travels, by mail or by
Flower.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from otmoe.data.features import FeatureSpec
from otmoe.documents.aggregation import AggregationRecord, check_aggregation
from otmoe.documents.message import features_part, model_document, model_of, versions_used
from otmoe.documents.model import check_model
from otmoe.documents.round_fields import (
    InformationRecord,
    ReplyRecord,
    RequestRecord,
    ScalingRecord,
    StateRecord,
    check_information,
    check_length,
    check_scaling,
    read_as,
)
from otmoe.documents.sketch import symmetric
from otmoe.inference import Inference, refined_inference
from otmoe.likelihood.information import Information
from otmoe.likelihood.rounds import Answer, Best, Refinement, digest
from otmoe.likelihood.rows import Scaling
from otmoe.model.mixture import MoE
from otmoe.text.errors import fail
from otmoe.text.records import SCHEMA_VERSION
from otmoe.text.sentences import Error
from otmoe.text.strict_json import LIMITS, Limits, named, parse, read, shown, to_text, write_whole


class _File(ABC):
    """A value that is a JSON file."""

    @abstractmethod
    def _document(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, text: str | bytes, source: str, limits: Limits = LIMITS) -> Self:
        """Read JSON text, or raise a :class:`MessageError` that says what is wrong with it.

        Parameters
        ----------
        text : str or bytes
        source : str
            Where the text comes from; an error begins with it.
        limits : Limits
            How much is read.
        """

    def to_json(self) -> str:
        """Return it as JSON text; the same numbers come back from it, to the last bit."""
        return to_text(self._document()) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all."""
        write_whole(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str], limits: Limits = LIMITS) -> Self:
        """Read it from a file, or raise a :class:`MessageError` that says what is wrong with it."""
        return cls.from_json(read(path, limits), named(path), limits)


@dataclass(frozen=True)
class RefineRequest(_File):
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
    """

    round: int
    model: MoE
    scaling: Scaling = field(repr=False)
    features: FeatureSpec | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """A hash of the question; a reply repeats it."""
        return digest(self.model, self.scaling)

    def _document(self) -> dict[str, Any]:
        return {
            "otmoe": "refine request",
            "schema_version": SCHEMA_VERSION,
            "round": self.round,
            "digest": self.digest,
            "scaling": _scaling_document(self.scaling, self.model),
            **features_part(self.features),
            "model": model_document(self.model),
            "versions": versions_used(),
        }

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "request", limits: Limits = LIMITS) -> Self:
        """Read a request, or raise a :class:`MessageError` that says what is wrong with it."""
        record = read_as(RequestRecord, parse(text, source, limits), source)
        model, features = _model_and_features(record, source, limits)
        check_scaling(record.scaling, model.n_features, "scaling", source)
        found = cls(record.round, model, _scaling(record.scaling), features)
        if record.digest != found.digest:
            fail(source, "digest", Error.DIGEST)
        return found


@dataclass(frozen=True)
class RefineReply(_File):
    """What a site replies to a request.

    Attributes
    ----------
    round : int
    digest : str
        Of the request.
    answer : Answer
    source : str
        The file it was read from, for errors.
    """

    round: int
    digest: str
    answer: Answer
    source: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check(read_as(ReplyRecord, self._document(), self.name), self.name)

    @property
    def site(self) -> str:
        """The name of the site."""
        return self.answer.site

    @property
    def name(self) -> str:
        """What errors call it: its file, or its site."""
        return self.source or f"site {shown(self.site)}"

    @staticmethod
    def _check(record: ReplyRecord, source: str) -> None:
        """Check that the parts agree with each other; whether with the model, `step` sees."""
        check_information(record, len(record.mass), len(record.score), source)
        check_length(record.x_var, len(record.x_mean), "x_var", "entry of x_mean", source)

    def _document(self) -> dict[str, Any]:
        found = self.answer
        return {
            "otmoe": "refine reply",
            "schema_version": SCHEMA_VERSION,
            "site": found.site,
            "round": self.round,
            "digest": self.digest,
            "x_mean": found.x_mean.tolist(),
            "x_var": found.x_var.tolist(),
            **_information_document(found.information, found.n_samples),
            "versions": versions_used(),
        }

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "reply", limits: Limits = LIMITS) -> Self:
        """Read a reply, or raise a :class:`MessageError` that says what is wrong with it."""
        record = read_as(ReplyRecord, parse(text, source, limits), source)
        cls._check(record, source)
        found = Answer(
            record.site,
            _information(record),
            record.n_samples,
            np.array(record.x_mean, np.float64),
            np.array(record.x_var, np.float64),
        )
        return cls(record.round, record.digest, found, source)


@dataclass(frozen=True)
class RefineState(_File):
    """Where the server stands between two rounds.

    Attributes
    ----------
    refinement : Refinement
    sites : dict of float
        The sites that are asked, and the rows that each has (the sum of their weights).
    rounds : int or "auto"
        How many rounds there shall be; "auto" for as many as it takes.
    features : FeatureSpec, optional
    aggregation : AggregationRecord, optional
        How the model was merged that the rounds began with, for the file of the last one.
    """

    refinement: Refinement
    sites: Mapping[str, float] = field(repr=False)
    rounds: int | str = "auto"
    features: FeatureSpec | None = field(default=None, repr=False)
    aggregation: AggregationRecord | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._check(read_as(StateRecord, self._document(), "state"), "state")

    @property
    def model(self) -> MoE:
        """What the sites are asked about next; the answer, once it is done."""
        return self.refinement.model

    @property
    def done(self) -> bool:
        """Whether there is nothing more to ask."""
        return self.refinement.is_done(self.rounds)

    @property
    def absent(self) -> tuple[str, ...]:
        """Sites that have no part in the model so far: they missed the round that decided on it."""
        best = self.refinement.best
        return () if best is None else tuple(s for s in self.sites if s not in best.log_likelihood)

    def inference(self) -> Inference:
        """Return standard errors, tests and intervals, from what the sites sent.

        Raises
        ------
        InferenceError
            If the model is not at the maximum yet.
        """
        return refined_inference(self.refinement)

    @staticmethod
    def _check(record: StateRecord, source: str, limits: Limits | None = None) -> None:
        """Check that the parts agree with each other and with the model."""
        model, _ = _model_and_features(record, source, limits)
        check_scaling(record.scaling, model.n_features, "scaling", source)
        if not record.sites:
            fail(source, "sites", Error.NO_SITES_ASKED)
        if record.pooled is not None:
            check_scaling(record.pooled, model.n_features, "pooled", source)
        if not (record.rounds == 0) == (record.best is None) == (record.pooled is None):
            fail(source, "best", Error.STATE_INCOMPLETE)
        if record.best is not None:
            P, best = model.n_parameters, record.best
            check_information(best, model.n_experts, P, source, "best.")
            check_length(best.theta, P, "best.theta", "free parameter of the model", source)
            if not best.sites or not best.sites.keys() <= record.sites.keys():
                fail(source, "best.sites", Error.STATE_SITES)
        for i, gap in enumerate(record.missing):
            if gap.site not in record.sites or gap.round > record.rounds:
                fail(source, f"missing[{i}]", Error.STATE_MISSING)
        if record.aggregation is not None:
            sizes = model.n_experts, model.n_features, model.n_parameters
            check_aggregation(record.aggregation, *sizes, source, limits)

    def _document(self) -> dict[str, Any]:
        state, best = self.refinement, self.refinement.best
        return {
            "otmoe": "refine state",
            "schema_version": SCHEMA_VERSION,
            "most_rounds": None if self.rounds == "auto" else self.rounds,
            "alpha": float(state.alpha),
            "sites": dict(self.sites),
            "rounds": state.rounds,
            "radius": float(state.radius) if state.radius != np.inf else None,
            "decrement": float(state.decrement) if state.decrement != np.inf else None,
            "trace": [float(value) for value in state.trace],
            "missing": [{"round": r, "site": site} for r, site in state.missing],
            "scaling": _scaling_document(state.scaling, state.model),
            "pooled": None
            if state.pooled is None
            else _scaling_document(state.pooled, state.model),
            **features_part(self.features),
            "model": model_document(state.model),
            "best": None if best is None else _best_document(best),
            **_aggregation_part(self.aggregation),
            "versions": versions_used(),
        }

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "state", limits: Limits = LIMITS) -> Self:
        """Read a state, or raise a :class:`MessageError` that says what is wrong with it."""
        record = read_as(StateRecord, parse(text, source, limits), source)
        cls._check(record, source, limits)
        best = record.best
        state = Refinement(
            model_of(record.model),
            _scaling(record.scaling),
            record.alpha,
            record.rounds,
            None
            if best is None
            else Best(
                np.array(best.theta, np.float64), _information(best), best.sites, best.n_samples
            ),
            None if record.pooled is None else _scaling(record.pooled),
            np.inf if record.radius is None else record.radius,
            np.inf if record.decrement is None else record.decrement,
            tuple(record.trace),
            tuple((gap.round, gap.site) for gap in record.missing),
        )
        features = None if record.features is None else FeatureSpec.from_record(record.features)
        rounds = "auto" if record.most_rounds is None else record.most_rounds
        return cls(state, record.sites, rounds, features, record.aggregation)


# -- parts of documents --------------------------------------------------------------------------


def _model_and_features(
    record: RequestRecord | StateRecord, source: str, limits: Limits | None
) -> tuple[MoE, FeatureSpec | None]:
    check_model(record.model, record.features, source, limits)
    features = None if record.features is None else FeatureSpec.from_record(record.features)
    return model_of(record.model), features


def _scaling_document(scaling: Scaling, model: MoE) -> dict[str, Any]:
    d = model.n_features
    center = np.zeros(d) if scaling.x_center is None else scaling.x_center
    scale = np.ones(d) if scaling.x_scale is None else scaling.x_scale
    return {"x_center": center.tolist(), "x_scale": scale.tolist()}


def _scaling(record: ScalingRecord) -> Scaling:
    return Scaling(np.array(record.x_center, np.float64), np.array(record.x_scale, np.float64))


def _information_document(information: Information, n_samples: float) -> dict[str, Any]:
    upper = np.triu_indices(len(information.score))
    return {
        "n_samples": float(n_samples),
        "log_likelihood": float(information.log_likelihood),
        "mass": information.mass.tolist(),
        "score": information.score.tolist(),
        "information": information.matrix[upper].tolist(),
    }


def _information(record: InformationRecord) -> Information:
    return Information(
        record.log_likelihood,
        np.array(record.score, np.float64),
        symmetric(record.information, len(record.score)),
        np.array(record.mass, np.float64),
    )


def _aggregation_part(record: AggregationRecord | None) -> dict[str, Any]:
    """Return the field of a document that says how a model was merged, if that is known."""
    return {} if record is None else {"aggregation": record.model_dump(exclude_unset=True)}


def _best_document(best: Best) -> dict[str, Any]:
    return {
        "theta": best.theta.tolist(),
        "sites": dict(best.log_likelihood),
        **_information_document(best.information, best.n_samples),
    }
