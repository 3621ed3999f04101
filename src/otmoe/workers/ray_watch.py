"""What outlives a driver that has started Ray on its machine, and ends what Ray leaves behind.

Ray's daemon, the raylet, ends with its driver however that came to its end. Its agents do not:
after a hang-up or a kill they were still there minutes later, with 100 MB each. This file is run
by itself, without the package: ``python ray_watch.py DRIVER``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

_EVERY = 0.5  # seconds between two looks
_GRACE = 3.0  # seconds in which what was left may end by itself
_RAYLET = "raylet"

Process = tuple[int, str]  # its number, and when it began: numbers are given again

_watched: set[int] = set()


def watch() -> None:
    """Start a process that ends what is left of the Ray that this process has started, if any.

    Nothing is done where Ray runs elsewhere, or where there is no /proc.
    """
    known = _processes()
    started = [pid for pid in _children(known, os.getpid()) if known[pid][1] == _RAYLET]
    if set(started) - _watched:
        _watched.update(started)
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
        silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        # A session of its own: what is sent to the driver's terminal or group is not for it.
        os.posix_spawn(command[0], command, os.environ, file_actions=silent, setsid=True)


def _processes() -> dict[int, tuple[int, str, str]]:
    """Return parent, name and beginning of every process, by its number."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    head, _, rest = file.read().rpartition(")")
                fields = rest.split()
                if fields[0] != "Z":
                    found[int(name)] = int(fields[1]), head.partition("(")[2], fields[19]
    return found


def _children(known: dict[int, tuple[int, str, str]], parent: int) -> list[int]:
    return [pid for pid, (above, _, _) in known.items() if above == parent]


def _family(known: dict[int, tuple[int, str, str]], driver: int) -> set[Process]:
    """Return the raylets that a driver has started, and all that these have."""
    found: set[Process] = set()
    new = [pid for pid in _children(known, driver) if known[pid][1] == _RAYLET]
    while new:
        found |= {(pid, known[pid][2]) for pid in new}
        new = [child for pid in new for child in _children(known, pid)]
    return found


def _alive(family: set[Process]) -> set[Process]:
    known = _processes()
    return {(pid, began) for pid, began in family if pid in known and known[pid][2] == began}


def _end_after(driver: int) -> None:
    """Wait for a driver or its Ray to end, and then end what Ray has left."""
    family: set[Process] = set()
    while os.getppid() == driver:
        now = _family(_processes(), driver)
        if family and not now:  # Ray was shut down
            break
        family |= now
        time.sleep(_EVERY)
    end = time.monotonic() + _GRACE
    while _alive(family) and time.monotonic() < end:
        time.sleep(_EVERY)
    for pid, _ in _alive(family):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _end_after(int(sys.argv[1]))
