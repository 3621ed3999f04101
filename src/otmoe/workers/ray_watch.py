"""A process that outlives a driver that started Ray, and ends what Ray leaves behind.

Ray's daemon, the raylet, ends with its driver, however that ended. Its agents do not: after SIGHUP
or SIGKILL they were still running minutes later, at 100 MB each. This file is run as a script,
without the package: ``python ray_watch.py DRIVER PID:START ...``, with the processes of that Ray
that are known already, so that none is missed if the driver ends before the first check.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

_EVERY = 0.5  # seconds between checks
_GRACE = 3.0  # seconds that remaining processes have to end on their own
_RAYLET = "raylet"

Process = tuple[int, str]  # its id and its start time, since ids are reused

_watched: set[int] = set()


def watch() -> None:
    """Start a process that ends what remains of the Ray started by this process, if any.

    Does nothing if Ray runs elsewhere or there is no /proc.
    """
    known = _processes()
    started = [pid for pid in _children(known, os.getpid()) if known[pid][1] == _RAYLET]
    if set(started) - _watched:
        _watched.update(started)
        family = [f"{pid}:{began}" for pid, began in sorted(_family(known, os.getpid()))]
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *family]
        silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        # In a new session, so that signals to the driver's terminal or group do not reach it.
        os.posix_spawn(command[0], command, os.environ, file_actions=silent, setsid=True)


def _processes() -> dict[int, tuple[int, str, str]]:
    """Return parent, name and start time of every process, by its id."""
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
    """Return the raylets that a driver started, and all their descendants."""
    return _descent(known, [pid for pid in _children(known, driver) if known[pid][1] == _RAYLET])


def _descent(known: dict[int, tuple[int, str, str]], new: list[int]) -> set[Process]:
    """Return processes and all their descendants."""
    found: set[Process] = set()
    while new:
        found |= {(pid, known[pid][2]) for pid in new}
        new = [child for pid in new for child in _children(known, pid)]
    return found


def _alive(known: dict[int, tuple[int, str, str]], family: set[Process]) -> set[Process]:
    return {(pid, began) for pid, began in family if pid in known and known[pid][2] == began}


def _end_after(driver: int, family: set[Process]) -> None:
    """Wait for a driver or its Ray to end, then end the processes that Ray left behind."""
    while os.getppid() == driver:
        now = _family(_processes(), driver)
        if family and not now:  # Ray was shut down
            break
        family |= now
        time.sleep(_EVERY)
    known = _processes()
    family |= _descent(known, [pid for pid, _ in _alive(known, family)])  # started since the check
    end = time.monotonic() + _GRACE
    while _alive(_processes(), family) and time.monotonic() < end:
        time.sleep(_EVERY)
    for pid, _ in _alive(_processes(), family):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    known_already = (known.partition(":") for known in sys.argv[2:])
    _end_after(int(sys.argv[1]), {(int(pid), began) for pid, _, began in known_already})
