"""Rows that a process holds between passes over files."""

import os

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from otmoe import DistributedMoERegressor, shards_from, simulate
from otmoe.data.shards import ArrayShard, FileShard, held
from otmoe.data.shards.held import forget, held_rows, letting_go

GB = 1 << 30


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch):
    monkeypatch.setattr(held, "_memory", lambda: (16 * GB, 15 * GB))
    forget()
    yield
    forget()


@pytest.fixture
def folder(tmp_path):
    data = simulate(600, 2, 2, softness=0.5, random_state=1)
    frame = pd.DataFrame(data.X, columns=["age", "dose"]).assign(y=data.y)
    for m in range(3):
        frame[m::3].to_parquet(tmp_path / f"part-{m}.parquet")
    return tmp_path


@pytest.fixture
def reads(monkeypatch):
    """Return the names of shards whose files are read."""
    names, real = [], FileShard.read

    def read(shard):
        names.append(shard.name)
        return real(shard)

    monkeypatch.setattr(FileShard, "read", read)
    return names


def test_rows_are_held_if_asked_for_and_read_once(folder, reads):
    shard, other, _ = shards_from(folder, target="y")
    held_rows(shard)
    held_rows(shard)
    assert reads == [shard.name] * 2
    first = held_rows(shard, keep=True)
    assert held_rows(shard) is first and held_rows(shard, keep=True) is first
    assert_array_equal(first.X, shard.read().X)
    reads.clear()
    held_rows(other, keep=True)
    assert held_rows(shard) is first and reads == [other.name]
    forget()
    held_rows(shard)
    assert reads == [other.name, shard.name]


def test_a_file_that_changed_is_read_again(folder, reads):
    shard = shards_from(folder, target="y")[0]
    path = folder / "part-0.parquet"
    before = held_rows(shard, keep=True)
    frame = pd.read_parquet(path)
    frame.assign(dose=-frame.dose).to_parquet(path)
    after = held_rows(shard, keep=True)
    assert_array_equal(after.X[:, 1], -before.X[:, 1])
    os.utime(path, ns=(1, 1))
    held_rows(shard)
    assert len(reads) == 3
    path.unlink()
    with pytest.raises(ValueError, match="part-0"):
        held_rows(shard)


def test_half_of_the_memory_stays_free(folder, reads, monkeypatch):
    shard = shards_from(folder, target="y")[0]
    size = 200 * 3 * 8
    for free, held_then in ((8 * GB + size - 1, False), (8 * GB + size + 1, True)):
        monkeypatch.setattr(held, "_memory", lambda free=free: (16 * GB, free))
        found = held_rows(shard, keep=True)
        assert (held_rows(shard) is found) is held_then


def test_memory_is_that_of_the_machine_or_its_container(monkeypatch, tmp_path):
    monkeypatch.undo()
    total, free = held._memory()
    assert 0 < free <= total
    (tmp_path / "memory.max").write_text(f"{total // 2}\n")
    (tmp_path / "memory.current").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 1000\ninactive_file 2000\n")
    monkeypatch.setattr(held, "_CGROUP", tmp_path)
    assert held._memory()[0] == total // 2 and held._memory()[1] <= total // 2 - 1000
    (tmp_path / "memory.max").write_text("max\n")
    assert held._memory()[0] == total


def test_rows_are_forgotten_when_nobody_asks(folder, monkeypatch):
    monkeypatch.setattr(held, "IDLE", 0.0)
    shard = shards_from(folder, target="y")[0]
    monkeypatch.setattr(
        held, "Thread", lambda target, **_: type("T", (), {"start": lambda _: None})()
    )
    held_rows(shard, keep=True)
    assert held._HELD
    held._watch()
    assert not held._HELD


def test_a_refined_run_reads_every_file_once(folder, reads, monkeypatch):
    shards = shards_from(folder, target="y")
    options = {"n_init": 2, "n_support": 200, "n_jobs": 1, "random_state": 0}

    def fitted(**more):
        reads.clear()
        return DistributedMoERegressor(2, **options, **more).fit_shards(shards)

    refined = fitted(refine=3)
    assert sorted(reads) == [shard.name for shard in shards]
    assert not held._HELD and refined.aggregation_.refinement.rounds == 3
    fitted()
    assert len(reads) == 6  # for the search and for the fits: nothing is held for what ends there
    monkeypatch.setattr(held, "_memory", lambda: (16 * GB, 0))
    again = fitted(refine=3)
    assert len(reads) == 15  # for the search, the fits and three rounds
    assert_array_equal(again.model_.to_vector(), refined.model_.to_vector())


def test_what_is_held_is_let_go_after_a_fault(folder):
    shard = shards_from(folder, target="y")[0]
    with pytest.raises(KeyError), letting_go():
        held_rows(shard, keep=True)
        raise KeyError
    assert not held._HELD
    array = ArrayShard("a", np.zeros((3, 1)), np.zeros(3))
    held_rows(array, keep=True)
    assert not held._HELD
