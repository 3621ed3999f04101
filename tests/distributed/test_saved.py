"""Local fits that are kept: a run goes on where another stopped, and the answer is the same."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from otmoe import DistributedMoEClassifier, DistributedMoERegressor, shards_from, simulate
from otmoe.data.shards import ArrayShard
from otmoe.distributed import saved
from otmoe.distributed.saved import SavedFits, contents_of, digest
from otmoe.text.errors import InvalidInput
from otmoe.workers.failures import TasksFailed
from otmoe.workers.gather import HERE

SHARDS = 6


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    data = simulate(1800, 2, 2, softness=0.5, random_state=1)
    frame = pd.DataFrame(data.X, columns=["age", "dose"]).assign(y=data.y)
    for m, rows in enumerate(np.array_split(np.arange(1800), SHARDS)):
        frame.iloc[rows].to_parquet(path / f"part-{m}.parquet")
    return path


@pytest.fixture
def counted(monkeypatch):
    """Return the names of the shards that are really fitted."""
    names, real = [], saved.fit_local

    def fit_local(task):
        names.append(task.shard.name)
        return real(task)

    monkeypatch.setattr(saved, "fit_local", fit_local)
    return names


def fitted(shards, keep_fits=None, **options):
    options = {"n_init": 2, "n_support": 200, "n_jobs": 1, "random_state": 0, **options}
    return DistributedMoERegressor(2, **options).fit_shards(shards, keep_fits=keep_fits)


def record(est):
    return json.dumps(est.aggregation_.document())


def test_fits_that_are_kept_change_nothing(folder, tmp_path, counted):
    shards = shards_from(folder, target="y")
    plain = fitted(shards)
    first, again = (fitted(shards, tmp_path / "kept") for _ in range(2))
    assert counted == [shard.name for shard in shards]
    assert first.reused_ == () and again.reused_ == tuple(counted)
    for est in (first, again):
        assert_array_equal(est.model_.to_vector(), plain.model_.to_vector())
        assert record(est) == record(plain)


def test_only_the_rest_is_fitted_after_a_fault(folder, tmp_path, counted):
    good = (folder / "part-4.parquet").read_bytes()
    (folder / "part-4.parquet").write_bytes(b"no table")
    with pytest.raises(TasksFailed):
        fitted(shards_from(folder, target="y"), tmp_path / "kept")
    (folder / "part-4.parquet").write_bytes(good)
    counted.clear()
    fitted(shards_from(folder, target="y"), tmp_path / "kept")
    assert counted == ["part-4.parquet"]


def test_new_shards_are_fitted_and_old_ones_are_not(folder, tmp_path, counted):
    last = folder / f"part-{SHARDS - 1}.parquet"
    rows = last.read_bytes()
    last.unlink()
    fitted(shards_from(folder, target="y"), tmp_path / "kept")
    counted.clear()
    last.write_bytes(rows)
    more = fitted(shards_from(folder, target="y"), tmp_path / "kept", refine="auto")
    assert counted == [last.name]
    whole = fitted(shards_from(folder, target="y"), refine="auto")
    # refined, both are at the maximum of all rows
    assert_allclose(more.model_.to_vector(), whole.model_.to_vector(), rtol=1e-3, atol=1e-3)


def test_a_file_that_changed_is_fitted_again_and_one_that_was_touched_is_not(
    folder, tmp_path, counted
):
    fitted(shards_from(folder, target="y"), tmp_path / "kept")
    counted.clear()
    path = folder / "part-2.parquet"
    frame = pd.read_parquet(path)
    before = path.stat()
    frame[::-1].to_parquet(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # bytes tell, not times
    os.utime(folder / "part-3.parquet")
    fitted(shards_from(folder, target="y"), tmp_path / "kept")
    assert counted == ["part-2.parquet"]


@pytest.mark.parametrize(
    "options",
    [
        {"random_state": 1},
        {"alpha": 0.3},
        {"method": "weighted_average"},
        {"gate_features": "intercept"},
    ],
    ids=str,
)
def test_other_options_are_other_fits(options, folder, tmp_path, counted):
    shards = shards_from(folder, target="y")
    fitted(shards, tmp_path / "kept")
    counted.clear()
    other = fitted(shards, tmp_path / "kept", **options)
    assert len(counted) == SHARDS and other.reused_ == ()
    assert record(other) == record(fitted(shards, **options))


def test_refining_and_weighing_need_no_other_fits(folder, tmp_path, counted):
    shards = shards_from(folder, target="y")
    fitted(shards, tmp_path / "kept")
    counted.clear()
    how = {"refine": 1, "site_weight": np.arange(1.0, 1 + SHARDS)}
    assert record(fitted(shards, tmp_path / "kept", **how)) == record(fitted(shards, **how))
    assert counted == []


def test_far_more_shards_search_again(folder, tmp_path, counted):
    shards = shards_from(folder, target="y")
    fitted(shards[:2], tmp_path / "kept")
    counted.clear()
    assert fitted(shards, tmp_path / "kept").reused_ == () and len(counted) == SHARDS
    assert record(fitted(shards, tmp_path / "kept")) == record(fitted(shards))


def test_a_spoilt_file_is_made_again(folder, tmp_path, counted):
    shards = shards_from(folder, target="y")
    plain = fitted(shards, tmp_path / "kept")
    counted.clear()
    files = sorted((tmp_path / "kept").glob("*.fit.npz"))
    files[0].write_bytes(files[0].read_bytes()[:100])
    np.savez(files[1], message=np.array([{}], dtype=object))  # pickled, and never read
    again = fitted(shards, tmp_path / "kept")
    assert len(counted) == 2 and record(again) == record(plain)


def test_what_is_not_ours_stays(tmp_path):
    kept = SavedFits(tmp_path)
    (tmp_path / "note.txt").write_text("mine")
    (tmp_path / "0.fit.npz").write_bytes(b"")
    assert len(kept) == 1
    kept.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]
    (tmp_path / "note.txt").unlink()
    kept.clear()
    assert not tmp_path.exists()


def test_classes_and_rows_in_memory(tmp_path, counted):
    data = simulate(900, 2, 2, family="logistic", softness=0.5, random_state=2)
    labels = np.where(data.y > 0, "yes", "no")
    shards = [ArrayShard(f"s{i}", data.X[i::3], labels[i::3]) for i in range(3)]
    options = {"n_init": 2, "n_support": 200, "n_jobs": 1, "random_state": 0}
    found = [
        DistributedMoEClassifier(2, **options).fit_shards(shards, keep_fits=keep)
        for keep in (None, tmp_path / "kept", tmp_path / "kept")
    ]
    assert counted == ["s0", "s1", "s2"]
    assert record(found[0]) == record(found[1]) == record(found[2])


def test_contents_know_the_rows_and_how_they_are_read(folder):
    shard = shards_from(folder, target="y")[0]
    others = [
        replace(shard, target="dose"),
        replace(shard, weight="dose"),
        replace(shard, missing="drop"),
        replace(shard, pieces=(shard.pieces[0]._replace(stop=200),)),
        shards_from(folder, target="y", features=["age"])[0],
    ]
    found = [contents_of([other], HERE)[shard.name] for other in (shard, shard, *others)]
    assert found[0] == found[1] and len(set(found)) == 1 + len(others)
    lost = replace(shard, pieces=(shard.pieces[0]._replace(path=str(folder / "no.parquet")),))
    assert contents_of([lost], HERE) == {}


def test_digests_tell_values_apart():
    values = [1, 1.0, True, "1", None, [1], [[1]], {"a": 1}, np.ones(1), np.ones((1, 1)), b"2"]
    assert len({digest(value) for value in values}) == len(values)
    assert digest(np.arange(6.0)[::2]) == digest(np.array([0.0, 2.0, 4.0]))
    with pytest.raises(TypeError):
        digest(object())


def test_a_file_is_no_folder(folder, tmp_path):
    shards = shards_from(folder, target="y")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput) as caught:
        fitted(shards, tmp_path / "file")
    assert caught.value.code == "keep_no_folder"
    with pytest.raises(InvalidInput) as caught:
        fitted(shards, tmp_path / "nowhere" / "kept")
    assert caught.value.code == "no_folder"
