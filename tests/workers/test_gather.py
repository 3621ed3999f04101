"""Tasks over executors: order, retries, workers that die or hang, interrupts."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from refusals import refused

from otmoe.text.errors import ShardError
from otmoe.text.notices import Notice
from otmoe.text.sentences import Error, Finding
from otmoe.workers.failures import Failure, TasksFailed
from otmoe.workers.gather import (
    HERE,
    NEXT,
    Event,
    Next,
    Workers,
    gather,
    kept,
)
from otmoe.workers.pools import local_workers

STALL = 1.0  # seconds without an end after which tasks are given up, by workers that have started
N = 8
NAMES = [f"task {i}" for i in range(N)]
PROCESSES = Workers(local_workers(2))

# What tasks do. The functions are made here, so that they travel as a whole to any worker.


def squares(delay=0.0):
    def square(i):
        time.sleep(delay * (i % 3))
        return i * i

    return square


def failing(folder, fail, times, who):
    """Square, but the first few attempts at some tasks fail; every attempt leaves a file."""

    def square(i):
        n = sum(name.startswith(f"{i}-") for name in os.listdir(folder))
        Path(folder, f"{i}-{n}").touch()
        if i in who and n < times:
            fail()
        return i * i

    return square


def weak(folder, error, times, who=(3,)):
    """Square, but the first few attempts at one task raise."""

    def fail():
        raise error

    return failing(folder, fail, times, who)


def deadly(folder, times, who=(3,)):
    """Square, but the first few workers that come to one task are killed."""
    return failing(folder, lambda: os.kill(os.getpid(), signal.SIGKILL), times, who)


def hanging(who, seconds=600.0):
    def square(i):
        if i in who:
            time.sleep(seconds)
        return i * i

    return square


def until(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def started(make, n_workers=2):
    """Return a pool all of whose processes run: STALL need not allow for their start."""

    def place(_):
        time.sleep(0.05)
        return os.getpid()

    pool, places = make(), set()
    until(
        lambda: places.update(pool.map(place, range(4))) or len(places) == n_workers, "no workers"
    )
    return pool


def attempts(folder, i):
    return sum(name.startswith(f"{i}-") for name in os.listdir(folder))


@pytest.fixture(params=["here", "threads", "threads made here", "processes"])
def workers(request):
    if request.param == "threads":
        with ThreadPoolExecutor(3) as pool:
            yield Workers(pool)
    else:
        yield {
            "here": HERE,
            "threads made here": Workers(partial(ThreadPoolExecutor, 3)),
            "processes": PROCESSES,
        }[request.param]


def all_but(*failed):
    return [None if i in failed else i * i for i in range(N)]


# -- results and errors ------------------------------------------------------------------------


def test_results_are_in_the_order_of_the_tasks(workers):
    assert gather(squares(0.02), range(N), NAMES, workers) == (all_but(), [])


def test_no_tasks_need_no_pool():
    assert gather(squares(), [], [], Workers(lambda: pytest.fail("no pool is needed"))) == ([], [])
    assert gather(squares(), [], []) == ([], [])


def test_progress_counts_every_task_once(workers, tmp_path):
    reports = []
    told = {"progress": lambda *report: reports.append(report)}
    gather(weak(tmp_path, ValueError("no"), 9), range(N), NAMES, workers, **told)
    assert [report[:2] for report in reports] == [(n + 1, N) for n in range(N)]
    assert sorted(report[2] for report in reports) == NAMES


@pytest.mark.parametrize("error", [OSError("away"), ConnectionResetError("away"), TimeoutError()])
def test_an_error_of_the_network_is_tried_again(workers, tmp_path, error):
    assert gather(weak(tmp_path, error, 2), range(N), NAMES, workers) == (all_but(), [])
    assert [attempts(tmp_path, i) for i in range(N)] == [3 if i == 3 else 1 for i in range(N)]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_it_is_tried_as_often_as_asked_for(workers, tmp_path, retries):
    function = weak(tmp_path, OSError("the disk is away"), 99)
    found, failures = gather(function, range(N), NAMES, replace(workers, retries=retries))
    assert found == all_but(3)
    assert failures == [Failure("task 3", Finding.TASK_ERROR(why="OSError: the disk is away"))]
    assert attempts(tmp_path, 3) == retries + 1


@pytest.mark.parametrize(
    ("error", "cause", "code"),
    [
        (ShardError(Error.NO_ROWS, where="shard 'task 3'"), Error.NO_ROWS.value, "no_rows"),
        (ValueError("y is\n  text"), "y is text", "task_error"),
        (ValueError("task 3: y is text"), "y is text", "task_error"),
        (ValueError("shard 'task 3': y is text"), "y is text", "task_error"),
        (ValueError(), "ValueError", "task_error"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", "task_error"),
        (MemoryError(), "MemoryError", "task_error"),
        (FileNotFoundError("gone"), "FileNotFoundError: gone", "task_error"),
        (PermissionError("closed"), "PermissionError: closed", "task_error"),
    ],
)
def test_any_other_error_is_final_and_named(tmp_path, error, cause, code):
    with ThreadPoolExecutor(2) as pool:
        for n, workers in enumerate((HERE, Workers(pool))):
            found, failures = gather(weak(tmp_path, error, 99), range(N), NAMES, workers)
            assert found == all_but(3) and failures == [Failure("task 3", Notice(code, cause))]
            assert attempts(tmp_path, 3) == n + 1


def test_failures_are_in_the_order_of_the_tasks(workers):
    def fail(i):
        time.sleep(0.02 * (N - i))
        raise ValueError(f"no {i}")

    found, failures = gather(fail, range(N), NAMES, workers)
    assert found == [None] * N
    assert list(map(str, failures)) == [f"task {i}: no {i}" for i in range(N)]
    shown = "task 0: no 0; task 1: no 1; task 2: no 2; and 5 more."
    assert TasksFailed(failures).facts == {"count": N, "failures": shown}


def test_what_cannot_be_sent_back_is_named():
    def lock(i):
        return threading.Lock() if i == 3 else i * i

    found, failures = gather(lock, range(N), NAMES, PROCESSES)
    assert found == all_but(3) and [failure.name for failure in failures] == ["task 3"]


def test_an_error_of_progress_is_no_error_of_the_task(workers):
    def broken_pipe(done, total, name):
        raise BrokenPipeError("nobody reads this")

    with pytest.raises(BrokenPipeError):
        gather(squares(), range(N), NAMES, workers, progress=broken_pipe)


# -- workers that die --------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_is_killed_is_replaced(tmp_path, times):
    found = gather(deadly(tmp_path, times), range(N), NAMES, PROCESSES)
    assert found == (all_but(), [])
    assert attempts(tmp_path, 3) == times + 1


def test_a_task_that_kills_every_worker_is_named_and_the_others_are_done(tmp_path):
    found, failures = gather(deadly(tmp_path, 99, (1, 6)), range(N), NAMES, PROCESSES)
    assert found == all_but(1, 6)
    assert failures == [Failure(f"task {i}", Finding.WORKER_DIED()) for i in (1, 6)]


def test_without_retries_the_killer_is_still_told_from_the_others(tmp_path):
    found, failures = gather(deadly(tmp_path, 99), range(N), NAMES, replace(PROCESSES, retries=0))
    assert found == all_but(3) and [failure.name for failure in failures] == ["task 3"]


def test_a_task_that_breaks_its_pool_by_itself_has_failed_at_once(tmp_path):
    # pools may not break, so that it runs alone next
    workers = Workers(local_workers(1), retries=0)
    found, failures = gather(deadly(tmp_path, 99), range(N), NAMES, workers)
    assert found == all_but(3) and failures == [Failure("task 3", Finding.WORKER_DIED())]
    assert attempts(tmp_path, 3) == 2  # once among the others, once by itself


def test_what_happens_to_a_task_decides_what_becomes_of_it():
    assert set(NEXT) == set(Event)
    assert NEXT[Event.RETURNED] == (Next.DONE, Next.DONE)
    assert {event for event in Event if Next.DONE in NEXT[event]} == {Event.RETURNED}
    # by itself a task is done, tried again as often as is counted, or has failed: it ends
    again = {event for event in Event if NEXT[event][True] in (Next.AGAIN, Next.ALONE)}
    assert again == {Event.PASSING, Event.WAITED}


class KilledWorker(Exception):
    """What Dask says of every task that its dying worker held."""


class Blaming(Executor):
    """Runs tasks at once; blames whatever comes within three tasks of a killer."""

    def __init__(self, killer):
        self.killer, self.held, self.tried = killer, [], []

    def submit(self, function, task):
        self.tried.append(task)
        future = Future()
        self.held.append((future, function, task))
        if len(self.held) == 3 or task == self.killer:
            self.flush()
        else:
            threading.Timer(0.05, self.flush).start()
        return future

    def flush(self):
        held, self.held = self.held, []
        dies = any(task == self.killer for _, _, task in held)
        for future, function, task in held:
            if dies:
                future.set_exception(KilledWorker("4 workers died"))
            else:
                future.set_result(function(task))


def test_tasks_that_were_with_a_killer_are_tried_alone():
    blaming = Blaming(killer=4)
    found, failures = gather(str, range(6), NAMES[:6], Workers(blaming, retries=0))
    assert found == ["0", "1", "2", "3", None, "5"]
    assert failures == [Failure("task 4", Finding.WORKER_DIED())]
    assert blaming.tried.count(3) == 2 and blaming.tried.count(4) == 2


class Broken(Executor):
    """A pool whose worker has died."""

    def submit(self, function, /, *arguments):
        raise BrokenProcessPool("a process was terminated abruptly")


def test_the_pool_of_the_user_cannot_be_replaced(tmp_path):
    for pool in (Broken(), local_workers(2)()):
        try:
            with refused("executor_broke", RuntimeError):
                gather(deadly(tmp_path, 99), range(N), NAMES, Workers(pool))
        finally:
            pool.shutdown()


# -- tasks that hang ---------------------------------------------------------------------------


@pytest.mark.parametrize("who", [(2,), (0, 1)])
def test_a_task_that_hangs_is_named_and_the_others_are_done(who):
    ready = Workers(partial(started, PROCESSES.executor), timeout=STALL)
    found, failures = gather(hanging(who), range(N), NAMES, ready)
    assert found == all_but(*who)
    assert failures == [Failure(f"task {i}", Finding.NOTHING_ENDED(seconds=STALL)) for i in who]


def test_no_process_of_a_standard_pool_is_left_hanging():
    pools = []

    def make():
        pools.append(ProcessPoolExecutor(2))
        return pools[-1]

    workers = Workers(make, timeout=2 * STALL)  # they are forked, which takes no time
    found, failures = gather(time.sleep, [0, 600], ["short", "long"], workers)
    assert found == [None, None] and [failure.name for failure in failures] == ["long"]
    assert len(pools) == 2
    until(lambda: not multiprocessing.active_children(), "a process is left")


@pytest.mark.parametrize("who", [(2,), (0, 1)])
def test_a_thread_that_hangs_is_named(who):
    release = threading.Event()

    def square(i):
        if i in who:
            release.wait()
        return i * i

    with ThreadPoolExecutor(2) as pool:
        found, failures = gather(square, range(N), NAMES, Workers(pool, timeout=1.0))
        release.set()
    if len(who) == 1:
        assert found == all_but(2)
        assert failures == [Failure("task 2", Finding.NOTHING_ENDED(seconds=1.0))]
    else:  # nobody is left to do the others, and it ends all the same
        assert found == [None] * N and len(failures) == N


# -- interrupts --------------------------------------------------------------------------------


def test_an_interrupt_goes_through(workers):
    def interrupt(done, total, name):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gather(squares(0.01), range(N), NAMES, workers, progress=interrupt)
    if isinstance(workers.executor, Executor):  # it is the user's, and can be used again
        assert workers.executor.submit(abs, -1).result() == 1


SCRIPT = """
import os, sys, time
from pathlib import Path
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from otmoe.workers.gather import Workers, gather
from otmoe.workers.pools import local_workers

