"""The same model on every executor, also when a worker is killed in mid-run."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from processes import killed

from otmoe import DistributedMoERegressor, shards_from, simulate
from otmoe.distributed.fit import fit_shards
from otmoe.text.sentences import Finding
from otmoe.workers.failures import Failure
from otmoe.workers.gather import Workers, gather
from otmoe.workers.pools import local_workers

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip(
        "starts clusters: run pytest tests/workers/engines by itself", allow_module_level=True
    )
if not (find_spec("distributed") or find_spec("ray")):
    pytest.skip("neither Dask nor Ray is installed", allow_module_level=True)

N_FILES = 6

# What dask, distributed and ray warn about in themselves is theirs to fix.
THEIRS = "ResourceWarning DeprecationWarning FutureWarning pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.filterwarnings(f"ignore::{name}") for name in THEIRS.split()]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    data = simulate(N_FILES * 200, 2, 2, softness=0.5, random_state=1)
    for m, rows in enumerate(np.array_split(np.arange(len(data.y)), N_FILES)):
        frame = pd.DataFrame(data.X[rows], columns=["age", "dose"]).assign(y=data.y[rows])
        frame.to_parquet(folder / f"part-{m}.parquet")
    return shards_from(folder, target="y")


def model_of(shards, executor, **options):
    workers = Workers(executor, timeout=240)  # only there to stop hanging
    known = {"options": {"n_init": 3}, "n_support": 300, "random_state": 0}
    return fit_shards(shards, 2, workers=workers, **known, **options)


@pytest.fixture(scope="module")
def expected(shards):
    return model_of(shards, None).aggregation.model.to_vector()


@pytest.fixture(scope="module")
def dask():
    distributed = pytest.importorskip("distributed")
    from otmoe.workers.dask import DaskExecutor

    size = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    quiet = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": 50}
    cluster = distributed.LocalCluster(**size, **quiet)
    with cluster, distributed.Client(cluster) as client:
        yield DaskExecutor(client)


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    from otmoe.workers.ray import RayExecutor

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=2, _node_ip_address="127.0.0.1", **quiet)
    with RayExecutor() as executor:
        yield executor
    ray.shutdown()


@pytest.fixture(params=["loky", "dask", "ray"])
def processes(request):
    if request.param == "loky":
        return local_workers(2)
    return request.getfixturevalue(request.param)


def test_threads_give_the_model_of_this_process(shards, expected):
    with ThreadPoolExecutor(2) as pool:
        found = model_of(shards, pool)
    assert_allclose(found.aggregation.model.to_vector(), expected, rtol=0, atol=1e-10)


def test_every_executor_gives_the_same_model(processes, shards, expected):
    done = []
    found = model_of(shards, processes, progress=lambda *report: done.append(report))
    assert_allclose(found.aggregation.model.to_vector(), expected, rtol=0, atol=1e-10)
    assert [m.site for m in found.local_models] == [shard.name for shard in shards]
    assert [report[:2] for report in done] == [(n + 1, N_FILES) for n in range(N_FILES)]


def test_an_estimator_takes_every_executor(processes, shards):
    here, there = (
        DistributedMoERegressor(2, n_init=3, random_state=0, executor=executor).fit_shards(shards)
        for executor in (None, processes)
    )
    assert_allclose(there.model_.to_vector(), here.model_.to_vector(), rtol=0, atol=1e-10)


def killing(shard, folder):
    """Return a shard whose first reader is killed after it has read the rows."""

    # Made here, so that it travels as a whole to any worker.
    class Killing:
        name, features, n_rows = shard.name, shard.features, shard.n_rows

        def read(self):
            rows = shard.read()
            flag = Path(folder, "killed")
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return rows

    return Killing()


def test_a_worker_killed_in_mid_run_changes_nothing(processes, shards, expected, tmp_path):
    odd = [*shards[:2], killing(shards[2], str(tmp_path)), *shards[3:]]
    found = model_of(odd, processes)
    assert (tmp_path / "killed").exists() and found.failures == ()
    assert_allclose(found.aggregation.model.to_vector(), expected, rtol=0, atol=1e-10)


def test_what_fails_is_named_on_every_executor(processes, tmp_path):
    folder = str(tmp_path)

    def work(i):
        n = sum(name.startswith(f"{i}-") for name in os.listdir(folder))
        Path(folder, f"{i}-{n}").touch()
        if i == 1:  # kills every worker
            os.kill(os.getpid(), signal.SIGKILL)
        if i == 2:
            raise ValueError("y is text")
        if i == 3 and n < 2:
            raise OSError("the network is away")
        if i == 4:
            raise OSError("the disk is away")
        return i * i

    names = [f"task {i}" for i in range(8)]
    found, failures = gather(work, range(8), names, Workers(processes, timeout=60))
    assert found == [0, None, None, 9, None, 25, 36, 49]
    killed, *others = failures
    assert killed.name == "task 1"
    causes = {"task 2": "y is text", "task 4": "OSError: the disk is away"}
    assert others == [Failure(name, Finding.TASK_ERROR(why=why)) for name, why in causes.items()]


def test_a_task_that_hangs_is_named_on_every_executor(processes):
    def work(i):
        if i == 2:
            time.sleep(60)
        return i * i

    names = [f"task {i}" for i in range(6)]
    found, failures = gather(work, range(6), names, Workers(processes, timeout=8))
    assert found == [0, 1, None, 9, 16, 25]
    assert failures == [Failure("task 2", Finding.NOTHING_ENDED(seconds=8))]


BUSY = """
import os, sys, time
from pathlib import Path

def work(i):
    Path({folder!r}, f"busy-{{i}}").touch()
    time.sleep(300)

def run(executor):
    from otmoe.workers.gather import Workers, gather
    gather(work, range(2), ["a", "b"], Workers(executor))

if __name__ == "__main__":
    if {engine!r} == "dask":
        from otmoe.cli.executors import open_executor
        with open_executor("dask", None, 2, 0) as executor:
            run(executor)
    else:
        import ray
        from otmoe.workers.ray import RayExecutor
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR")
        with RayExecutor() as executor:
            run(executor)
"""


@pytest.mark.parametrize("engine", ["dask", "ray"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_no_process_is_left_of_a_driver_that_is_killed(engine, name, tmp_path):
    pytest.importorskip("distributed" if engine == "dask" else "ray")
    script, number = tmp_path / "driver.py", getattr(signal, name)
    script.write_text(BUSY.format(folder=str(tmp_path), engine=engine))
    found = killed(
        {number: ([sys.executable, str(script)], tmp_path)},
        lambda _, folder: len(list(folder.glob("busy-*"))) == 2,
    )
    assert found[number][0] == []
