"""Ray as an executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from otmoe.text.errors import MissingPackage
from otmoe.text.sentences import Error
from otmoe.workers.remote import RemoteExecutor, settle


class RayExecutor(RemoteExecutor):
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
        super().__init__()
        if not ray.is_initialized():
            ray.init()
        self._ray = ray
        self._options = {"num_cpus": 1, "max_retries": retries} | options
        self._remote: dict[Callable[..., Any], Any] = {}

    def _start(
        self, future: Future[Any], call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Callable[[], Any]:
        if call not in self._remote:  # once for all its tasks: Ray keeps every function it is given
            self._remote[call] = self._ray.remote(call).options(**self._options)
        ref = self._remote[call].remote(*args, **kwargs)
        # Ray's own future knows neither that it was cancelled nor how to cancel the task.
        ref.future().add_done_callback(lambda done: settle(future, partial(_result, done)))
        return partial(self._ray.cancel, ref, force=True)


def _result(done: Future[Any]) -> Any:
    """Return what a task returned, or raise what it raised without Ray's report around it."""
    error = done.exception()
    if error is None:
        return done.result()
    cause = getattr(error, "cause", None)
    raise cause if isinstance(cause, BaseException) else error
