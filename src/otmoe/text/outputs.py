"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from otmoe.text.errors import NotThere, RunError
from otmoe.text.sentences import Error

_KEPT: ContextVar[frozenset[Path]] = ContextVar("kept", default=frozenset())
_MACHINE = sha256(socket.gethostname().encode()).hexdigest()[:8]
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing under a temporary name, and rename it once it is complete.

    If anything fails, the temporary file is removed and an existing file is unchanged.

    Parameters
    ----------
    path : str or path
        Its folder must exist. If :func:`keep` was called for it, nothing is replaced.

    Yields
    ------
    binary file
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise NotThere(Error.NO_FOLDER_TO_WRITE, file=path.name, folder=path.parent)
    temporary = path.with_name(_temporary())
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.absolute() in _KEPT.get():
            _named_first(temporary, path)
        else:
            os.replace(temporary, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)  # the error of a full disk does not name the file
        raise


def keep(path: Path) -> None:
    """Do not replace a file that appears at this path before :func:`whole` has ended."""
    _KEPT.set(_KEPT.get() | {path.absolute()})


def _named_first(temporary: Path, path: Path) -> None:
    """Rename a file, to a different name if a file of that name exists by now."""
    try:
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            path.open("xb").close()  # no hard links: reserve the name, then replace
            os.replace(temporary, path)
    except FileExistsError:
        other = path.with_name(f"{path.stem}.{secrets.token_hex(4)}{path.suffix}")
        os.replace(temporary, other)
        raise RunError(Error.OUTPUT_APPEARED, path=path, other=other) from None
    with suppress(FileNotFoundError):
        temporary.unlink()
    _KEPT.set(_KEPT.get() - {path.absolute()})  # from now on the file is ours


def try_folder(folder: Path) -> None:
    """Raise the error that writing to a folder would raise; remove leftovers of killed runs."""
    for old in folder.glob(f".otmoe-{_MACHINE}-*.tmp"):
        number = old.name.split("-")[2]
        if number.isdecimal() and not _alive(int(number)):
            with suppress(OSError):
                old.unlink()
    attempt = folder / _temporary()
    attempt.open("xb").close()
    attempt.unlink()


def _temporary() -> str:
    """Return an unused name, with the machine and process that write the file."""
    return f".otmoe-{_MACHINE}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def _alive(number: int) -> bool:
    """Return whether a process with this id runs on this machine."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, completely or not at all."""
    with whole(path) as file:
        file.write(text.encode())
