"""Common parts of executors on a cluster that we did not start."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Any

from otmoe.text.errors import RunError
from otmoe.text.sentences import Error


class RemoteExecutor(Executor):
    """Tasks on a cluster that keeps running when this executor is shut down."""

    def __init__(self) -> None:
        self._futures: set[Future[Any]] = set()
        self._open = True

    @abstractmethod
    def _start(
        self, future: Future[Any], call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Callable[[], Any]:
        """Start a task that settles the future when it ends; return a function that cancels it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task, and return the future of its result."""
        if not self._open:
            raise RunError(Error.EXECUTOR_SHUT)
        future: Future[Any] = Future()
        cancel = self._start(future, fn, args, kwargs)
        self._futures.add(future)

        def over(ours: Future[Any]) -> None:
            self._futures.discard(ours)
            if ours.cancelled():
                with suppress(Exception):
                    cancel()

        future.add_done_callback(over)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more tasks; the cluster keeps running, since others may use it.

        Parameters
        ----------
        wait : bool
            Whether to wait for tasks that have started.
        cancel_futures : bool
            Whether to cancel them first.
        """
        self._open = False
        futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            wait_for(futures)


def settle(future: Future[Any], result: Callable[[], Any]) -> None:
    """Set the result of a call, or its error, on a future, unless that was cancelled."""
    with suppress(InvalidStateError):
        try:
            future.set_result(result())
        except InvalidStateError:
            raise
        except BaseException as error:  # also the error of a cluster for a task that it cancelled
            future.set_exception(error)
