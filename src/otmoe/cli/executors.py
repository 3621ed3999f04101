"""Where the fits run: on this machine, a Dask cluster, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from otmoe.cli.common import Failed
from otmoe.text.sentences import Error

EXECUTORS = ("local", "dask", "ray")


@contextmanager
def open_executor(
    executor: str, address: str | None, workers: int | None, retries: int
) -> Iterator[Executor | None]:
    """Give what runs the fits; None stands for processes on this machine.

    Parameters
    ----------
    executor : {"local", "dask", "ray"}
    address : str, optional
        Of a cluster that is running; by default one of Dask is started on this machine.
    workers : int, optional
        Of a cluster that is started.
    retries : int
        Further attempts when a worker dies, where the cluster itself sees to it.
    """
    if executor == "local":
        yield None
    elif executor == "dask":
        with _dask(address, workers) as found:
            yield found
    else:
        with _ray(address, retries) as found:
            yield found


def _imported(module: str, executor: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise Failed(Error.SHELL_NO_ENGINE, executor=executor, error=error) from error


@contextmanager
def _dask(address: str | None, workers: int | None) -> Iterator[Executor]:
    dask = _imported("dask.distributed", "dask")
    adapter = _imported("otmoe.workers.dask", "dask")
    if address is not None:
        with dask.Client(address) as client:
            yield adapter.DaskExecutor(client)
        return
    with (
        dask.LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        dask.Client(cluster) as client,
    ):
        yield adapter.DaskExecutor(client)


@contextmanager
def _ray(address: str | None, retries: int) -> Iterator[Executor]:
    ray = _imported("ray", "ray")
    adapter = _imported("otmoe.workers.ray", "ray")
    if address is None:  # it would listen to the network, whatever address it is given
        raise Failed(Error.SHELL_RAY_LISTENS)
    ray.init(address=address)
    try:
        with adapter.RayExecutor(retries=retries) as found:
            yield found
    finally:
        ray.shutdown()
