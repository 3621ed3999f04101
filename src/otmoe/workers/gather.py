"""Tasks over an executor: retries, timeouts, workers that die, and named failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any

from otmoe.text.notices import Notice
from otmoe.text.sentences import Finding
from otmoe.workers.failures import Failure, cause_of
from otmoe.workers.pools import KeptPool, Pool, blames, n_workers_of, pool_of

Progress = Callable[[int, int, str], None]
"""Called as progress(tasks done, total number of tasks, name of the task that just ended)."""

_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True)
class Workers:
    """Where tasks run, with retries and a timeout.

    Attributes
    ----------
    executor : Executor, callable or KeptPool, optional
        An executor; or a function that makes one, so that a broken executor can be replaced; or,
        inside :func:`kept`, the pool shared by all tasks. By default tasks run in this process, one
        after another.
    retries : int
        Further attempts at a task whose worker died or whose file could not be read.
    timeout : float, optional
        Seconds without any task ending after which running tasks are abandoned.
    """

    executor: Executor | Callable[[], Executor] | KeptPool | None = None
    retries: int = 2
    timeout: float | None = None


HERE = Workers()
"""This process."""


@contextmanager
def kept(workers: Workers) -> Iterator[Workers]:
    """Yield the same workers with one pool for all calls of :func:`gather`; shut it down at exit.

    A pool that breaks or hangs is replaced as usual. Executors supplied by the user are unchanged.
    """
    make = workers.executor
    if make is None or isinstance(make, Executor | KeptPool):
        yield workers
        return
    pool = KeptPool(make)
    try:
        yield replace(workers, executor=pool)
    except BaseException:
        pool.abort()
        raise
    pool.end()


class Event(Enum):
    """What can happen to a task."""

    RETURNED = "it returned a result"
    PASSING = "it raised an error that may not recur"
    RAISED = "it raised any other error"
    BLAMED = "its executor blames it for the death of a worker"
    BROKE = "it had not ended when its pool broke"
    RAN = "it was running when the timeout expired"
    MAY_HAVE_RUN = "it ran or waited then: pools report more running tasks than they have workers"
    WAITED = "it was waiting then"


class Next(Enum):
    """What is done with a task."""

    DONE = "its result is kept"
    AGAIN = "it is tried again with the others"
    ALONE = "it is tried again alone"
    FAILED = "it is abandoned and reported"


NEXT = {
    # event: among others, alone
    Event.RETURNED: (Next.DONE, Next.DONE),
    Event.PASSING: (Next.AGAIN, Next.AGAIN),  # as often as retries allow, then RAISED
    Event.RAISED: (Next.FAILED, Next.FAILED),
    Event.BLAMED: (Next.ALONE, Next.FAILED),
    Event.BROKE: (Next.AGAIN, Next.FAILED),  # if pools keep breaking, tasks run one at a time
    Event.RAN: (Next.FAILED, Next.FAILED),
    Event.MAY_HAVE_RUN: (Next.ALONE, Next.FAILED),
    Event.WAITED: (Next.AGAIN, Next.AGAIN),
}
"""What is done with a task, by what happened to it."""


def passes(error: BaseException | None) -> bool:
    """Return whether an error may not recur, such as a failure of a disk or a network."""
    return isinstance(error, OSError) and not isinstance(error, _LASTING)


def gather(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    names: Sequence[str],
    workers: Workers = HERE,
    *,
    progress: Progress | None = None,
    each: Callable[[int, Any], None] | None = None,
) -> tuple[list[Any], list[Failure]]:
    """Apply a function to every task, on the workers.

    The table :data:`NEXT` defines what is done with a task that fails, kills its worker or hangs.

    Parameters
    ----------
    function : callable
    tasks : sequence
        Each is the only argument of a call.
    names : sequence of str
    workers : Workers
    progress : callable, optional
    each : callable, optional
        Called in this process as each(index of the task, its result) as soon as a result arrives.

    Returns
    -------
    results : list
        In the order of the tasks; None for those that failed.
    failures : list of Failure
        In the order of the tasks.
    """
    board = _Board(names, workers, progress, each)
    if workers.executor is None:
        _gather_here(function, tasks, board)
    elif len(tasks):
        _gather_on(pool_of(workers.executor), function, tasks, board)
    failures = [Failure(names[i], board.failed[i]) for i in sorted(board.failed)]
    return [board.results.get(i) for i in range(len(tasks))], failures


@dataclass
class _Board:
    """The state of all tasks."""

    names: Sequence[str]
    workers: Workers
    progress: Progress | None
    each: Callable[[int, Any], None] | None
    results: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, Notice] = field(default_factory=dict)
    attempts: Counter[int] = field(default_factory=Counter)
    waits: Counter[int] = field(default_factory=Counter)

    def note(self, i: int, event: Event, value: Any, alone: bool = False) -> Next:
        """Record what happened to a task, and return what is done with it."""
        if event is Event.PASSING:
            self.attempts[i] += 1
            if self.attempts[i] > self.workers.retries:
                event = Event.RAISED
        then = NEXT[event][alone]
        if then is Next.DONE:
            self.results[i] = value
            if self.each is not None:
                self.each(i, value)
        elif then is Next.FAILED:
            self.failed[i] = self._cause(event, value, self.names[i])
        if then in (Next.DONE, Next.FAILED) and self.progress is not None:
            done = len(self.results) + len(self.failed)
            self.progress(done, len(self.names), self.names[i])
        return then

    def _cause(self, event: Event, error: Any, name: str) -> Notice:
        if event is Event.RAISED:
            return cause_of(error, name)
        if event in (Event.BLAMED, Event.BROKE):
            return Finding.WORKER_DIED()
        return Finding.NOTHING_ENDED(seconds=self.workers.timeout)


def _gather_here(function: Callable[[Any], Any], tasks: Sequence[Any], board: _Board) -> None:
    for i, task in enumerate(tasks):
        while i not in board.results and i not in board.failed:
            board.note(i, *_outcome(lambda task=task: function(task)))  # type: ignore[misc]


def _gather_on(
    pool: Pool, function: Callable[[Any], Any], tasks: Sequence[Any], board: _Board
) -> None:
    together, alone, breaks = list(range(len(tasks))), list[int](), 0
    pending: dict[Future[Any], int] = {}
    try:
        while together or alone:
            # 1) all remaining tasks, or one at a time if one of them kills its worker
            by_itself = breaks > board.workers.retries or not together
            if not together:
                together, alone = alone[:1], alone[1:]
            batch, together = (together[:1], together[1:]) if by_itself else (together, [])
            # 2) run them
            events, pending = set(), {}
            for i, event, value in _events(pool, function, tasks, batch, board, pending):
                events.add(event)
                then = board.note(i, event, value, by_itself)
                if then is Next.AGAIN:
                    together.append(i)
                elif then is Next.ALONE:
                    alone.append(i)
            # 3) a new pool, if this one broke or hangs
            broke = Event.BROKE in events
            if broke:
                breaks = 0 if by_itself else breaks + 1
            if broke or events & {Event.RAN, Event.MAY_HAVE_RUN, Event.WAITED}:
                pool.renew(broken=broke)
            together, alone = sorted(together), sorted(alone)
        pool.close()
    except BaseException:
        pool.abort(pending)
        raise


def _events(
    pool: Pool,
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    batch: Sequence[int],
    board: _Board,
    pending: dict[Future[Any], int],
) -> Iterator[tuple[int, Event, Any]]:
    """Submit tasks, and yield what happens to each as it happens.

    `pending` holds those that were submitted and have not ended, so that they can be cancelled.
    """
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    for i in batch:
        try:
            future = pool.executor.submit(function, tasks[i])
        except BrokenExecutor as error:
            yield i, Event.BROKE, error
            continue
        pending[future] = i
        future.add_done_callback(ended.put)  # `wait` would look at every future each time
    while pending:
        try:
            future = ended.get(timeout=board.workers.timeout)
        except Empty:
            yield from _stalled(pool, pending, board)
            return
        i = pending.pop(future)
        yield (i, *_outcome(future.result))


def _stalled(
    pool: Pool, pending: dict[Future[Any], int], board: _Board
) -> Iterator[tuple[int, Event, Any]]:
    """Yield which tasks were running and which were waiting when the timeout expired.

    Tasks that can be cancelled were waiting. If an executor does not report what runs, a task may
    wait once; after that it is assumed to hang.
    """
    waiting = [i for future, i in pending.items() if future.cancel()]
    running = [i for i in pending.values() if i not in set(waiting)]
    sure = not pool.replaceable or len(running) <= n_workers_of(pool.executor)
    for i in running:
        yield i, Event.RAN if sure else Event.MAY_HAVE_RUN, None
    for i in waiting:
        board.waits[i] += not running  # some executors never report what runs
        yield i, Event.RAN if board.waits[i] > 1 else Event.WAITED, None


def _outcome(call: Callable[[], Any]) -> tuple[Event, Any]:
    """Return the outcome of a call."""
    try:
        return Event.RETURNED, call()
    except BrokenExecutor as error:
        return Event.BROKE, error
    except Exception as error:  # the caller decides what to do about it
        if blames(error):
            return Event.BLAMED, error
        return Event.PASSING if passes(error) else Event.RAISED, error
