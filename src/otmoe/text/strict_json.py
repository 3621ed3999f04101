"""JSON text, read strictly and written for people."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from otmoe.text.arguments import check_whole
from otmoe.text.errors import InvalidType, MessageError, fail
from otmoe.text.sentences import Error

_QUOTED = 40  # characters shown of an invalid value
_DIGITS = 300  # an integer of more digits may be too large even for a float
_PART = 1 << 20  # bytes read at a time

_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # streams passed by a shell

BRACES = 3
"""Bytes of a document's file besides its fields: braces and line ends, minus the last comma."""


@dataclass(frozen=True)
class Limits:
    """Limits on files from other parties; anything larger is refused.

    Text is measured before it is parsed, and a file before it is read. Files written by this
    machine are not limited.

    Attributes
    ----------
    bytes : int
        Size of the file.
    depth : int
        Nesting of lists and objects.
    values : int
        Total number of numbers, texts, lists and objects.
    text : int
        Characters of one text, as written in the file.
    experts, features, classes : int
        Of a model.

    Examples
    --------
    >>> from otmoe import Limits, LocalModel
    >>> LocalModel.from_json("[[[[0]]]]", source="upload 7", limits=Limits(depth=3))
    Traceback (most recent call last):
    otmoe.text.errors.MessageError: upload 7: has more than 3 levels of lists and objects; if \
that is intended, raise the limit with limits=otmoe.Limits(depth=...).
    """

    bytes: int = 32 * 2**20
    depth: int = 16
    values: int = 2_000_000
    text: int = 10_000
    experts: int = 100
    features: int = 5_000
    classes: int = 1_000

    def __post_init__(self) -> None:
        for limit in fields(self):
            check_whole(f"limits.{limit.name}", getattr(self, limit.name))

    def check(self, name: str, found: int, source: str) -> None:
        """Refuse a file that exceeds the limit of that name."""
        if found > getattr(self, name):
            self.refuse(name, source)

    def refuse(self, name: str, source: str) -> NoReturn:
        """Raise a :class:`MessageError` that names a limit and says how to raise it."""
        most = getattr(self, name)
        facts = {"what": _MORE_THAN[name].format(most), "limit": name, "most": most}
        raise MessageError(Error.LIMIT, where=source, **facts)


LIMITS = Limits()
"""The default limits."""

UNLIMITED = Limits(**{limit.name: 2**62 for limit in fields(Limits)})
"""For files made by this machine."""

_MORE_THAN = {
    "bytes": "more than {:,} bytes",
    "depth": "more than {} levels of lists and objects",
    "values": "more than {:,} values",
    "text": "a text of more than {:,} characters",
    "experts": "more than {:,} experts",
    "features": "more than {:,} features",
    "classes": "more than {:,} classes",
}


def path_of(place: Sequence[int | str]) -> str:
    """Return a place in a document, written as in code.

    Examples
    --------
    >>> path_of(["model", "gate", "coef", 0, 2])
    'model.gate.coef[0][2]'
    """
    path = ""
    for part in place:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and len(part) <= _QUOTED:
            path += f".{part}"
        elif part != "[key]":  # how pydantic marks a key rather than its value
            path += f"[{shown(part)}]"
    return path.removeprefix(".")


@dataclass(frozen=True)
class Twice:
    """Placeholder for an object with a repeated key, which no check accepts.

    Attributes
    ----------
    key : str
    """

    key: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | Twice:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            return Twice(key)
        found[key] = value
    return found


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < _DIGITS else float(digits)


# A text, whose end may be missing, or a bracket. There is no backtracking, so the time is linear
# in the length of any text.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[][{}]', re.DOTALL)


def _measure(text: str, source: str, limits: Limits) -> None:
    """Refuse a text that exceeds a limit, before it is parsed.

    Measuring may stop where the text is not valid JSON, since the parser will fail there.
    """
    depth = values = texts = end = 0
    for token in _TOKEN.finditer(text):
        before, (start, end) = end, token.span()
        values += text.count(",", before, start)  # n values have n - 1 commas, and one opening
        mark = text[start]
        if mark == '"':
            texts += 1
            if end - start - 2 > limits.text:
                limits.refuse("text", source)
        elif mark in "[{":
            values, depth = values + 1, depth + 1
            if depth > limits.depth:
                limits.refuse("depth", source)
        else:
            depth -= 1
        if values > limits.values:
            limits.refuse("values", source)
        if depth < 0 or texts > 2 * values + 1:  # a name and a text for each value
            return
    limits.check("values", values + text.count(",", end), source)


