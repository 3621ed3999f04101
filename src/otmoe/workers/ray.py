"""Ray as an executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Any

from otmoe.text.errors import MissingPackage, RunError
from otmoe.text.sentences import Error


class RayExecutor(Executor):
    """Run tasks on Ray, here or on the cluster that :func:`ray.init` was told of.

    Ray itself starts a task again whose worker or machine died. One that dies each time ends in an
    error of Ray's, which names it; the others are not touched. A cancelled future cancels its
    task, and its worker is ended.

    Parameters
    ----------
    retries : int, default=2
        How often Ray starts a task again whose worker died; -1 for ever.
    **options
        Of :meth:`ray.remote_function.RemoteFunction.options`: what a task needs, such as
        ``num_cpus=2``, ``memory=4e9`` or ``resources={"site": 1}``. By default one CPU.

    Examples
    --------
    >>> from otmoe import DistributedMoERegressor
    >>> from otmoe.workers.ray import RayExecutor
    >>> with RayExecutor() as executor:  # doctest: +SKIP
    ...     DistributedMoERegressor(4, executor=executor).fit_shards(shards)
    """

    def __init__(self, *, retries: int = 2, **options: Any) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingPackage(Error.NO_RAY) from error
        if not ray.is_initialized():
            ray.init()
        self._ray = ray
        self._options = {"num_cpus": 1, "max_retries": retries} | options
        self._remote: dict[Callable[..., Any], Any] = {}
        self._futures: set[Future[Any]] = set()
        self._open = True

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task, and return the future of its result."""
        if not self._open:
            raise RunError(Error.EXECUTOR_SHUT)
        if fn not in self._remote:  # once for all its tasks: Ray keeps every function it is given
            self._remote[fn] = self._ray.remote(fn).options(**self._options)
        ref = self._remote[fn].remote(*args, **kwargs)
        # Ray's own future knows neither that it was cancelled nor how to cancel the task.
        future: Future[Any] = Future()
        self._futures.add(future)

        def ended(theirs: Future[Any]) -> None:
            with suppress(InvalidStateError):  # cancelled in the meantime
                error = theirs.exception()
                if error is None:
                    future.set_result(theirs.result())
                else:
                    future.set_exception(_own(error))

        def over(ours: Future[Any]) -> None:
            self._futures.discard(ours)
            if ours.cancelled():
                with suppress(Exception):
                    self._ray.cancel(ref, force=True)

        future.add_done_callback(over)
        ref.future().add_done_callback(ended)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; Ray goes on, since others may use it.

        Parameters
        ----------
        wait : bool
            Whether to wait for the tasks that were started.
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


def _own(error: BaseException) -> BaseException:
    """Return the error that the task raised, without the report that Ray wraps it in."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
