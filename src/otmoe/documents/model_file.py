"""Model files: a model, its author's notes, how it was merged, how sites differ."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from otmoe.data.features import FeatureSpec, FeaturesRecord
from otmoe.documents.aggregation import AggregationRecord, check_aggregation
from otmoe.documents.between import BetweenRecord, between_document, checked_between
from otmoe.documents.model import (
    ModelRecord,
    check_model,
    features_of,
    features_part,
    model_document,
    model_of,
    versions_used,
)
from otmoe.inference.between import Between
from otmoe.model.mixture import MoE
from otmoe.text.document import Document
from otmoe.text.errors import InvalidType
from otmoe.text.outputs import write_whole
from otmoe.text.records import Label, Line, Map, Record, Version, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import UNLIMITED, Limits, to_text


class ModelFileRecord(Record):
    """A model, its author's notes, how it was merged, how sites differ."""

    otmoe: Literal["model"]
    schema_version: Version
    about: Map[Line, Label] = {}
    features: FeaturesRecord | None = None
    model: ModelRecord
    aggregation: AggregationRecord | None = None
    between: BetweenRecord | None = None
    versions: Map[Line, Line] = {}


@dataclass(frozen=True)
class ModelFile(Document):
    """A model file.

    Attributes
    ----------
    model : MoE
    features : FeatureSpec, optional
        How columns become the model's features; None for plain numbers.
    about : dict
        What its author says about it.
    aggregation : AggregationRecord, optional
        How the model was merged.
    between : Between, optional
        How the sites differ, and the prior for a new one.
    """

    kind: ClassVar[str] = "model"
    called: ClassVar[str] = "model"

    model: MoE
    features: FeatureSpec | None = field(default=None, repr=False)
    about: dict[str, Any] = field(default_factory=dict, repr=False)
    aggregation: AggregationRecord | None = field(default=None, repr=False)
    between: Between | None = field(default=None, repr=False)

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        how, spread = self.aggregation, self.between
        return {
            "about": self.about,
            **features_part(self.features),
            "model": model_document(self.model),
            **({} if how is None else {"aggregation": how.model_dump(exclude_unset=True)}),
            **({} if spread is None else {"between": between_document(spread)}),
            "versions": versions_used(),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the model file of a parsed document, checked."""
        record = typed(ModelFileRecord, document, source)
        check_model(record.model, record.features, source, limits)
        model = model_of(record.model)
        if record.aggregation is not None:
            sizes = model.n_experts, model.n_features, model.n_parameters
            check_aggregation(record.aggregation, *sizes, source, limits)
        between = None
        if record.between is not None:
            between = checked_between(record.between, model, source, limits)
        return cls(model, features_of(record.features), record.about, record.aggregation, between)


def save_model(
    model: Any,
    path: str | os.PathLike[str],
    about: dict[str, Any] | None = None,
    features: FeatureSpec | None = None,
    aggregation: dict[str, Any] | None = None,
    between: Between | None = None,
) -> Path:
    """Write a model to a file, whole or not at all, and return its path.

    Parameters
    ----------
    model : MoE or fitted estimator
        Of an estimator, its model; and its features, unless others are given.
    path : str or path
        Its folder has to exist.
    about : dict, optional
        Further entries for the file: text, numbers or booleans by name. They are for readers of the
        file; :func:`load_model` does not return them.
    features : FeatureSpec, optional
        How columns become the model's features; :func:`load_features` returns it.
    aggregation : dict, optional
        How the model was merged, from :meth:`otmoe.Aggregation.document`, for ``otmoe report``;
        :meth:`otmoe.Aggregation.save` writes a model with it.
    between : Between, optional
        How the sites differ, for ``otmoe personalise``; :func:`load_between` returns it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from otmoe import load_model, save_model, simulate
    >>> truth = simulate(10, 2, 3, random_state=0).truth
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "truth.moe.json")
    ...     saved = save_model(truth, path, about={"made by": "simulate"})
    ...     bool((load_model(path).to_vector() == truth.to_vector()).all())
    True
    """
    if not isinstance(model, MoE):
        if not isinstance(getattr(model, "model_", None), MoE):
            raise InvalidType(Error.NO_MODEL_TO_SAVE, kind=type(model).__name__)
        features = getattr(model, "features_", None) if features is None else features
        model = model.model_
    document = {
        **ModelFile(model, features, {} if about is None else about, None, between).document(),
        **({} if aggregation is None else {"aggregation": aggregation}),
    }
    ModelFile.from_document(document, "model", UNLIMITED)
    write_whole(path, to_text(document) + "\n")
    return Path(path)
