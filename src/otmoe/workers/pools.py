"""Where tasks run: in a pool of our own that can be replaced, or on an executor of the user's."""

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

_WATCH = 1.0  # seconds between two looks at whether the driver is there
_WATCHER = "otmoe-watch"
_BLAMED = "KilledWorker"  # Dask tries again by itself, and blames all tasks that a worker held


def local_workers(n_workers: int) -> Callable[[], Executor]:
    """Return what makes a pool of processes on this machine, one thread each."""

    def make() -> Executor:
        from loky.process_executor import ProcessPoolExecutor

        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        watch = {"initializer": end_with, "initargs": (os.getpid(),)}
        return ProcessPoolExecutor(n_workers, env=single, **watch)

    return make


def end_with(parent: int) -> None:
    """Have this process end soon after its parent did, however that came to its end.

    A signal at the parent's death would come when the thread ends that started this process.

    Parameters
    ----------
    parent : int
        Number of the parent's process.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    if all(thread.name != _WATCHER for thread in enumerate_threads()):
        Thread(target=watch, daemon=True, name=_WATCHER).start()


class Pool(Protocol):
    """An executor, and what can be done about it when it breaks."""

    replaceable: bool

    @property
    def executor(self) -> Executor:
        """What runs the tasks."""

    def renew(self, *, broken: bool) -> None:
        """Go on after the executor broke, or after nothing had ended in it for too long."""

    def close(self) -> None:
        """End it; all tasks are done."""

    def abort(self, pending: Iterable[Future[Any]]) -> None:
        """End it at once; somebody interrupted."""


class OwnPool:
    """A pool that we made, and can make again.

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
        """End the executor and its processes, and make another."""
        _kill(self.executor)
        self.executor = self._make()

    def close(self) -> None:
        """End it."""
        self.executor.shutdown()

    def abort(self, pending: Iterable[Future[Any]]) -> None:
        """End it at once, and its processes; cancelled tasks would trip over each other."""
        _kill(self.executor)


class KeptPool:
    """A pool of our own that serves several rounds of tasks, and is made for the first of them.

    Starting a process means importing the package there, a second or two; see :func:`kept`.

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
        """End the executor and its processes; the next tasks make another."""
        self.abort()

    def close(self) -> None:
        """Keep it: more tasks may come."""

    def abort(self, pending: Iterable[Future[Any]] = ()) -> None:
        """End it at once, and its processes."""
        own, self._own = self._own, None
        if own is not None:
            own.abort(pending)

    def end(self) -> None:
        """End it: no more tasks will come."""
        own, self._own = self._own, None
        if own is not None:
            own.close()


class BorrowedExecutor:
    """An executor of the user's, which is not ours to end.

    Parameters
    ----------
    executor : Executor
    """

    replaceable = False

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def renew(self, *, broken: bool) -> None:
        """Refuse to go on with a broken executor."""
        if broken:
            raise RunError(Error.EXECUTOR_BROKE)

    def close(self) -> None:
        """Leave it as it is."""

    def abort(self, pending: Iterable[Future[Any]]) -> None:
        """Cancel what has not begun."""
        for future in pending:
            future.cancel()


def pool_of(executor: Executor | Callable[[], Executor] | KeptPool) -> Pool:
    """Return the pool of an executor, or of what makes one; a pool that is kept is one."""
    if isinstance(executor, KeptPool):
        return executor
    return BorrowedExecutor(executor) if isinstance(executor, Executor) else OwnPool(executor)


def n_workers_of(executor: Executor) -> int:
    """Return how many tasks an executor runs at a time, as far as it says so."""
    return getattr(executor, "_max_workers", None) or 1


def blames(error: BaseException) -> bool:
    """Say whether an executor blames a task for the death of its worker."""
    return type(error).__name__ == _BLAMED


def _kill(executor: Executor) -> None:
    """End a pool at once, and its processes."""
    processes = list((getattr(executor, "_processes", None) or {}).values())
    for options in ({"wait": True, "kill_workers": True}, {"wait": False, "cancel_futures": True}):
        try:
            executor.shutdown(**options)
            break
        except TypeError:  # not every executor knows these options
            continue
        except Exception:  # it is broken; there is nothing left to end
            break
    else:
        with suppress(Exception):
            executor.shutdown(wait=False)
    for process in processes:
        with suppress(Exception):
            process.kill()
