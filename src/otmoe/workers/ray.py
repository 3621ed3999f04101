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
    """Run tasks on the Ray cluster that :func:`ray.init` connected to or started.

    This class does not start Ray, which listens on all network interfaces of a machine and runs
    whatever it is sent.

    Ray itself retries a task whose worker or machine died. A task that fails each time ends in an
    error raised by Ray, which names it; the others are not affected. Cancelling a future cancels
    its task and ends its worker. If this process started Ray and is killed, the processes that Ray
    leaves behind are ended too.

    Parameters
    ----------
    retries : int, default=2
        How often Ray retries a task whose worker died; -1 for no limit.
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
        # Ray's own future neither records a cancellation nor cancels the task.
        ref.future().add_done_callback(lambda done: settle(future, partial(_result, done)))
        return partial(self._ray.cancel, ref, force=True)


def _watched(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that also makes the worker end when the Ray that started it ends."""

    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        end_with(os.getppid())
        return call(*args, **kwargs)

    return run


def _result(done: Future[Any]) -> Any:
    """Return the result of a task, or raise its error without the wrapper that Ray adds."""
    error = done.exception()
    if error is None:
        return done.result()
    cause = getattr(error, "cause", None)
    raise cause if isinstance(cause, BaseException) else error
