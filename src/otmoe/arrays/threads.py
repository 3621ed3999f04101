"""Threads for sums over blocks, with BLAS and OpenMP held to one thread each meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController


@contextmanager
def threads(n_jobs: int | None) -> Iterator[ThreadPoolExecutor | None]:
    """Give a pool of threads, each of which uses BLAS and OpenMP with a single thread.

    Parameters
    ----------
    n_jobs : int, optional
        None means 1, which needs no pool; -1 all cores.
    """
    n_threads = effective_n_jobs(n_jobs)
    with _SINGLE:
        if n_threads == 1:
            yield None
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                yield pool


class _SingleThreaded:
    """BLAS and OpenMP have one thread while anybody is inside; the last to leave restores them.

    The limit is one for the whole process: fits that overlap in time, each restoring what it found,
    would leave it set for good.
    """

    def __init__(self) -> None:
        self._libraries = ThreadpoolController()
        self._lock = Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = self._libraries.limit(limits=1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


_SINGLE = _SingleThreaded()
