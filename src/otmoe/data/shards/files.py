"""Data files: what a path, pattern, folder or URL stands for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import fs

from otmoe.data.tables import first_line
from otmoe.text.errors import InvalidInput, InvalidType, ShardError
from otmoe.text.sentences import Error

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ARROW = (".feather", ".arrow")
ENDINGS = PARQUET + CSV + ARROW

Path = str | os.PathLike[str]


@contextmanager
def named(name: str) -> Iterator[None]:
    """Turn whatever goes wrong with a shard into an error that begins with its name."""
    try:
        yield
    except (ShardError, MemoryError):
        raise
    except (OSError, pa.ArrowException) as error:
        raise ShardError(
            Error.UNREADABLE, where=f"shard {name!r}", reason=first_line(error)
        ) from error
    except InvalidInput as error:
        raise error.about(f"shard {name!r}", ShardError) from error


def locate(path: str) -> tuple[Any, str]:
    """Return the file system of a path or URL, and the path there."""
    if "://" not in path:
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)
    except (OSError, pa.ArrowException) as error:
        raise ShardError(Error.UNREACHABLE, path=path, reason=first_line(error)) from error


def find(data: Path | Sequence[Path]) -> list[str]:
    """Return the data files that paths, patterns, folders and URLs stand for.

    Parameters
    ----------
    data : path, or sequence of paths
        A file; a folder, for all data files in and below it; a pattern with ``*``, ``?``, ``[ab]``
        or ``**``; or the URL of one of these.

    Returns
    -------
    list of str
        Absolute paths or URLs, those of a folder or a pattern sorted.
    """
    files: list[str] = []
    for item in [data] if isinstance(data, str | os.PathLike) else data:
        if not isinstance(item, str | os.PathLike):
            raise InvalidType(Error.NOT_A_FILE, kind=type(item).__name__)
        files += _files_of(os.fspath(item))
    if not files:
        raise ShardError(Error.NO_FILES)
    seen: dict[tuple[str, str], str] = {}
    for file in files:
        system, path = locate(file)
        local = system.type_name == "local"
        key = system.type_name, os.path.realpath(path) if local else path
        if key in seen:
            if seen[key] == file:
                raise ShardError(Error.FILE_TWICE, file=file)
            raise ShardError(Error.SAME_FILE, file=file, other=seen[key])
        seen[key] = file
    return files


def _files_of(item: str) -> list[str]:
    if "://" not in item:
        item = os.path.abspath(os.path.expanduser(item))
    system, path = locate(item)
    path = path.rstrip("/") or "/"
    try:
        kind = system.get_file_info(path).type
        if kind == fs.FileType.File:
            kind_of(path)
            return [item]
        if kind == fs.FileType.Directory:
            found = _in_folder(system, path, item)
        elif _is_pattern(path):
            found = _matching(system, path)
            if not found:
                raise ShardError(Error.NO_MATCH, pattern=item)
        else:
            raise ShardError(Error.NOT_THERE, path=item)
    except OSError as error:
        raise ShardError(Error.UNREACHABLE, path=item, reason=first_line(error)) from error
    return [_like(item, path, file) for file in sorted(found)]


def _in_folder(system: Any, folder: str, item: str) -> list[str]:
    """Return the data files in and below a folder; names with a leading dot or _ are skipped."""
    found = [
        file.path
        for file in system.get_file_info(fs.FileSelector(folder, recursive=True))
        if file.type == fs.FileType.File
        and file.path.lower().endswith(ENDINGS)
        and not re.search(r"(^|/)[._]", file.path.removeprefix(folder).lstrip("/"))
    ]
    if not found:
        raise ShardError(Error.FOLDER_EMPTY, folder=item, endings=", ".join(ENDINGS))
    if len({kind_of(file) for file in found}) > 1:
        raise ShardError(Error.FOLDER_MIXED, folder=item)
    return found


def _is_pattern(path: str) -> bool:
    return re.search(r"[*?\[]", path) is not None


def _matching(system: Any, pattern: str) -> list[str]:
    """Return the files that a pattern matches; those with a leading dot have to be asked for."""
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if _is_pattern(part))
    selector = fs.FileSelector(
        "/".join(parts[:fixed]) or "/", recursive=fixed < len(parts) - 1, allow_not_found=True
    )
    found = [
        file.path
        for file in system.get_file_info(selector)
        if file.type == fs.FileType.File
        and _matches(file.path.split("/"), parts)
        and (parts[-1].startswith(".") or not file.base_name.startswith("."))
    ]
    for file in found:
        kind_of(file)
    return found


def _matches(path: list[str], pattern: list[str]) -> bool:
    """Say whether a path matches, level by level; ``**`` stands for any number of levels."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])


def _like(item: str, path: str, file: str) -> str:
    """Return a file as a URL if the item that led to it is one."""
    if "://" not in item:
        return file
    head, mark, query = item.partition("?")
    return unquote(head).rstrip("/").removesuffix(path) + quote(file) + mark + query


def kind_of(path: str) -> str:
    """Return what kind of file a name is of, "parquet", "csv" or "arrow"."""
    name = path.partition("?")[0].lower() if "://" in path else path.lower()
    if name.endswith(PARQUET):
        return "parquet"
    if name.endswith(CSV):
        return "csv"
    if name.endswith(ARROW):
        return "arrow"
    raise ShardError(Error.FILE_KIND, path=path, endings=", ".join(ENDINGS))


def names_for(files: Sequence[str]) -> list[str]:
    """Return a name for each file: its own, with folders where that is not enough."""
    paths = [locate(file)[1] for file in files]
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    common = os.path.commonpath(paths)
    names = [os.path.relpath(path, common) for path in paths]
    return names if len(set(names)) == len(names) else list(files)
