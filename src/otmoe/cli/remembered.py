"""What a site's fit was asked for, kept beside its message, for the answers that come later.

The file stays at the site: it says where the rows are. Its name ends in ``.local``, so that no
pattern for messages takes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otmoe.cli.common import Failed
from otmoe.text.outputs import write_whole
from otmoe.text.sentences import Error

if TYPE_CHECKING:
    from otmoe import LocalModel
    from otmoe.documents.model_file import ModelFile

ENDING = ".local"

COLUMNS = {"target": "target", "offset": "offset", "groups": "expert per"}
"""Columns of a fit, and what a model file calls them."""


@dataclass(frozen=True)
class Remembered:
    """Options of a fit.

    Attributes
    ----------
    site, target : str
    data : tuple of str
        Absolute paths and patterns, or URLs.
    weight, sep, offset, groups : str, optional
    missing : {"error", "drop"}
    """

    site: str
    target: str
    data: tuple[str, ...]
    weight: str | None = None
    missing: str = "error"
    sep: str | None = None
    offset: str | None = None
    groups: str | None = None

    def save(self, message: Path) -> None:
        """Write it beside a message."""
        write_whole(beside(message), json.dumps(asdict(self), indent=1) + "\n")


def beside(message: Path) -> Path:
    """Return the file that goes with a message."""
    return message.with_name(message.name + ENDING)


def absolute(data: Sequence[str]) -> tuple[str, ...]:
    """Return paths that mean the same from any folder."""
    return tuple(
        item if "://" in item else os.path.abspath(os.path.expanduser(item)) for item in data
    )


def recalled(message: Path) -> Remembered:
    """Return what the fit that wrote a message was asked for."""
    path = beside(message)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return _checked(Remembered(**{**found, "data": tuple(found["data"])}), found["data"])
    except FileNotFoundError:
        raise Failed(Error.SHELL_NOT_REMEMBERED, file=message, local=path) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Failed(Error.SHELL_LOCAL_WRONG, file=path, reason=error) from None


def columns_asked(messages: Sequence[Path]) -> dict[str, str]:
    """Return the columns that the fits of some messages were asked for, as a model file names them.

    Only what all files beside these messages agree on; nothing at a server that has no such file.
    """
    found = []
    for message in messages:
        if beside(message).is_file():
            try:
                found.append(recalled(message))
            except Failed:
                return {}
    each = {name: {getattr(one, name) for one in found} for name in COLUMNS}
    agreed = {name: values.pop() for name, values in each.items() if len(values) == 1}
    return {COLUMNS[name]: value for name, value in agreed.items() if value is not None}


def columns_told(file: ModelFile | LocalModel) -> dict[str, Any]:
    """Return the columns that a model file names."""
    about = getattr(file, "about", {})
    return {name: about[name] for name in COLUMNS.values() if name in about}


def _checked(found: Remembered, data: Any) -> Remembered:
    """Refuse other kinds of values: one path that is taken for many would be a search of a disk."""
    if not isinstance(data, list):
        raise TypeError("`data` is no list")
    others = {name: value for name, value in vars(found).items() if name != "data"}
    texts = [found.site, found.target, found.missing, *found.data]
    texts += [value for value in others.values() if value is not None]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("not all of it is text")
    if found.missing not in ("error", "drop"):
        raise ValueError(f"`missing` is {found.missing!r}")
    return found
