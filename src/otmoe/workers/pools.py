"""Where tasks run: a pool of our own, which can be replaced, or an executor of the user."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any, Protocol

from otmoe.text.errors import RunError
from otmoe.text.sentences import Error

_WATCH = 1.0  # seconds between checks that the driver is alive
_WATCHER = "otmoe-watch"
_BLAMED = "KilledWorker"  # Dask retries, then blames all tasks that the worker held


def local_workers(n_workers: int) -> Callable[[], Executor]:
    """Return a function that makes a pool of processes on this machine, with one thread each."""

    def make() -> Executor:
        from loky.process_executor import ProcessPoolExecutor

        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        watch = {"initializer": end_with, "initargs": (os.getpid(),)}
        return ProcessPoolExecutor(n_workers, env=single, **watch)

    return make


def end_with(parent: int) -> None:
    """End this process soon after its parent, however the parent ended.

    A parent-death signal would arrive when the thread that started this process ends.

    Parameters
    ----------
    parent : int
        Process id of the parent.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    if all(thread.name != _WATCHER for thread in enumerate_threads()):
        Thread(target=watch, daemon=True, name=_WATCHER).start()


class Pool(Protocol):
    """An executor, and how to recover when it breaks."""

    replaceable: bool

    @property
    def executor(self) -> Executor:
        """The executor that runs the tasks."""

    def renew(self, *, broken: bool) -> None:
        """Continue after the executor broke or timed out."""

    def close(self) -> None:
        """Shut it down; all tasks have ended."""

    def abort(self, pending: Iterable[Future[Any]]) -> None:
        """Shut it down immediately, after an interrupt."""


class OwnPool:
    """A pool that we made and can replace.

    Parameters
    ----------
    make : callable
        Returns an executor.
    """

    replaceable = True

    def __init__(self, make: Callable[[], Executor]) -> None:
        self._make = make
        self.executor = make()

    def renew(self, *, broken: bool) -> None:
        """Kill the executor and its processes, and make a new one."""
        _kill(self.executor)
        self.executor = self._make()

    def close(self) -> None:
        """Shut it down."""
        self.executor.shutdown()

    def abort(self, pending: Iterable[Future[Any]]) -> None:
        """Kill it and its processes; tasks are not cancelled one by one."""
        _kill(self.executor)


class KeptPool:
    """A pool of our own that is reused for several rounds of tasks, and made for the first.

    A new process has to import the package, which takes a second or two; see :func:`kept`.

    Parameters
    ----------
    make : callable
        Returns an executor.
    """

    replaceable = True

    def __init__(self, make: Callable[[], Executor]) -> None:
        self._make = make
        self._own: OwnPool | None = None

    @property
    def executor(self) -> Executor:
        """The executor, made if there is none."""
        if self._own is None:
            self._own = OwnPool(self._make)
        return self._own.executor

    def renew(self, *, broken: bool) -> None:
        """Kill the executor and its processes; the next tasks make a new one."""
        self.abort()

    def close(self) -> None:
        """Keep it for further tasks."""

    def abort(self, pending: Iterable[Future[Any]] = ()) -> None:
        """Kill it and its processes."""
        own, self._own = self._own, None
        if own is not None:
            own.abort(pending)

    def end(self) -> None:
        """Shut it down; there are no further tasks."""
        own, self._own = self._own, None
        if own is not None:
            own.close()


class BorrowedExecutor:
    """An executor of the user, which we do not shut down.

    Parameters
    ----------
    executor : Executor
    """

    replaceable = False

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def renew(self, *, broken: bool) -> None:
        """Raise an error if the executor is broken."""
        if broken:
            raise RunError(Error.EXECUTOR_BROKE)

    def close(self) -> None:
        """Leave it running."""

    def abort(self, pending: Iterable[Future[Any]]) -> None:
        """Cancel tasks that have not started."""
        for future in pending:
            future.cancel()


def pool_of(executor: Executor | Callable[[], Executor] | KeptPool) -> Pool:
    """Return the pool for an executor, or for a function that makes one; a kept pool as it is."""
    if isinstance(executor, KeptPool):
        return executor
    return BorrowedExecutor(executor) if isinstance(executor, Executor) else OwnPool(executor)


def n_workers_of(executor: Executor) -> int:
    """Return how many tasks an executor runs at a time; 1 if it does not say."""
    return getattr(executor, "_max_workers", None) or 1


def blames(error: BaseException) -> bool:
    """Return whether an executor blames a task for the death of its worker."""
    return type(error).__name__ == _BLAMED


def _kill(executor: Executor) -> None:
    """Kill a pool and its processes."""
    processes = list((getattr(executor, "_processes", None) or {}).values())
    for options in ({"wait": True, "kill_workers": True}, {"wait": False, "cancel_futures": True}):
        try:
            executor.shutdown(**options)
            break
        except TypeError:  # not every executor has these options
            continue
        except Exception:  # it is broken; there is nothing left to shut down
            break
    else:
        with suppress(Exception):
            executor.shutdown(wait=False)
    for process in processes:
        with suppress(Exception):
            process.kill()
