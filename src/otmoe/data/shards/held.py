"""Rows of files that a process keeps in memory between passes, as long as there is room.

A process keeps what it has read first and does not evict it for later shards: passes go over all
shards in turn, so the most recently used one is needed last. A file that has changed in the
meantime is read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

from otmoe.data.shards.files import locate
from otmoe.data.shards.gathering import ShardRows
from otmoe.data.shards.reading import FileShard, Shard

IDLE = 300.0
"""Seconds without a request after which a process forgets all rows."""

_SHARE = 0.5  # of the memory that stays free
_CGROUP = Path("/sys/fs/cgroup")

Stamp = tuple[tuple[int, int], ...]


class _Entry(NamedTuple):
    stamp: Stamp
    rows: ShardRows


_HELD: dict[FileShard, _Entry] = {}
_LOCK = Lock()
_USED = [0.0]  # when rows were last asked for


def held_rows(shard: Shard, *, keep: bool = False) -> ShardRows:
    """Return the rows of a shard: those that are held, if its files are as they were, or read.

    Parameters
    ----------
    shard : Shard
    keep : bool
        Whether to hold them, if there is room: somebody will ask again. Only rows of files are.
    """
    if not isinstance(shard, FileShard):
        return shard.read()
    _USED[0] = time.monotonic()
    entry = _HELD.get(shard)
    if entry is None and not keep:
        return shard.read()
    stamp = _stamp(shard)  # before it is read: a change during the reading is one
    if entry is not None and stamp is not None and entry.stamp == stamp:
        return entry.rows
    rows = shard.read()
    with _LOCK:
        _HELD.pop(shard, None)
        if keep and stamp is not None and _size(rows) < _room():
            if not _HELD:
                Thread(target=_watch, daemon=True, name="otmoe-held").start()
            _HELD[shard] = _Entry(stamp, rows)
    return rows


def forget() -> None:
    """Let go of all rows that this process holds."""
    with _LOCK:
        _HELD.clear()


@contextmanager
def letting_go() -> Iterator[None]:
    """Let go of all rows in the end: the work is done, and this process may have other work."""
    try:
        yield
    finally:
        forget()


def _watch() -> None:
    """Forget all rows after some time without requests; end when there are none."""
    while _HELD:
        left = _USED[0] + IDLE - time.monotonic()
        if left <= 0:
            forget()
            return
        time.sleep(min(left, 10.0))


def _stamp(shard: FileShard) -> Stamp | None:
    """Return sizes and times of change of a shard's files; None where they are not told."""
    found = []
    for path in dict.fromkeys(piece.path for piece in shard.pieces):
        try:
            system, inner = locate(path)
            info = system.get_file_info(inner)
        except (OSError, ValueError):  # reading it will raise the error
            return None
        if info.size is None or info.mtime_ns is None:
            return None
        found.append((int(info.size), int(info.mtime_ns)))
    return tuple(found)


def _size(rows: ShardRows) -> int:
    """Return the bytes of the arrays of some rows."""
    parts = (rows.X, rows.y, rows.weight, rows.offset, rows.groups)
    return sum(int(part.nbytes) for part in parts if part is not None)


def _room() -> int:
    """Return how many bytes more may be held: half of the memory stays free.

    All processes of a machine look at the same figures, so that no coordination is needed.
    """
    total, free = _memory()
    return int(free - _SHARE * total)


def _memory() -> tuple[int, int]:
    """Return the memory of this machine, or of this container, and what is free of it, in bytes."""
    figures = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, value = line.split()[:2]
            figures[name] = 1024 * int(value)
        total, free = figures["MemTotal:"], figures["MemAvailable:"]
    except (OSError, ValueError, KeyError):  # no Linux: an eighth for each process
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        used = sum(_size(entry.rows) for entry in _HELD.values())
        return total, int((_SHARE + 0.125) * total) - used
    with suppress(OSError, ValueError, KeyError):
        most = int((_CGROUP / "memory.max").read_text())
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        files = dict(line.split() for line in lines)["inactive_file"]
        used = int((_CGROUP / "memory.current").read_text()) - int(files)
        if most < total:
            total, free = most, min(free, most - used)
    return total, free
