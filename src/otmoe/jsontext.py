"""JSON text, read with suspicion and written for people."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from otmoe.outputs import whole

_QUOTED = 40  # characters of an offending value that are shown
_DIGITS = 300  # an integer of more digits may be too large even for a float


class MessageError(ValueError):
    """A file that cannot be used; the error names the place and says what to do."""


def path_of(place: Sequence[int | str]) -> str:
    """Return a place in a document as one would write it in code.

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
        elif part != "[key]":  # so pydantic says that it means a key and not its value
            path += f"[{shown(part)}]"
    return path.removeprefix(".")


def fail(source: str, path: str, problem: str) -> NoReturn:
    """Raise a :class:`MessageError` about one place of a document."""
    raise MessageError(f"{source}: `{path}` {problem}")


@dataclass(frozen=True)
class Twice:
    """Stands for an object in which a key occurs twice, so that no check lets it pass.

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


def parse(text: str | bytes, source: str) -> dict[str, Any]:
    """Return the JSON object that a text holds.

    Parameters
    ----------
    text : str or bytes
        Bytes are UTF-8.
    source : str
        Where the text comes from; errors begin with it.
    """
    if not isinstance(text, str | bytes):
        raise TypeError(
            f"{source}: the text is a {type(text).__name__}; give str or bytes, or the path of a "
            "file to `load`."
        )
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise MessageError(
            f"{source}: byte {error.start} is not UTF-8 text; save the file as UTF-8 JSON."
        ) from None
    decoded = decoded.removeprefix("\ufeff").strip()  # some editors put a mark before UTF-8
    try:
        document = json.loads(decoded, object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise MessageError(
            f"{source}: lists or objects lie too deep inside each other; no otmoe file is like "
            "this, so ask for it again."
        ) from None
    except ValueError as error:
        raise MessageError(f"{source}: {_not_json(decoded, error)}") from None
    if isinstance(document, Twice):
        fail(source, path_of([document.key]), "occurs twice; keep one of the two.")
    if not isinstance(document, dict):
        raise MessageError(
            f"{source}: holds {shown(document)}; an otmoe file is one JSON object, in braces."
        )
    return document


def _not_json(text: str, error: ValueError) -> str:
    if not text:
        return "is empty; ask for it again."
    at_end = isinstance(error, json.JSONDecodeError) and error.pos >= len(text)
    if text[:1] == "{" and (at_end or text[-1:] != "}"):
        return f"ends too early, after {len(text)} characters; ask for it again."
    return f"is not valid JSON ({error}); ask for it again."


def to_text(document: Any, indent: str = "") -> str:
    """Return a document as JSON, two spaces for each level and rows of numbers on one line.

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


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def shown(value: Any) -> str:
    """Return a value as short JSON, or what kind of thing it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, whole or not at all."""
    with whole(path) as file:
        file.write(text.encode())