def named(path: str | os.PathLike[str]) -> str:
    """Return a path for the beginning of an error, on one line whatever the file is called."""
    return "".join(c if c.isprintable() else "?" for c in str(path))


def read(path: str | os.PathLike[str], limits: Limits = LIMITS) -> bytes:
    """Return the content of a file, if it is within the limit.

    Parameters
    ----------
    path : str or path
        A file, or a stream passed to this process such as /dev/stdin, of which at most the limit
        and one byte are read.
    limits : Limits
    """
    source = named(path)
    handed = str(path).startswith(_STREAMS)
    with open(path, "rb", buffering=0, opener=None if handed else _without_waiting) as file:
        found = os.fstat(file.fileno())
        if not (handed or stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise MessageError(Error.NO_PLAIN_FILE, where=source)
        limits.check("bytes", found.st_size, source)
        parts, size = [], 0
        while part := file.read(min(_PART, limits.bytes + 1 - size)):
            parts.append(part)
            size += len(part)
            limits.check("bytes", size, source)  # it may grow, and a stream has no size
    return b"".join(parts)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file, without waiting for a writer if it is a named pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def parse(text: str | bytes, source: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Return the JSON object in a text.

    Parameters
    ----------
    text : str or bytes
        Bytes are UTF-8.
    source : str
        Where the text comes from; errors begin with it.
    limits : Limits
    """
    if not isinstance(text, str | bytes):
        raise InvalidType(Error.NOT_TEXT, where=source, kind=type(text).__name__)
    limits.check("bytes", len(text), source)
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise MessageError(Error.NOT_UTF8, where=source, byte=error.start) from None
    decoded = decoded.removeprefix("\ufeff").strip()  # some editors write a byte-order mark
    _measure(decoded, source, limits)
    try:
        document = json.loads(decoded, object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise MessageError(Error.TOO_DEEP, where=source) from None
    except ValueError as error:
        raise _not_json(decoded, error, source) from None
    if isinstance(document, Twice):
        fail(source, path_of([document.key]), Error.KEY_TWICE)
    if not isinstance(document, dict):
        raise MessageError(Error.NOT_AN_OBJECT, where=source, value=shown(document))
    return document


def _not_json(text: str, error: ValueError, source: str) -> MessageError:
    if not text:
        return MessageError(Error.JSON_EMPTY, where=source)
    at_end = isinstance(error, json.JSONDecodeError) and error.pos >= len(text)
    if text[:1] == "{" and (at_end or text[-1:] != "}"):
        return MessageError(Error.JSON_CUT, where=source, length=len(text))
    return MessageError(Error.JSON_INVALID, where=source, reason=str(error))


def to_text(document: Any, indent: str = "") -> str:
    """Return a document as JSON, indented by two spaces, with rows of numbers on one line.

    Examples
    --------
    >>> print(to_text({"a": [[0.1, 2.0], [3.0, 4.0]], "b": None}))
    {
      "a": [
        [0.1, 2.0],
        [3.0, 4.0]
      ],
      "b": null
    }
    """
    deeper = indent + "  "
    if isinstance(document, dict) and document:
        items = [f"{_scalar(key)}: {to_text(value, deeper)}" for key, value in document.items()]
        opening, closing = "{}"
    elif isinstance(document, list) and any(isinstance(item, dict | list) for item in document):
        items = [to_text(item, deeper) for item in document]
        opening, closing = "[]"
    else:
        return _scalar(document)
    inside = f",\n{deeper}".join(items)
    return f"{opening}\n{deeper}{inside}\n{indent}{closing}"


def sizes_of(document: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of each field of a document, as :func:`to_text` writes it.

    Examples
    --------
    >>> sizes_of({"a": [1, 2], "b": 3})
    {'a': 15, 'b': 10}
    """
    return {
        name: len(f"  {_scalar(name)}: {to_text(value, '  ')},\n".encode())
        for name, value in document.items()
    }


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def shown(value: Any) -> str:
    """Return a value as short JSON, or its kind."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = " ".join(repr(value).split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
