"""Values that are one JSON file each: read with suspicion, once, and written whole."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from otmoe.text.errors import fail
from otmoe.text.outputs import write_whole
from otmoe.text.records import SCHEMA_VERSION, check_version
from otmoe.text.sentences import Error
from otmoe.text.strict_json import LIMITS, Limits, named, parse, read, shown, to_text


class Document(ABC):
    """A value that is a JSON file.

    A subclass says what its file is called (`kind`), what it holds (:meth:`body`) and how it is
    read (:meth:`from_document`); text and files follow.
    """

    kind: ClassVar[str]
    """What the field `otmoe` says."""

    called: ClassVar[str]
    """What errors call a document that came without the name of its file."""

    other_kinds: ClassVar[dict[str, Error]] = {}
    """What to say about files of other kinds that are given for one of this."""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the value of a parsed document of this kind, checked.

        Parameters
        ----------
        document : dict
            As :func:`otmoe.text.strict_json.parse` returns it.
        source : str
            Where it comes from; an error begins with it.
        limits : Limits
            How much is read.
        """

    def document(self) -> dict[str, Any]:
        """Return the whole file as plain values."""
        return {"otmoe": self.kind, "schema_version": SCHEMA_VERSION, **self.body()}

    def to_json(self) -> str:
        """Return it as JSON text; the same numbers come back from it, to the last bit."""
        return to_text(self.document()) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all.

        Parameters
        ----------
        path : str or path
            Its folder has to exist.
        """
        write_whole(path, self.to_json())

    @classmethod
    def from_json(
        cls, text: str | bytes, source: str | None = None, limits: Limits = LIMITS
    ) -> Self:
        """Read JSON text, or raise a :class:`MessageError` that says what is wrong with it.

        Parameters
        ----------
        text : str or bytes
            JSON; bytes are UTF-8.
        source : str, optional
            Where the text comes from; an error begins with it.
        limits : Limits
            How much is read.
        """
        source = cls.called if source is None else source
        document = parse(text, source, limits)
        kind = kind_of(document, source)
        if kind != cls.kind:
            code = cls.other_kinds.get(kind, Error.OTHER_DOCUMENT)
            fail(source, "otmoe", code, kind=shown(kind), wanted=shown(cls.kind))
        return cls.from_document(document, source, limits)

    @classmethod
    def load(cls, path: str | os.PathLike[str], limits: Limits = LIMITS) -> Self:
        """Read it from a file, or raise a :class:`MessageError` that says what is wrong with it.

        Parameters
        ----------
        path : str or path
        limits : Limits
            How much is read.
        """
        return cls.from_json(read(path, limits), named(path), limits)


def kind_of(document: dict[str, Any], source: str) -> str:
    """Return what kind of document this is; refuse one of no kind or of another version."""
    kind = document.get("otmoe")
    if not isinstance(kind, str):
        fail(source, "otmoe", Error.KIND_MISSING, kind=shown(kind))
    check_version(document, source)
    return kind