def work(i):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    pools = {"loky": local_workers(2), "standard": partial(ProcessPoolExecutor, 2)}
    gather(work, range(20), [str(i) for i in range(20)], Workers(pools[sys.argv[2]]))
"""


def in_group(group):
    """Return the processes of a group that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        state, _, of = text.rpartition(")")[2].split()[:3]
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("pool", ["loky", "standard"])
@pytest.mark.parametrize("all_of_them", [False, True], ids=["parent", "terminal"])
def test_ctrl_c_ends_the_run_and_leaves_no_process(tmp_path, pool, all_of_them):
    script, folder = tmp_path / "script.py", tmp_path / "workers"
    script.write_text(textwrap.dedent(SCRIPT))
    folder.mkdir()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(folder), pool]
    child = subprocess.Popen(command, start_new_session=True, env=env, **pipes)
    try:
        until(lambda: len(list(folder.iterdir())) == 2 or child.poll() is not None, "no workers")
        assert child.poll() is None, child.stderr.read()
        (os.killpg if all_of_them else os.kill)(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=120)
        assert child.returncode != 0 and "KeyboardInterrupt" in said
        until(lambda: not in_group(child.pid), f"left: {in_group(child.pid)}")
    finally:
        if child.poll() is None or in_group(child.pid):
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


