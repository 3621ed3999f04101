"""Files that a command names and that do not exist, before anything is imported to read them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from otmoe.text.errors import OtmoeError
from otmoe.text.sentences import Error

READ = ("model", "file", "state", "request")
"""Arguments that name a file to read."""


def check_there(ctx: click.Context) -> None:
    """Refuse the files of a command line that do not exist; patterns and URLs are not looked at."""
    arguments = {p.name for p in ctx.command.params if isinstance(p, click.Argument)}
    for name in arguments.intersection(READ):
        path = ctx.params[name]
        if isinstance(path, Path) and not path.exists():
            raise OtmoeError(Error.NOT_THERE, path=path)
    for item in ctx.params.get("data") or ():
        named = os.path.abspath(os.path.expanduser(item))
        if not re.search(r"[*?[]|://", item) and not os.path.exists(named):
            raise OtmoeError(Error.NOT_THERE, path=named)


def of_system(error: OSError) -> str:
    """Return what the system says about a file, or the same sentence about one that is missing."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return Error.NOT_THERE.value.format(path=error.filename)
    return f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
