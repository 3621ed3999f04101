"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from otmoe.text.errors import NotThere
from otmoe.text.sentences import Error


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing: under another name first, then, once all is well, under its own.

    If anything fails, the temporary file is removed and an older file of that name stays as it was.

    Parameters
    ----------
    path : str or path
        Its folder has to exist.

    Yields
    ------
    binary file
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise NotThere(Error.NO_FOLDER_TO_WRITE, file=path.name, folder=path.parent)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)  # a full disk does not say what was written to it
        raise


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, whole or not at all."""
    with whole(path) as file:
        file.write(text.encode())
