"""Files of any kind: read and checked once, whatever is needed from them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from otmoe.data.features import FeatureSpec
from otmoe.documents.masked_reply import MaskedReply
from otmoe.documents.message import LocalModel
from otmoe.documents.model_file import ModelFile
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.state import RefineState
from otmoe.inference.between import Between
from otmoe.model.mixture import MoE
from otmoe.text.document import Document, kind_of
from otmoe.text.errors import fail
from otmoe.text.sentences import Error
from otmoe.text.strict_json import LIMITS, Limits, named, parse, read, shown

KINDS: dict[str, type[Document]] = {
    kind.kind: kind
    for kind in (
        LocalModel,
        ModelFile,
        FeatureSpec,
        RefineRequest,
        RefineReply,
        MaskedReply,
        RefineState,
    )
}
"""What documents there are, by what the field `otmoe` says."""


class Opened(NamedTuple):
    """A file that was read.

    Attributes
    ----------
    value : Document
        What it holds.
    document : dict
        The same as plain values, as they stand in the file.
    size : int
        Bytes of the file.
    """

    value: Document
    document: dict[str, Any]
    size: int


def open_document(path: str | os.PathLike[str], limits: Limits = LIMITS) -> Opened:
    """Read a document of any kind, or raise a :class:`MessageError` that says what is wrong.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.
    """
    source, text = named(path), read(path, limits)
    document = parse(text, source, limits)
    kind = kind_of(document, source)
    if kind not in KINDS:
        fail(source, "otmoe", Error.OTHER_DOCUMENT, kind=shown(kind), wanted=" or ".join(KINDS))
    return Opened(KINDS[kind].from_document(document, source, limits), document, len(text))


def load_model_file(
    path: str | os.PathLike[str], limits: Limits = LIMITS
) -> ModelFile | LocalModel:
    """Read a model file or a message: whatever holds a model to be used.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.
    """
    found = open_document(path, limits).value
    if not isinstance(found, ModelFile | LocalModel):
        wanted = f"{shown(ModelFile.kind)} or {shown(LocalModel.kind)}"
        fail(named(path), "otmoe", Error.OTHER_DOCUMENT, kind=shown(found.kind), wanted=wanted)
    return found


def load_model(path: str | os.PathLike[str], limits: Limits = LIMITS) -> MoE:
    """Read a model from a file written by :func:`save_model` or :meth:`LocalModel.save`.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.

    Returns
    -------
    MoE
    """
    return load_model_file(path, limits).model


def load_features(path: str | os.PathLike[str], limits: Limits = LIMITS) -> FeatureSpec | None:
    """Read how columns become features, from a model file, a message or a file of features.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.

    Returns
    -------
    FeatureSpec or None
        None if the model takes plain numbers.
    """
    found = open_document(path, limits).value
    if isinstance(found, FeatureSpec):
        return found
    if not isinstance(found, ModelFile | LocalModel):
        wanted = f"{shown(ModelFile.kind)} or {shown(FeatureSpec.kind)}"
        fail(named(path), "otmoe", Error.OTHER_DOCUMENT, kind=shown(found.kind), wanted=wanted)
    return found.features


def load_between(path: str | os.PathLike[str], limits: Limits = LIMITS) -> Between | None:
    """Read how sites differ, from a model file.

    Parameters
    ----------
    path : str or path
    limits : Limits
        How much is read.

    Returns
    -------
    Between or None
        None if the file does not contain it: the sites were not asked.
    """
    return ModelFile.load(path, limits).between
