import gzip
import os
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import cloudpickle
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from refusals import refused

from otmoe import FeatureSpec, shards_from
from otmoe.data.columns import Column
from otmoe.data.shards import ArrayShard, FileShard, Piece, Shard, ShardError

SPEC = FeatureSpec((Column("x"), Column("wind", "category", ("N", "NE", "S"))))


def table(n=100, seed=0, begin=0):
    """Return rows that can be told apart: x counts them."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "site": rng.choice(["Brest", "Lyon", "Nantes"], n),
            "wind": rng.choice(["N", "NE", "S"], n),
            "y": rng.normal(size=n),
            "x": np.arange(begin, begin + n),
            "w": rng.uniform(1, 2, n),
            "class": rng.choice(["ill", "well"], n),
        }
    )


def with_column(rows, name, values):
    return rows.set_column(rows.schema.names.index(name), name, values)


def write(path, rows, **options):
    if str(path).endswith(".csv"):
        pa.csv.write_csv(rows, path)
    else:
        pq.write_table(rows, path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """Three Parquet files of 100, 50 and 7 rows in row groups of 30."""
    for i, (n, begin) in enumerate([(100, 0), (50, 100), (7, 150)]):
        write(tmp_path / f"part-{i}.parquet", table(n, i, begin), row_group_size=30)
    return tmp_path


@pytest.fixture
def everything(folder):
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("*.parquet"))])


def gathered(shards):
    """Return all rows of some shards, in the order of x."""
    rows = [shard.read() for shard in shards]
    order = np.argsort(np.concatenate([r.X[:, 0] for r in rows]), kind="stable")
    weight = None if rows[0].weight is None else np.concatenate([r.weight for r in rows])[order]
    X, y = np.concatenate([r.X for r in rows]), np.concatenate([r.y for r in rows])
    return X[order], y[order], weight


def assert_whole(shards, rows, target="y", weight=None):
    """Every row is in one shard, once, and as it should be."""
    X, y, w = gathered(shards)
    assert_array_equal(X, SPEC.encode(rows), strict=True)
    assert_array_equal(y, rows.column(target).to_numpy())
    assert (w is None) == (weight is None)
    if weight:
        assert_array_equal(w, rows.column(weight).to_numpy(), strict=True)
    for shard in shards:
        assert isinstance(shard.name, str) and shard.features == SPEC
        assert shard.n_rows in (None, len(shard.read().y))
    assert len({shard.name for shard in shards}) == len(shards)


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize(
    ("cut", "names"),
    [
        ("file", [f"part-{i}.parquet" for i in range(3)]),
        ("row_group", [f"part-{i}.parquet#{g}" for i, n in enumerate([4, 2, 1]) for g in range(n)]),
        (1, ["shard 1"]),
        (11, [f"shard {i:02d}" for i in range(1, 12)]),
        (157, [f"shard {i:03d}" for i in range(1, 158)]),
    ],
)
def test_files_are_cut(folder, everything, cut, names, weight):
    shards = shards_from(folder, target="y", features=SPEC, weight=weight, cut=cut)
    assert [shard.name for shard in shards] == names
    assert_whole(shards, everything, weight=weight)
    if isinstance(cut, int):
        sizes = {shard.n_rows for shard in shards}
        assert max(sizes) - min(sizes) <= 1


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any),
    group=st.integers(1, 20),
    kinds=st.lists(st.sampled_from(["parquet", "csv"]), min_size=4, max_size=4),
    data=st.data(),
)
def test_every_row_is_in_one_part(tmp_path_factory, sizes, group, kinds, data):
    folder = tmp_path_factory.mktemp("cut")
    begins = np.cumsum([0, *sizes])
    parts = [table(n, i, begins[i]) for i, n in enumerate(sizes)]
    files = [
        write(folder / f"{i}.{kind}", rows, **{"row_group_size": group} if kind != "csv" else {})
        for i, (rows, kind) in enumerate(zip(parts, kinds, strict=False))
    ]
    n_shards = data.draw(st.integers(1, sum(sizes)))
    shards = shards_from(files, target="y", features=SPEC, weight="w", cut=n_shards)
    assert len(shards) == n_shards
    fewest, left = divmod(sum(sizes), n_shards)
    assert {shard.n_rows for shard in shards} <= {fewest, fewest + (left > 0)}
    assert_whole(shards, pa.concat_tables(parts), weight="w")


@pytest.mark.parametrize(
    "data",
    [
        lambda folder: str(folder),
        lambda folder: folder,
        lambda folder: f"{folder}/",
        lambda folder: f"{folder}/*.parquet",
        lambda folder: f"{folder}/part-?.parquet",
        lambda folder: f"{folder}/part-[0-2].*",
        lambda folder: f"{folder.parent}/**/part-*.parquet",
        lambda folder: [folder / f"part-{i}.parquet" for i in range(3)],
        lambda folder: tuple(f"{folder}/part-{i}.parquet" for i in range(3)),
        lambda folder: [f"{folder}/part-0.parquet", f"{folder}/part-[12].parquet"],
        lambda folder: folder.as_uri(),
        lambda folder: f"{folder.as_uri()}/*.parquet",
        lambda folder: [f"{folder.as_uri()}/part-{i}.parquet" for i in range(3)],
    ],
)
@pytest.mark.parametrize("name", ["data", "a b&c%20"])
def test_files_are_found(folder, everything, data, name):
    moved = folder / name
    moved.mkdir()
    for file in folder.glob("*.parquet"):
        file.rename(moved / file.name)
    (moved / "README.md").write_text("no data")
    shards = shards_from(data(moved), target="y", features=SPEC)
    assert [shard.name for shard in shards] == [f"part-{i}.parquet" for i in range(3)]
    assert_whole(shards, everything)


def test_relative_paths_are_read_from_anywhere(folder, monkeypatch):
    monkeypatch.chdir(folder)
    shards = shards_from("part-*.parquet", target="y", features=SPEC)
    monkeypatch.chdir("/")
    assert [len(shard.read().y) for shard in shards] == [100, 50, 7]


def test_a_folder_is_searched_to_the_bottom(tmp_path):
    for city, begin in [("Lyon", 0), ("Nantes", 5)]:
        (tmp_path / city).mkdir()
        write(tmp_path / city / "part-0.parquet", table(5, 0, begin))
    for hidden in ("_temporary", ".cache"):
        (tmp_path / hidden).mkdir()
        write(tmp_path / hidden / "part-0.parquet", table(5))
    (tmp_path / "_SUCCESS").touch()
    shards = shards_from(tmp_path, target="y", features=SPEC)
    assert [shard.name for shard in shards] == ["Lyon/part-0.parquet", "Nantes/part-0.parquet"]
    assert_array_equal(gathered(shards)[0][:, 0], np.arange(10))


def test_a_star_stays_within_its_level(folder):
    (folder / "deep" / "er").mkdir(parents=True)
    write(folder / "deep" / "part-3.parquet", table(1))
    write(folder / "deep" / "er" / "part-4.parquet", table(1))
    write(folder / ".part-5.parquet", table(1))

    def found(pattern):
        shards = shards_from(f"{folder}/{pattern}", target="y", features=SPEC)
        return [Path(shard.pieces[0].path).relative_to(folder).as_posix() for shard in shards]

    top = [f"part-{i}.parquet" for i in range(3)]
    assert found("*") == found("*.parquet") == top
    assert found("*/*.parquet") == ["deep/part-3.parquet"]
    assert found("**/part-[34].parquet") == ["deep/er/part-4.parquet", "deep/part-3.parquet"]
    assert found("**/*.parquet") == ["deep/er/part-4.parquet", "deep/part-3.parquet", *top]
    assert found("d*/**/part-?.parquet") == ["deep/er/part-4.parquet", "deep/part-3.parquet"]


def test_csv_is_read_like_parquet(tmp_path):
    rows = table(200)
    write(tmp_path / "a.csv", rows)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    for name in ("a.csv", "b.csv.gz"):
        for cut in ("file", "row_group", 3):
            shards = shards_from(tmp_path / name, target="y", features=SPEC, weight="w", cut=cut)
            assert_whole(shards, rows, weight="w")
    assert shards_from(tmp_path / "a.csv", target="y", features=SPEC)[0].n_rows is None


MANY = 100_000  # lines of CSV that take more than a block, a megabyte


def test_csv_types_do_not_hang_on_the_first_rows(tmp_path):
    """Later blocks have fractions, and codes that are not numbers, where the first had neither."""
    lines = [f"{i},0{i % 2},{i}\n" for i in range(MANY)] + ["0.5,A,1.5\n", ",01,3\n", "1,NA,3\n"]
    (tmp_path / "a.csv").write_text("x,code,y\n" + "".join(lines))
    spec = FeatureSpec((Column("x"), Column("code", "category", ("00", "01", "A"))))
    (shard,) = shards_from(tmp_path / "a.csv", target="y", features=spec, missing="drop")
    rows = shard.read()
    assert_array_equal(rows.X[[1, MANY]], [[1, 1, 0], [0.5, 0, 1]])
    assert rows.y[MANY] == 1.5 and len(rows.y) == MANY + 1 and rows.dropped == 2


def test_csv_may_have_quotes_lines_and_truth(tmp_path):
    (tmp_path / "a.csv").write_text('y,name,b\n1,"a, ""b""\nc",true\n2,d,false\n3,d,true\n')
    (shard,) = shards_from(tmp_path / "a.csv", target="y")
    assert shard.features.feature_names == ("name=d", "b")
    assert_array_equal(shard.read().X, [[0, 1], [1, 0], [1, 1]])


def test_na_in_quotes_is_text_and_without_is_missing(tmp_path):
    (tmp_path / "a.csv").write_text('y,code\n1,"NA"\n2,NA\n3,\n4,b\n')
    spec = FeatureSpec((Column("code", "category", ("NA", "b")),))
    (shard,) = shards_from(tmp_path, target="y", features=spec, missing="drop")
    assert shard.read().y.tolist() == [1.0, 4.0]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_column_of_sites_makes_the_shards(tmp_path, suffix):
    rows = pa.concat_tables([table(100), table(50, 1, 100)])
    write(tmp_path / f"a.{suffix}", rows.slice(0, 60))
    write(tmp_path / f"b.{suffix}", rows.slice(60))
    shards = shards_from(tmp_path, target="y", features=SPEC, weight="w", site_column="site")
    assert [shard.name for shard in shards] == ["Brest", "Lyon", "Nantes"]
    assert_whole(shards, rows, weight="w")
    sites = rows.column("site").to_numpy()
    for shard in shards:
        assert_array_equal(shard.read().X[:, 0], np.flatnonzero(sites == shard.name))


def test_only_row_groups_with_the_site_are_read(tmp_path):
    rows = table(90)
    sites = pa.array(["Lyon"] * 30 + ["Brest"] * 30 + ["Lyon"] * 29 + ["Brest"])
    rows = rows.set_column(0, "site", sites.dictionary_encode())
    path = str(write(tmp_path / "a.parquet", rows, row_group_size=15))
    brest, lyon = shards_from(path, target="y", features=SPEC, site_column="site")
    assert brest.pieces == (Piece(path, 30, 60), Piece(path, 75, 90)) and brest.n_rows == 31
    assert lyon.pieces == (Piece(path, 0, 30), Piece(path, 60, 90)) and lyon.n_rows == 59


def test_sites_may_have_numbers(tmp_path):
    rows = table(20).set_column(0, "site", pa.array([7, 11] * 10))
    path = write(tmp_path / "a.parquet", rows)
    shards = shards_from(path, target="y", features=SPEC, site_column="site")
    assert [(shard.name, shard.n_rows) for shard in shards] == [("11", 10), ("7", 10)]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("one", [False, True], ids=["two classes", "one class"])
def test_labels_stay_text(tmp_path, suffix, one):
    rows = table(40)
    if one:
        rows = with_column(rows, "class", pa.array(["ill"] * 40).dictionary_encode())
    write(tmp_path / f"a.{suffix}", rows)
    for cut in ("file", 2):
        shards = shards_from(tmp_path, target="class", features=SPEC, cut=cut)
        assert_whole(shards, rows, target="class")
        assert shards[0].read().y.dtype.kind == "U"


def test_types_of_parquet(tmp_path):
    rows = pa.table(
        {
            "y": pa.array([True, False, None]),
            "x": pa.array([Decimal("1.5"), Decimal("2.5"), Decimal("3.5")]),
            "wind": pa.array(["S", "N", "S"]).dictionary_encode(),
            "w": pa.array([1, 2, 3], pa.uint8()),
            "when": pd.date_range("2020", periods=3),
        }
    )
    path = write(tmp_path / "a.parquet", rows)
    (shard,) = shards_from(path, target="y", features=SPEC, weight="w", missing="drop")
    found = shard.read()
    assert_array_equal(found.X, [[1.5, 0, 1], [2.5, 0, 0]], strict=True)
    assert_array_equal(found.y, [1.0, 0.0], strict=True)
    assert_array_equal(found.weight, [1.0, 2.0], strict=True)
    assert found.dropped == 1 and shard.n_rows == 3


def test_features_are_looked_up_in_the_first_rows(folder):
    shards = shards_from(folder, target="y", weight="w", site_column="site")
    assert shards[0].features.names == ("wind", "x", "class")
    named = shards_from(folder, target="y", features=["x", "wind"])
    wind = Column("wind", "category", ("N", "NE", "S"), "N")
    assert named[0].features == FeatureSpec((Column("x"), wind))


def test_a_category_missing_in_one_shard_keeps_its_column(tmp_path):
    rows = table(60)
    calm = rows.filter(pa.compute.equal(rows.column("wind"), "S"))
    write(tmp_path / "a.parquet", rows)
    write(tmp_path / "b.parquet", calm)
    for shard in shards_from(tmp_path, target="y", features=SPEC):
        assert shard.read().X.shape[1] == 3
    assert_array_equal(shard.read().X[:, 1:], [[0, 1]] * len(calm))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_an_empty_shard_has_no_rows(tmp_path, suffix):
    write(tmp_path / f"a.{suffix}", table(0))
    write(tmp_path / f"b.{suffix}", table(5))
    shards = shards_from(tmp_path, target="y", features=SPEC, weight="w")
    empty = shards[0].read()
    assert empty.X.shape == (0, 3) and empty.y.shape == empty.weight.shape == (0,)
    assert len(shards[1].read().y) == 5
    names = shards_from(tmp_path, target="y", weight="w")[0].features.names
    assert names == ("site", "wind", "x", "class")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("column", ["x", "wind", "y", "w", "class"])
def test_rows_with_missing_values_are_refused_or_dropped(tmp_path, suffix, column):
    rows = table(30)
    gaps = np.arange(30) % 7 == 3
    known = rows.column(column)
    values = pa.compute.if_else(pa.array(gaps), pa.scalar(None, known.type), known)
    rows = with_column(rows, column, values)
    options = {"target": "class" if column == "class" else "y", "features": SPEC, "weight": "w"}
    write(tmp_path / f"a.{suffix}", rows)
    (shard,) = shards_from(tmp_path, **options)
    facts = {"columns": f"4 of column {column!r}", "rows": 30}
    refused("column_missing", ShardError, where=f"shard 'a.{suffix}'", **facts).by(shard.read)
    (shard,) = shards_from(tmp_path, **options, missing="drop")
    found = shard.read()
    assert found.dropped == 4 and len(found.weight) == len(found.y) == 26
    kept = rows.filter(pa.array(~gaps))
    assert_array_equal(found.X, SPEC.encode(kept))
    assert_array_equal(found.weight, kept.column("w").to_numpy())


@pytest.mark.parametrize("site", [None, ("site", "Lyon")])
@pytest.mark.parametrize("size", [None, "known"])
def test_columns_are_read_a_few_at_a_time(tmp_path, rng, site, size):
    # 11 features of 9 columns; gaps in several of them, in the target and in the weights
    spec = FeatureSpec(
        (*(Column(f"x{j}") for j in range(8)), Column("wind", "category", ("E", "N", "NE", "S")))
    )
    rows = table().select(["site", "wind"])
    numbers = {name: rng.normal(size=100) for name in ["y", "w", *(f"x{j}" for j in range(8))]}
    numbers["w"] = np.abs(numbers["w"])
    for i, values in enumerate(numbers.values()):
        values[i :: 23 + i] = np.nan
    for name, values in numbers.items():
        rows = rows.append_column(name, pa.array(values, from_pandas=True))
    path = write(tmp_path / "a.parquet", rows, row_group_size=17)
    frame = rows.to_pandas()
    if site is not None:
        frame = frame[frame["site"] == "Lyon"]
    every, frame = len(frame), frame.dropna()
    size = None if size is None else every
    options = {"site": site, "size": size, "missing": "drop"}
    found = FileShard("a", (Piece(str(path)),), "y", spec, "w", **options).read()
    assert 0 < len(frame) < every
    assert_array_equal(found.X, spec.encode(frame))
    assert_array_equal(found.y, frame["y"])
    assert_array_equal(found.weight, frame["w"])
    assert found.dropped == every - len(frame)


# -- descriptions --------------------------------------------------------------------------------


def test_descriptions_travel(folder):
    for shard in shards_from(folder, target="y", features=SPEC, cut=5):
        for module in (pickle, cloudpickle):
            sent = module.dumps(shard)
            assert len(sent) < 1000
            assert module.loads(sent) == shard
            assert_array_equal(module.loads(sent).read().X, shard.read().X)
    with pytest.raises(AttributeError):
        shard.name = "b"


def test_an_error_travels(tmp_path):
    error = refused("not_there", ShardError).by(shards_from, tmp_path / "a.parquet", target="y")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_shard_by_hand(folder):
    shard = FileShard("Lyon", (Piece(str(folder / "part-2.parquet"), 2),), "y", SPEC)
    assert shard.n_rows == 5
    assert_array_equal(shard.read().X[:, 0], np.arange(152, 157))
    shard = FileShard("a", (Piece(str(folder / "part-1.parquet")),), "y", SPEC, size=60)
    refused("rows_changed", ShardError, counted=60, found=50).by(shard.read)


# -- rows in memory ------------------------------------------------------------------------------

FRAMES = {
    "arrow": lambda rows: rows,
    "pandas": lambda rows: rows.to_pandas(),
    "polars": pl.from_arrow,
    "mapping": lambda rows: {name: rows.column(name).to_numpy() for name in rows.schema.names},
}


@pytest.mark.parametrize("form", FRAMES)
@pytest.mark.parametrize(("how", "n"), [({}, 1), ({"cut": 7}, 7), ({"site_column": "site"}, 3)])
@pytest.mark.parametrize("target", ["y", "class"])
def test_frames_are_cut(form, how, n, target):
    rows = table(100)
    shards = shards_from(FRAMES[form](rows), target=target, features=SPEC, weight="w", **how)
    assert len(shards) == n
    assert_whole(shards, rows, target=target, weight="w")
    if n == 3:
        sites = rows.column("site").to_numpy()
        for shard in shards:
            assert_array_equal(shard.read().X[:, 0], np.flatnonzero(sites == shard.name))


def test_arrays_are_cut(rng):
    X, y, w = rng.normal(size=(20, 3)), rng.normal(size=20), rng.uniform(1, 2, 20)
    for data in ((X, y, w), (X.tolist(), list(y), list(w)), (X, pd.Series(y), pl.Series(w))):
        shards = shards_from(data, cut=3)
        rows = [shard.read() for shard in shards]
        assert [len(r.y) for r in rows] == [6, 7, 7]
        assert_array_equal(np.concatenate([r.X for r in rows]), X)
        assert_array_equal(np.concatenate([r.y for r in rows]), y)
        assert_array_equal(np.concatenate([r.weight for r in rows]), w)
    assert shards_from((X, y))[0].read().weight is None
    frame = pd.DataFrame({"x": np.arange(20), "wind": ["N", "S"] * 10})
    (shard,) = shards_from((frame, y), features=SPEC)
    assert_array_equal(shard.read().X, SPEC.encode(frame))


def test_an_array_shard_by_hand(rng):
    X, y = rng.normal(size=(5, 2)), np.array(["a", "b", "a", None, "b"], object)
    shard: Shard = ArrayShard("Lyon", pd.DataFrame(X, columns=["a", "b"]), y, missing="drop")
    assert shard.n_rows == 5
    found = shard.read()
    assert_array_equal(found.X, X[[0, 1, 2, 4]])
    assert found.y.tolist() == ["a", "b", "a", "b"] and found.dropped == 1
    assert_array_equal(pickle.loads(pickle.dumps(shard)).read().X, found.X)
    X[2, 1] = np.nan
    for features, name in [(None, "x1"), (FeatureSpec.of_names(["a", "b"]), "b")]:
        facts = {"columns": f"1 of column {name!r}", "where": "shard 'Lyon'"}
        with refused("column_missing", ShardError, **facts):
            ArrayShard("Lyon", X, np.ones(5), features=features).read()


X31 = np.ones((3, 1))
LENGTHS = {"other": "X", "others": 3}


@pytest.mark.parametrize(
    ("X", "y", "weight", "code", "facts"),
    [
        (np.ones(3), np.ones(3), None, "not_a_matrix", {"name": "X", "shape": (3,)}),
        (X31, np.ones(2), None, "lengths_differ", LENGTHS | {"name": "y", "rows": 2}),
        (X31, np.ones(3), np.ones(4), "lengths_differ", LENGTHS | {"name": "weight", "rows": 4}),
        (X31, np.ones(3), -np.ones(3), "column_negative", {"column": "weight", "count": 3}),
        (X31 * np.inf, np.ones(3), None, "column_infinite", {"column": "x0", "count": 3}),
        (X31 * np.nan, np.ones(3), None, "column_empty", {"column": "x0", "rows": 3}),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(X, y, weight, code, facts):
    with refused(code, ShardError, where="shard 'rows'", **facts):
        ArrayShard("rows", X, y, weight, missing="drop").read()


# -- faults --------------------------------------------------------------------------------------


def test_nothing_found(tmp_path):
    for pattern in (tmp_path / "*.parquet", tmp_path / "nowhere" / "*.parquet"):
        refused("no_match", ShardError, pattern=str(pattern)).by(shards_from, pattern, target="y")
    with refused("not_there", ShardError, path=str(tmp_path / "a.parquet")):
        shards_from(tmp_path / "a.parquet", target="y")
    (tmp_path / "a.txt").touch()
    refused("folder_empty", ShardError, folder=str(tmp_path)).by(shards_from, tmp_path, target="y")
    for name in ("a.txt", "*.txt"):
        with refused("file_kind", ShardError, path=str(tmp_path / "a.txt")):
            shards_from(tmp_path / name, target="y")
    refused("no_files", ShardError).by(shards_from, [], target="y")
    refused("unreachable", ShardError, path="xyz://a/b").by(shards_from, "xyz://a/b", target="y")
    write(tmp_path / "a.csv", table(3))
    write(tmp_path / "a.parquet", table(3))
    refused("folder_mixed", ShardError, folder=str(tmp_path)).by(shards_from, tmp_path, target="y")


def test_a_file_given_twice(folder):
    file = folder / "part-0.parquet"
    for data in ([file, file], [file, folder]):
        refused("file_twice", ShardError, file=str(file)).by(shards_from, data, target="y")
    with refused("same_file", ShardError, file=file.as_uri(), other=str(file)):
        shards_from([file, file.as_uri()], target="y")
    (folder / "link.parquet").symlink_to(file)
    with refused("same_file", ShardError, file=str(file), other=str(folder / "link.parquet")):
        shards_from(folder, target="y")


def test_an_unreadable_file_is_named(folder):
    (folder / "part-0.parquet").write_bytes(b"no Parquet")
    (folder / "part-1.parquet").write_bytes((folder / "part-1.parquet").read_bytes()[:-100])
    shards = shards_from(folder, target="y", features=SPEC)  # the third tells what is needed
    for shard in shards[:2]:
        refused("unreadable", ShardError, where=f"shard '{shard.name}'").by(shard.read)
    assert len(shards[2].read().y) == 7
    first = {"where": "shard 'part-0.parquet'"}
    for how in ({"cut": "row_group"}, {"cut": 2}, {"site_column": "site"}):
        with refused("unreadable", ShardError, **first):
            shards_from(folder, target="y", features=SPEC, **how)
    (folder / "part-2.parquet").unlink()
    error = refused("unreadable", ShardError, where="shard 'part-2.parquet'").by(shards[2].read)
    assert "No such file" in error.facts["reason"]
    refused("unreadable", ShardError, **first).by(shards_from, folder, target="y", features=SPEC)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "Empty CSV file"), ("y,x\n1,2\n3\n", "Expected 2 columns, got 1")],  # says Arrow
)
def test_broken_csv_is_named(tmp_path, text, reason):
    (tmp_path / "a.csv").write_text(text)
    with refused("unreadable", ShardError, where="shard 'a.csv'") as caught:
        shards_from(tmp_path, target="y", features=FeatureSpec.of_names(["x"]))[0].read()
    assert reason in caught.value.facts["reason"]


def test_a_missing_column_is_named(folder):
    lacking = pq.read_table(folder / "part-1.parquet").drop_columns(["x", "class", "w"])
    write(folder / "part-1.parquet", lacking)
    shards = shards_from(folder, target="y", features=SPEC)
    facts = {"where": "shard 'part-1.parquet'", "columns": "'site', 'wind', 'y'"}
    refused("no_column", ShardError, column="x", **facts).by(shards[1].read)
    assert len(shards[0].read().y) == 100
    for role in ({"target": "z"}, {"weight": "z"}, {"site_column": "z"}, {"features": ["z"]}):
        with refused("no_column", ShardError, column="z", where="shard 'part-0.parquet'"):
            shards_from(folder, **{"target": "y", "features": SPEC} | role)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("column", ["x", "y", "w"])
def test_text_where_numbers_are_meant_is_named(tmp_path, suffix, column):
    write(tmp_path / f"a.{suffix}", table(5))
    write(tmp_path / f"b.{suffix}", with_column(table(5), column, pa.array(["two"] * 5)))
    shards = shards_from(tmp_path, target="y", weight="w", features=SPEC)
    shards[0].read()
    code = "target_text" if column == "y" else "not_numbers"
    refused(code, ShardError, where=f"shard 'b.{suffix}'", column=column).by(shards[1].read)


def test_text_far_down_a_csv_is_named(tmp_path):
    lines = "".join(f"{i},a,{i},1\n" for i in range(MANY))
    (tmp_path / "a.csv").write_text(f"y,name,x,z\n{lines}1,b,two,1\n")
    spec = FeatureSpec.of_names(["z", "x"])
    with refused("not_numbers", ShardError, where="shard 'a.csv'", column="x", kind="'two'"):
        shards_from(tmp_path, target="y", features=spec)[0].read()


@pytest.mark.parametrize("missing", ["error", "drop"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("column", ["x", "wind", "y", "w"])
def test_a_column_of_nothing_is_named(tmp_path, suffix, column, missing):
    write(tmp_path / f"a.{suffix}", table(5))
    nothing = pa.array([np.nan] * 5) if column == "x" else pa.nulls(5)
    write(tmp_path / f"b.{suffix}", with_column(table(5), column, nothing))
    shards = shards_from(tmp_path, target="y", weight="w", features=SPEC, missing=missing)
    shards[0].read()
    with refused("column_empty", ShardError, where=f"shard 'b.{suffix}'", column=column, rows=5):
        shards[1].read()


def test_unknown_levels_are_counted_over_the_whole_shard(tmp_path):
    n = 20_000
    rows = pa.table({"y": np.ones(n), "x": np.ones(n), "wind": ["N", "W"] * (n // 2)})
    path = write(tmp_path / "a.parquet", rows)
    (shard,) = shards_from(path, target="y", features=SPEC)
    facts = {"column": "wind", "values": '"W" (10000 rows)'}
    refused("column_levels", ShardError, where="shard 'a.parquet'", **facts).by(shard.read)
    lenient = replace(shard, features=FeatureSpec(SPEC.columns, "reference"))
    assert_array_equal(lenient.read().X[:, 1:], np.zeros((n, 2)))
    negative = rows.append_column("w", pa.array(-np.ones(n)))
    (shard,) = shards_from(negative, target="y", features=lenient.features, weight="w")
    refused("column_negative", ShardError, column="weight", count=20000).by(shard.read)
    write(path, negative)
    (shard,) = shards_from(path, target="y", features=lenient.features, weight="w")
    refused("column_negative", ShardError, column="w", count=20000).by(shard.read)


def test_a_file_that_has_changed_is_named(tmp_path):
    path = write(tmp_path / "a.parquet", table(10))
    cut = shards_from(path, target="y", features=SPEC, cut=2)
    sites = shards_from(path, target="y", features=SPEC, site_column="site")
    write(path, table(3))
    for shard in (cut[1], sites[0]):
        refused("rows_changed", ShardError, where=f"shard '{shard.name}'", found=0).by(shard.read)
    write(path, table(10).set_column(0, "site", pa.array(["Nantes"] * 10)))
    refused("rows_changed", ShardError, found=10, where="shard 'Nantes'").by(sites[2].read)


def test_rows_of_no_site_are_refused(tmp_path):
    rows = table(4).set_column(0, "site", pa.array(["Lyon", None, "Brest", None]))
    path = write(tmp_path / "a.parquet", rows)
    for data, name in ((path, "a.parquet"), (rows, "rows")):
        with refused("site_missing", ShardError, where=f"shard '{name}'", column="site", count=2):
            shards_from(data, target="y", features=SPEC, site_column="site")
    blank = rows.set_column(0, "site", pa.array(["Lyon", "", "Brest", "a" * 300]))
    for data in (write(path, blank), blank):
        with refused("site_unnamed site", ShardError, where="shard ''"):
            shards_from(data, target="y", features=SPEC, site_column="site")


KEEP = {"name": "missing", "value": "keep", "choices": ["drop", "error"]}


@pytest.mark.parametrize(
    ("options", "error", "code", "facts"),
    [
        ({"target": None}, TypeError, "target_missing", {}),
        ({"cut": 0}, ValueError, "cut_wrong", {"value": 0}),
        ({"cut": True}, ValueError, "cut_wrong", {"value": True}),
        ({"cut": "rows"}, ValueError, "cut_wrong", {"value": "rows"}),
        ({"cut": 8}, ShardError, "cut_too_fine", {"cut": 8, "rows": 7}),
        ({"cut": 2, "site_column": "site"}, ValueError, "site_and_cut", {}),
        ({"missing": "keep"}, ValueError, "not_one_of", KEEP),
        ({"weight": "y"}, ValueError, "roles_shared", {"columns": ["y", "y"]}),
        ({"features": "x"}, TypeError, "features_text", {"value": "x"}),
        ({"features": ["x", "y"]}, ShardError, "role_as_feature", {"column": "y"}),
        ({"target": "when"}, ShardError, "target_kind", {"column": "when"}),
        ({"features": ["when"]}, ShardError, "no_feature", {"column": "when"}),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, error, code, facts):
    rows = table(7).append_column("when", pa.array(pd.date_range("2020", periods=7)))
    path = write(tmp_path / "a.parquet", rows)
    for data, name in ((path, "a.parquet"), (rows, "rows")):
        if data is rows and "when" in options.values():
            continue
        where = f"shard '{name}'" if "column" in facts else ""
        with refused(code, error, where=where, **facts):
            shards_from(data, **{"target": "y", "features": SPEC} | options)


def test_wrong_arrays_are_refused(rng):
    X, y = np.ones((4, 2)), np.ones(4)
    refused("tuple_size", TypeError, size=4).by(shards_from, (X, y, y, y))
    refused("arrays_have_no_columns", TypeError).by(shards_from, (X, y), target="y")
    refused("features_of_array", TypeError).by(shards_from, (X, y), features=SPEC)
    refused("no_row_groups").by(shards_from, (X, y), cut="row_group")
    refused("not_a_file", TypeError, kind="ndarray").by(shards_from, [X, y], target="y")
    with refused("no_column", ShardError, column="wind", where="shard 'rows'"):
        shards_from({"y": y, "x": y}, target="y", features=SPEC)


def test_no_file_has_rows(tmp_path):
    path = write(tmp_path / "a.parquet", table(0))
    refused("sample_empty", ShardError, where="shard 'a.parquet'").by(shards_from, path, target="y")
    assert len(shards_from(path, target="y", features=SPEC)[0].read().y) == 0
    assert os.listdir(tmp_path) == ["a.parquet"] and Path(path).exists()
