"""Tasks over an executor: retries, a time limit, workers that die, and names for what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from otmoe.text.errors import OtmoeError, RunError
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Finding

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
    cause : Notice
        Why.
    """

    name: str
    cause: Notice

    def __str__(self) -> str:
        return f"{self.name}: {self.cause}"


class TasksFailed(RunError):
    """Some tasks could not be done; `failures` names them."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        shown = "; ".join(map(str, self.failures[:3]))
        more = f"; and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
        super().__init__(Error.FITS_FAILED, count=len(self.failures), failures=f"{shown}{more}")

    def __reduce__(self) -> Any:
        return TasksFailed, (self.failures,)


def local_workers(n_workers: int) -> Callable[[], Executor]:
    """Return what makes a pool of processes on this machine, one thread each."""

    def make() -> Executor:
        from loky.process_executor import ProcessPoolExecutor

        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        return ProcessPoolExecutor(n_workers, env=single)

    return make


def passes(error: BaseException | None) -> bool:
    """Say whether an error may be gone at the next attempt: a disk or a network in trouble."""
    return isinstance(error, OSError) and not isinstance(error, _LASTING)


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
    until the one that kills its worker is found. Any other error is the task's own and final. When
    nothing ends for too long, the tasks that run are given up and those that wait go on; where it
    cannot be told which is which, each is tried once more by itself.

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
    elif len(tasks):
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
        self.failed: dict[int, Notice] = {}
        self.attempts: Counter[int] = Counter()
        self.stalls: Counter[int] = Counter()

    # -- outcomes -----------------------------------------------------------------------------

    def _done(self, i: int, result: Any) -> None:
        self.results[i] = result
        self._report(i)

    def _gone(self, i: int, cause: Notice) -> None:
        self.failed[i] = cause
        self._report(i)

    def _report(self, i: int) -> None:
        if self.progress is not None:
            self.progress(len(self.results) + len(self.failed), len(self.tasks), self.names[i])

    def _again(self, i: int, error: Exception) -> bool:
        """Say whether a task that raised is worth another attempt; if not, it has failed."""
        self.attempts[i] += 1
        if passes(error) and self.attempts[i] <= self.retries:
            return True
        self._gone(i, _cause(error, self.names[i]))
        return False

    # -- here ---------------------------------------------------------------------------------

    def here(self) -> None:
        for i, task in enumerate(self.tasks):
            while i not in self.results and i not in self.failed:
                try:
                    result = self.function(task)
                except Exception as error:  # the caller decides what to do about it
                    self._again(i, error)
                else:
                    self._done(i, result)

    # -- on an executor -----------------------------------------------------------------------

    def on(self, engine: Engine) -> None:
        owned = not isinstance(engine, Executor)
        make: Callable[[], Executor] = engine if owned else (lambda: engine)  # type: ignore[assignment, return-value]
        executor = make()
        todo, suspects, breaks = list(range(len(self.tasks))), list[int](), 0
        try:
            while todo or suspects:
                hunting = breaks > self.retries
                alone = hunting or not todo
                if not todo:
                    todo, suspects = suspects[:1], suspects[1:]
                batch, todo = (todo[:1], todo[1:]) if alone else (todo, [])
                end = self._round(executor, batch, alone, owned)
                if end.broken and not owned:
                    raise RunError(Error.EXECUTOR_BROKE)
                if end.broken and hunting:
                    for i in end.left:
                        self._gone(i, _DIED)
                    end.left, breaks = [], 0  # it was this one: the others can go together again
                elif end.broken:
                    breaks += 1
                if owned and (end.broken or end.stalled):
                    _kill(executor)
                    executor = make()
                todo, suspects = sorted(end.left + todo), sorted(end.suspects + suspects)
            if owned:
                executor.shutdown()
        except BaseException:
            if owned:
                _kill(executor)
            raise

    def _round(self, executor: Executor, batch: list[int], alone: bool, owned: bool) -> _End:
        """Submit tasks and wait for them."""
        end = _End()
        pending: dict[Future[Any], int] = {}
        ended: SimpleQueue[Future[Any]] = SimpleQueue()
        moved = False
        try:
            for i in batch:
                try:
                    future = executor.submit(self.function, self.tasks[i])
                except BrokenExecutor:
                    end.broken = True
                    end.left.append(i)
                else:
                    pending[future] = i
                    # Not `wait`: that looks at every future each time one of them ends.
                    future.add_done_callback(ended.put)
            while pending:
                try:
                    future = ended.get(timeout=self.timeout)
                except Empty:
                    end.stalled = True
                    self._stall(executor, pending, end, alone=alone, owned=owned, moved=moved)
                    return end
                i, moved = pending.pop(future), True
                try:
                    result = future.result()
                except BrokenExecutor:
                    end.broken = True
                    end.left.append(i)
                except Exception as error:
                    blamed = type(error).__name__ in _BLAMED
                    if blamed and alone:
                        self._gone(i, _DIED)
                    elif blamed:
                        end.suspects.append(i)
                    elif self._again(i, error):
                        end.left.append(i)
                else:
                    self._done(i, result)
        except BaseException:
            if not owned:  # a pool of our own is killed, and would trip over what was cancelled
                _cancel(pending)
            raise
        return end

    def _stall(
        self,
        executor: Executor,
        pending: dict[Future[Any], int],
        end: _End,
        *,
        alone: bool,
        owned: bool,
        moved: bool,
    ) -> None:
        """Decide who is to blame when nothing has ended for too long.

        What can be cancelled was waiting and goes on. Pools of processes call more tasks running
        than they have workers, so that the others are only suspects; but then they can be tried
        by themselves, as the pool is replaced.
        """
        waiting: list[int] = []
        running: list[int] = []
        for future, i in pending.items():
            (waiting if future.cancel() else running).append(i)
        n_workers = getattr(executor, "_max_workers", None) or 1
        if owned and not alone and len(running) > n_workers:
            end.suspects += running
        else:
            for i in running:
                self._gone(i, Finding.NOTHING_ENDED(seconds=self.timeout))
        for i in waiting:
            self.stalls[i] += not running  # some executors never say what runs
            if alone or not (running or moved) or self.stalls[i] > 1:
                self._gone(i, Finding.NOTHING_ENDED(seconds=self.timeout))
            else:
                end.left.append(i)


@dataclass
class _End:
    """How a round ended: tasks to be tried again, tasks to be tried alone, what went wrong."""

    left: list[int] = field(default_factory=list)
    suspects: list[int] = field(default_factory=list)
    broken: bool = False
    stalled: bool = False


_DIED = Finding.WORKER_DIED()
_BLAMED = ("KilledWorker",)  # Dask tries again by itself, and blames all tasks that a worker held
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def sentence(error: BaseException) -> str:
    """Return an error as one sentence, its kind in front where that is not said."""
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | OtmoeError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _cause(error: BaseException, name: str) -> Notice:
    """Return why a task failed, without the name that the sentence may begin with."""
    cause = sentence(error)
    for begin in (f"{name}: ", f"shard {name!r}: "):
        cause = cause.removeprefix(begin)
    if isinstance(error, OtmoeError):
        return Notice(error.code, cause, (), error.facts)
    return Notice(Finding.TASK_ERROR.code, cause)


def _cancel(futures: Any) -> None:
    for future in futures:
        future.cancel()


def _kill(executor: Executor) -> None:
    """End a pool of our own at once, and its processes."""
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