# -- one pool for several rounds of tasks --------------------------------------------------------


def place(_):
    return os.getpid()


def test_a_kept_pool_serves_all_rounds_and_is_ended():
    made = []

    def make():
        made.append(ThreadPoolExecutor(2))
        return made[-1]

    with kept(Workers(make)) as workers:
        assert made == []  # until there is something to do
        for _ in range(3):
            assert gather(squares(), range(N), NAMES, workers)[0] == all_but()
        assert len(made) == 1
        with kept(workers) as same:  # inside a run that keeps one already
            assert same is workers
        assert gather(squares(), range(N), NAMES, workers)[0] == all_but()
    with pytest.raises(RuntimeError, match="shutdown"):
        made[0].submit(place, 0)


def test_processes_of_a_kept_pool_stay_and_are_gone_afterwards():
    with kept(Workers(local_workers(1))) as workers:
        places = {gather(place, [0], ["one"], workers)[0][0] for _ in range(3)}
        assert len(places) == 1
    until(lambda: not Path(f"/proc/{min(places)}").exists(), "the worker is still there")


def test_a_kept_pool_that_breaks_is_replaced(tmp_path):
    with kept(PROCESSES) as workers:
        found, failures = gather(deadly(tmp_path, 1), range(N), NAMES, workers)
        assert found == all_but() and not failures
        assert gather(squares(), range(N), NAMES, workers)[0] == all_but()


def test_an_error_ends_a_kept_pool():
    with pytest.raises(ZeroDivisionError), kept(Workers(local_workers(1))) as workers:
        found = gather(place, [0], ["one"], workers)[0][0]
        raise ZeroDivisionError
    until(lambda: not Path(f"/proc/{found}").exists(), "the worker is still there")


def test_an_executor_of_the_users_is_left_alone():
    with ThreadPoolExecutor(1) as pool:
        for executor in (pool, None):
            with kept(Workers(executor)) as workers:
                assert workers.executor is executor
        assert pool.submit(place, 0).result() == os.getpid()
