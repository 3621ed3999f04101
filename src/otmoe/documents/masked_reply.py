"""Masked replies: what a site answers to a request that has a roster."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from otmoe.documents.model import versions_used
from otmoe.documents.roster import Hash
from otmoe.documents.sums import Round
from otmoe.text.document import Document
from otmoe.text.errors import fail
from otmoe.text.records import Line, List, Map, Record, Site, Version, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, shown

Words = NDArray[np.uint64]
"""128-bit integers, (n, 2): the lower and the higher 64 bits of each."""

_BYTES = 16  # of an integer
_LINE = 360  # integers in a line of text, which then has 7,680 characters


class MaskedReplyRecord(Record):
    """A site's masked answer, of which only the sum over all sites of the roster can be read.

    The numbers are 16-byte integers, little-endian, in base64, 360 per line.
    """

    otmoe: Literal["masked reply"]
    schema_version: Version
    site: Site
    round: Round
    digest: Line
    context: Hash
    numbers: List[Line]
    checksum: Hash
    versions: Map[Line, Line] = {}


@dataclass(frozen=True)
class MaskedReply(Document):
    """What a site replies to a request that has a roster.

    Attributes
    ----------
    site : str
    round : int
    digest : str
        Of the question.
    context : str
        A hash of the whole request, its roster included: what the masks were made for.
    numbers : ndarray of uint64 of shape (n, 2)
        Integers of 128 bits, the lower half first.
    source : str
        The file it was read from, for errors.
    """

    kind: ClassVar[str] = "masked reply"
    called: ClassVar[str] = "masked reply"
    other_kinds: ClassVar[dict[str, Error]] = {"refine reply": Error.REPLY_NOT_MASKED}

    site: str
    round: int
    digest: str
    context: str
    numbers: Words = field(repr=False)
    source: str = ""

    @property
    def name(self) -> str:
        """What errors call it: its file, or its site."""
        return self.source or f"site {shown(self.site)}"

    def body(self) -> dict[str, Any]:
        """Return what the file holds, below its kind and version."""
        data = _bytes(self.numbers)
        size = _BYTES * _LINE
        lines = [b64encode(data[i : i + size]).decode() for i in range(0, len(data), size)]
        return {
            "site": self.site,
            "round": self.round,
            "digest": self.digest,
            "context": self.context,
            "numbers": lines,
            "checksum": sha256(data).hexdigest(),
            "versions": versions_used(),
        }

    @classmethod
    def from_document(cls, document: dict[str, Any], source: str, limits: Limits) -> Self:
        """Return the reply of a parsed document, checked."""
        record = typed(MaskedReplyRecord, document, source)
        parts = []
        for i, line in enumerate(record.numbers):
            try:
                parts.append(b64decode(line, validate=True))
            except (binascii.Error, ValueError):
                fail(source, f"numbers[{i}]", Error.NOT_BASE64)
        data = b"".join(parts)
        if not data or len(data) % _BYTES:
            fail(source, "numbers", Error.NOT_WHOLE_NUMBERS, bytes=len(data), size=_BYTES)
        if sha256(data).hexdigest() != record.checksum:
            fail(source, "checksum", Error.CHECKSUM)
        numbers = np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, 2)
        return cls(record.site, record.round, record.digest, record.context, numbers, source)


def _bytes(numbers: Words) -> bytes:
    """Return integers as bytes, the lowest first."""
    return np.ascontiguousarray(numbers, dtype="<u8").tobytes()
