"""Dask as an executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from otmoe.workers.remote import RemoteExecutor, settle


class DaskExecutor(RemoteExecutor):
    """Run tasks on a Dask cluster.

    Unless given ``pure=False``, Dask's own executor does not run a task again when it is retried,
    and it raises an error if a worker dies just after its result was fetched. This one runs every
    attempt, and keeps a result that was fetched.

    Parameters
    ----------
    client : distributed.Client
    **options
        Of :meth:`distributed.Client.submit`: ``workers``, ``resources``, ``retries``.

    Examples
    --------
    >>> from otmoe import DistributedMoERegressor
    >>> from otmoe.workers.dask import DaskExecutor
    >>> with Client("tcp://127.0.0.1:8786") as client:  # doctest: +SKIP
    ...     DistributedMoERegressor(4, executor=DaskExecutor(client)).fit_shards(shards)
    """

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__()
        self._client = client
        self._options = {"pure": False} | options

    def _start(
        self, future: Future[Any], call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Callable[[], Any]:
        theirs = self._client.submit(partial(call, **kwargs), *args, **self._options)
        # `result` waits if the worker that held it died, and Dask computes it again
        theirs.add_done_callback(lambda done: settle(future, done.result))
        return theirs.cancel
