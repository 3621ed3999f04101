"""Ray as an executor."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial, wraps
from typing import Any

from otmoe.text.errors import MissingPackage, RunError
from otmoe.text.sentences import Error
from otmoe.workers.pools import end_with
from otmoe.workers.ray_watch import watch
from otmoe.workers.remote import RemoteExecutor, settle


class RayExecutor(RemoteExecutor):
    """Run tasks on Ray, on the cluster that :func:`ray.init` was told of or has started.

    It is not started from here: Ray listens on all network interfaces of a machine, and runs what
    it is sent.

    Ray itself starts a task again whose worker or machine died. One that dies each time ends in an
    error of Ray's, which names it; the others are not touched. A cancelled future cancels its
    task, and its worker is ended. Where Ray was started by this process, what it leaves behind when
    the process is killed is ended too.

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
    >>> ray.init("auto")  # doctest: +SKIP
    >>> with RayExecutor() as executor:  # doctest: +SKIP
    ...     DistributedMoERegressor(4, executor=executor).fit_shards(shards)
    """

    def __init__(self, *, retries: int = 2, **options: Any) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingPackage(Error.NO_RAY) from error
        super().__init__()
        if not ray.is_initialized():
            raise RunError(Error.RAY_NOT_STARTED)
        watch()
        self._ray = ray
        self._options = {"num_cpus": 1, "max_retries": retries} | options
        self._remote: dict[Callable[..., Any], Any] = {}

    def _start(
        self, future: Future[Any], call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Callable[[], Any]:
        if call not in self._remote:  # once for all its tasks: Ray keeps every function it is given
            self._remote[call] = self._ray.remote(_watched(call)).options(**self._options)
        ref = self._remote[call].remote(*args, **kwargs)
        # Ray's own future knows neither that it was cancelled nor how to cancel the task.
        ref.future().add_done_callback(lambda done: settle(future, partial(_result, done)))
        return partial(self._ray.cancel, ref, force=True)


def _watched(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call after whose beginning the worker ends with the Ray that started it."""

    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        end_with(os.getppid())
        return call(*args, **kwargs)

    return run


def _result(done: Future[Any]) -> Any:
    """Return what a task returned, or raise what it raised without Ray's report around it."""
    error = done.exception()
    if error is None:
        return done.result()
    cause = getattr(error, "cause", None)
    raise cause if isinstance(cause, BaseException) else error
