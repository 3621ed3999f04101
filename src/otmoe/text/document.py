"""Values stored as one JSON file each, read strictly and written atomically."""

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
    """A value stored as a JSON file.

    A subclass defines the `kind` of its file, its content (:meth:`body`) and how it is read
    (:meth:`from_document`); the rest follows.
    """

    kind: ClassVar[str]
    """Value of the field `otmoe`."""

    called: ClassVar[str]
    """Name in errors of a document without a file name."""

    other_kinds: ClassVar[dict[str, Error]] = {}
    """Errors for files of other kinds, by kind."""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return the content of the file, without kind and version."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the checked value of a parsed document of this kind.

        Parameters
        ----------
        document : dict
            As :func:`otmoe.text.strict_json.parse` returns it.
        source : str
            Where it comes from; errors begin with it.
        limits : Limits
            Limits on the size of the document.
        """

    def document(self) -> dict[str, Any]:
        """Return the whole file as plain values."""
        return {"otmoe": self.kind, "schema_version": SCHEMA_VERSION, **self.body()}

    def to_json(self) -> str:
        """Return it as JSON text, from which the same numbers are read, to the last bit."""
        return to_text(self.document()) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, completely or not at all.

        Parameters
        ----------
        path : str or path
            Its folder must exist.
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
            Where the text comes from; errors begin with it.
        limits : Limits
            Limits on the size of the document.
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
            Limits on the size of the document.
        """
        return cls.from_json(read(path, limits), named(path), limits)


def kind_of(document: dict[str, Any], source: str) -> str:
    """Return the kind of a document; refuse one without a kind or of another version."""
    kind = document.get("otmoe")
    if not isinstance(kind, str):
        fail(source, "otmoe", Error.KIND_MISSING, kind=shown(kind))
    check_version(document, source)
    return kind
