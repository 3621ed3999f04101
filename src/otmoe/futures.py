"""Tasks over an executor: retries, a time limit, workers that die, and names for what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Engine = Executor | Callable[[], Executor]
"""An executor, or what makes one: then a broken one can be replaced."""

Progress = Callable[[int, int, str], None]
"""Called as progress(tasks done, tasks in all, name of the one that has just ended)."""


@dataclass(frozen=True)
class Failure:
    """A task that could not be done.

    Attributes
    ----------
    name : str
    cause : str
        Why, in a sentence.
    """

    name: str
    cause: str

    def __str__(self) -> str:
        return f"{self.name}: {self.cause}"


class TasksFailed(RuntimeError):
    """Some tasks could not be done; `failures` names them."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        shown = "; ".join(map(str, self.failures[:3]))
        more = f"; and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
        super().__init__(f"{len(self.failures)} of the fits failed: {shown}{more}")


def local_workers(n_workers: int) -> Callable[[], Executor]:
    """Return what makes a pool of processes on this machine, one thread each."""

    def make() -> Executor:
        from loky.process_executor import ProcessPoolExecutor

        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        return ProcessPoolExecutor(n_workers, env=single)

    return make


def gather(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    names: Sequence[str],
    engine: Engine | None = None,
    *,
    retries: int = 2,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> tuple[list[Any], list[Failure]]:
    """Apply a function to every task, wherever the engine runs it.

    An error of reading or of the network is tried again. A worker that dies takes its pool along:
    the tasks that were not done go to a new pool, and if pools keep breaking, one task at a time,
    until the one that kills its worker is found. Any other error is the task's own and final.

    Parameters
    ----------
    function : callable
    tasks : sequence
        Each is the one argument of a call.
    names : sequence of str
    engine : Executor or callable, optional
        By default the tasks are done here, one after another.
    retries : int
        Further attempts.
    timeout : float, optional
        Seconds without any task ending after which those that run are given up.
    progress : callable, optional

    Returns
    -------
    results : list
        In the order of the tasks; None for those that failed.
    failures : list of Failure
        In the order of the tasks.
    """
    run = _Run(function, tasks, names, retries, timeout, progress)
    if engine is None:
        run.here()
    else:
        run.on(engine)
    failures = [Failure(names[i], run.failed[i]) for i in sorted(run.failed)]
    return [run.results.get(i) for i in range(len(tasks))], failures


class _Run:
    """The state of one :func:`gather`."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        names: Sequence[str],
        retries: int,
        timeout: float | None,
        progress: Progress | None,
    ) -> None:
        self.function, self.tasks, self.names = function, tasks, names
        self.retries, self.timeout, self.progress = retries, timeout, progress
        self.results: dict[int, Any] = {}
        self.failed: dict[int, str] = {}
        self.attempts: Counter[int] = Counter()
        self.stalled = False

    # -- outcomes -----------------------------------------------------------------------------

    def _done(self, i: int, result: Any) -> None:
        self.results[i] = result
        self._report(i)

    def _gone(self, i: int, cause: str) -> None:
        self.failed[i] = cause
        self._report(i)

    def _report(self, i: int) -> None:
        if self.progress is not None:
            self.progress(len(self.results) + len(self.failed), len(self.tasks), self.names[i])

    def _again(self, i: int, error: Exception) -> bool:
        """Say whether a task that raised is worth another attempt; if not, it has failed."""
        self.attempts[i] += 1
        passing = isinstance(error, OSError) and not isinstance(error, _LASTING)
        if passing and self.attempts[i] <= self.retries:
            return True
        self._gone(i, _without_name(_sentence(error), self.names[i]))
        return False

    # -- here ---------------------------------------------------------------------------------

    def here(self) -> None:
        for i, task in enumerate(self.tasks):
            while True:
                try:
                    self._done(i, self.function(task))
                except Exception as error:  # the caller decides what to do about it
                    if self._again(i, error):
                        continue
                break

    # -- on an executor -----------------------------------------------------------------------

    def on(self, engine: Engine) -> None:
        owned = not isinstance(engine, Executor)
        make: Callable[[], Executor] = engine if owned else (lambda: engine)  # type: ignore[assignment, return-value]
        executor = make()
        todo, breaks = list(range(len(self.tasks))), 0
        try:
            while todo:
                alone = breaks > self.retries
                batch, todo = (todo[:1], todo[1:]) if alone else (todo, [])
                left, broken = self._round(executor, batch)
                if broken:
                    if not owned and not self.stalled:
                        raise RuntimeError(
                            "the executor broke (a worker died): give a function that makes an "
                            "executor, so that a new one can take its place."
                        )
                    if alone:
                        for i in left:
                            self._gone(i, "its worker died each time: killed, or out of memory")
                        left = []
                    breaks += not self.stalled
                    self.stalled = False
                    if owned:
                        _kill(executor)
                        executor = make()
                todo = left + todo
        except BaseException:
            if owned:
                _kill(executor)
            raise
        if owned:
            executor.shutdown()

    def _round(self, executor: Executor, batch: list[int]) -> tuple[list[int], bool]:
        """Submit tasks and wait; return those to be tried again, and whether the pool broke."""
        futures: dict[Future[Any], int] = {}
        left: list[int] = []
        broken = False
        try:
            for i in batch:
                try:
                    futures[executor.submit(self.function, self.tasks[i])] = i
                except BrokenExecutor:
                    broken = True
                    left.append(i)
            pending = set(futures)
            while pending:
                done, pending = wait(pending, self.timeout, FIRST_COMPLETED)
                if not done:
                    for future in pending:
                        self._gone(futures[future], f"no fit ended within {self.timeout:g} s")
                    _cancel(pending)
                    self.stalled = True
                    return left, True  # what hangs goes with its pool
                for future in sorted(done, key=futures.__getitem__):
                    i = futures[future]
                    try:
                        self._done(i, future.result())
                    except BrokenExecutor:
                        broken = True
                        left.append(i)
                    except Exception as error:
                        if self._again(i, error):
                            left.append(i)
        except BaseException:
            _cancel(futures)
            raise
        return sorted(left), broken


_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def _sentence(error: BaseException) -> str:
    """Return an error as one sentence, its kind in front where that is not said."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _without_name(cause: str, name: str) -> str:
    """Return a cause without the name that it may begin with: a failure says the name anyway."""
    for begin in (f"{name}: ", f"shard {name!r}: ", f"shard {name!r} "):
        if cause.startswith(begin):
            return cause.removeprefix(begin)
    return cause


def _cancel(futures: Any) -> None:
    for future in futures:
        future.cancel()


def _kill(executor: Executor) -> None:
    """End a pool of our own at once, and its processes."""
    with suppress(Exception):
        try:
            executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]
        except TypeError:
            executor.shutdown(wait=False, cancel_futures=True)
