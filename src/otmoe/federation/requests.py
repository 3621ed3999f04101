"""What a server asks of a site, what the site allows, and its answer; independent of transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field

from otmoe.aggregation import METHODS
from otmoe.aggregation.support import N_SUPPORT
from otmoe.arrays.numerics import Floats
from otmoe.data.features import FeatureSpec, FeaturesRecord, check_features
from otmoe.data.shards import FileShard, joined, shards_from
from otmoe.data.shards.files import find
from otmoe.distributed.task import Task, fit_rows
from otmoe.documents.files import load_features
from otmoe.documents.masked_reply import MaskedReply
from otmoe.documents.message import LocalModel
from otmoe.documents.model_file import ModelFile
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.federation.keys import Key
from otmoe.federation.offers import Offer
from otmoe.federation.policy.border import release_message, release_reply
from otmoe.federation.policy.verdict import check
from otmoe.federation.secure import check_roster, masked, unmasked
from otmoe.model.experts import FAMILIES
from otmoe.model.experts.student import BY_NAME
from otmoe.model.target import CLASSES, Target, as_whole, regression_families
from otmoe.text.errors import InvalidInput
from otmoe.text.records import List, Name, Record, Whole, problem, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import LIMITS, parse, shown

Count = Annotated[Whole, Field(ge=0)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
Experts = Annotated[Whole, Field(ge=1, le=LIMITS.experts)]
Starts = Annotated[Whole, Field(ge=1, le=1_000)]


def _rounds(value: Any) -> Any:
    if value == "auto" or (type(value) is int and value >= 0):
        return value
    raise problem(Error.ROUNDS_FIELD, value=shown(value))


Rounds = Annotated[Any, AfterValidator(_rounds)]


def _family(name: str) -> str:
    known, parts = regression_families(), name.replace(",", "+").split("+")
    for part in parts:
        if part not in (*known, *BY_NAME) or (len(parts) > 1 and part == CLASSES):
            choices = ", ".join([*known, FAMILIES.more])
            raise problem(Error.FAMILY_UNKNOWN, name=shown(part), known=choices)
    return "+".join(parts)


class Request(Record):
    """What a server asks of every site.

    Attributes
    ----------
    target : str
        Column of the response; several have commas in between.
    experts : int
    features : FeaturesRecord
        How columns become features, the same at every site.
    family : str
        A family of numbers, or "classes"; for several responses the families of each, with commas
        in between.
    classes : list of str
        All classes, for that family.
    weight : str, optional
        Column of case weights.
    missing : {"error", "drop"}
        What to do about rows with missing values.
    n_init : int, optional
        Starts of the search for the maximum.
    seed : int
    sketch, grams : bool
        Whether to send these parts too, if the site allows it.
    share : int
        Rows of x to send, as far as the site allows it.
    """

    target: Name
    experts: Experts
    features: FeaturesRecord
    family: Annotated[str, AfterValidator(_family)] = "gaussian"
    classes: List[Name] = []
    weight: Name | None = None
    missing: Literal["error", "drop"] = "error"
    n_init: Starts | None = None
    seed: Count = 0
    sketch: bool = False
    grams: bool = False
    share: Count = 0

    @property
    def spec(self) -> FeatureSpec:
        """How columns become features."""
        check_features(self.features, "request", "features.")
        return FeatureSpec.from_record(self.features)

    @classmethod
    def from_json(cls, text: str | bytes) -> Request:
        """Read a request, or raise a :class:`~otmoe.text.errors.MessageError`."""
        return typed(cls, parse(text, "request"), "request")


class Plan(Record):
    """What the server does, besides asking.

    Attributes
    ----------
    output : str
        Folder for the messages and the model.
    support : str, optional
        Rows of x: a file, a folder or a pattern. By default, points are drawn from what the
        messages bring.
    n_support : int
        How many.
    method, outliers : str
        Of :func:`otmoe.aggregate`.
    site_weight : {"rows", "equal", "covariate"}
        Weight of a site: by its rows, equal, or by rows and sketch.
    consensus : bool
        Whether sites refit from the merged model, and their new messages are merged.
    refine : int or "auto"
        Refine rounds after merging; "auto" for as many as needed.
    sandwich : bool
        Whether to ask for what the sandwich needs in these rounds.
    between : {"auto", "gate", "intercepts"}, optional
        What may differ between sites, if the model file is to describe how they differ; asks for
        the same as `sandwich`.
    secure : bool
        Whether to learn only the sum of all replies in these rounds.
    nodes, wait, timeout
        How many nodes to wait for, how long, and how long for their replies, in seconds.
    on_error : {"raise", "skip"}
        If a node fails or misses a refine round: stop, or continue without it.
    """

    output: Name
    support: Name | None = None
    n_support: AtLeastOne = N_SUPPORT
    method: Name = "auto"
    outliers: Literal["flag", "exclude"] = "flag"
    site_weight: Literal["rows", "equal", "covariate"] = "rows"
    consensus: bool = False
    refine: Rounds = 0
    sandwich: bool = False
    between: Literal["auto", "gate", "intercepts"] | None = None
    secure: bool = False
    nodes: AtLeastOne = 1
    wait: Annotated[float, Field(ge=0)] = 60.0
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    on_error: Literal["raise", "skip"] = "raise"


def configured(config: Mapping[str, Any]) -> tuple[Request, Plan]:
    """Return what to ask and what to do, from one flat configuration.

    Parameters
    ----------
    config : dict
        Fields of both, with the path of a file as `features` and commas between `classes`; hyphens
        are equivalent to underscores, and an empty string means not set.

    Returns
    -------
    Request, Plan
    """
    source = "run config"
    given = {key.replace("-", "_"): value for key, value in config.items() if value != ""}
    unknown = sorted(given.keys() - Request.model_fields.keys() - Plan.model_fields.keys())
    if unknown:
        raise InvalidInput(Error.NO_OPTION, where=source, option=shown(unknown[0]))
    plan = typed(Plan, {k: v for k, v in given.items() if k in Plan.model_fields}, source)
    if plan.method not in METHODS or plan.method == "ensemble":
        choice = sorted(METHODS.keys() - {"ensemble"})
        raise InvalidInput(
            Error.METHOD_UNKNOWN, where=source, value=shown(plan.method), choices=choice
        )
    if plan.between is not None and plan.refine == 0:
        raise InvalidInput(Error.BETWEEN_WITHOUT_ROUNDS, where=source)
    if plan.secure and plan.refine == 0:
        raise InvalidInput(Error.SECURE_WITHOUT_ROUNDS, where=source)
    if plan.secure and plan.between is not None:
        raise InvalidInput(Error.SECURE_BETWEEN, where=source)
    asked = {k: v for k, v in given.items() if k in Request.model_fields}
    if "classes" in asked:
        asked["classes"] = [name.strip() for name in str(asked["classes"]).split(",")]
    spec = load_features(asked["features"]) if "features" in asked else None
    if spec is None:
        raise InvalidInput(Error.FEATURES_FILE, where=source)
    return typed(Request, {**asked, "features": spec.body()}, source), plan


def message_for(request: Request, offer: Offer, start: ModelFile | None = None) -> LocalModel:
    """Fit the rows of a site, and return its message.

    Parameters
    ----------
    request : Request
    offer : Offer
    start : ModelFile, optional
        The merged model, at which to begin instead of searching; only if the site answers rounds.

    Returns
    -------
    LocalModel
    """
    border = offer.border
    border.count(find(offer.data))
    shard = replace(_shard(request, offer), ids=border.policy.id)
    border.check_columns(shard)
    target = _target(request, shard)
    if start is not None:
        if not offer.refine:
            raise InvalidInput(Error.NO_REFINING_HERE)
        if start.features != request.spec or start.model.n_experts != request.experts:
            raise InvalidInput(Error.REQUESTS_DISAGREE)
        if not _same_target(Target.of(start.model), target):
            raise InvalidInput(Error.REQUESTS_DISAGREE)
    size = parameters_of(target, request.experts, len(request.spec.feature_names))
    if shard.n_rows is not None:
        border.check_size(shard.n_rows, size)  # before any work
    found = fit_rows(
        Task(
            shard,
            request.seed,
            request.experts,
            target,
            options={"n_init": request.n_init, "n_jobs": -1},
            sketch=request.sketch and offer.sketch,
            grams=request.grams and offer.grams,
            share=min(request.share, offer.share),
            start=None if start is None else start.model,
        )
    )
    made = release_message(found, shard, border)
    check(made.verdict)
    if offer.secure is None:
        return made.message
    return replace(made.message, key=Key.at(offer.secure).public)


def reply_for(request: Request, asked: RefineRequest, offer: Offer) -> RefineReply | MaskedReply:
    """Answer a refine request from the rows of a site.

    Parameters
    ----------
    request : Request
        Which columns are meant.
    asked : RefineRequest
    offer : Offer

    Returns
    -------
    RefineReply, or MaskedReply of a site that has a key
    """
    if not offer.refine:
        raise InvalidInput(Error.NO_REFINING_HERE)
    if asked.features != request.spec:
        raise InvalidInput(Error.REQUESTS_DISAGREE)
    key = None if offer.secure is None else Key.load(offer.secure)
    if key is not None:
        check_roster(asked, key, offer.site, offer.new_roster)
    border = offer.border
    border.count(find(offer.data))
    shard = replace(_shard(request, offer), groups=offer.groups)
    question = asked if key is None else unmasked(asked)
    made = release_reply(question, shard, border, sandwich=offer.sandwich, exact=key is not None)
    return (
        made.reply if key is None else masked(asked, made.reply, key, new_roster=offer.new_roster)
    )


def parameters_of(target: Target, n_experts: int, n_features: int) -> int:
    """Return the number of free parameters of a model that is asked for."""
    one = target.blank(1, 1)
    each = one.n_linear * (n_features + 1) + one.n_constant
    return (n_experts - 1) * (n_features + 1) + n_experts * each


def _same_target(one: Target, other: Target) -> bool:
    """Say whether two targets are of one family and, where they have labels, of the same."""
    labels = [() if t.classes is None else tuple(np.asarray(t.classes)) for t in (one, other)]
    alike = one.family == other.family and one.expert_per == other.expert_per
    alike = alike and one.responses == other.responses
    return alike and labels[0] == labels[1]


def _target(request: Request, shard: FileShard) -> Target:
    """Return what the response is that is asked for."""
    if request.family != CLASSES:
        return Target(request.family, responses=shard.response_names)
    return Target.of_classes(classes_as(request.classes, shard.labels))


def _shard(request: Request, offer: Offer) -> FileShard:
    """Return the rows of a site, with the columns that are asked for."""
    shards = shards_from(
        offer.data,
        target=request.target,
        features=request.spec,
        weight=request.weight,
        missing=request.missing,
    )
    return joined(shards, offer.site)


def classes_as(declared: Sequence[str], text: bool) -> Floats:
    """Return the classes that a server has declared, sorted, as text or as numbers."""
    try:
        classes = as_whole(np.unique(np.array(declared, dtype=str if text else np.float64)))
    except ValueError:
        raise InvalidInput(Error.CLASSES_ARE_NUMBERS, label=shown(declared[0])) from None
    if len(classes) < 2:
        raise InvalidInput(Error.FEW_CLASSES_ASKED)
    return classes
