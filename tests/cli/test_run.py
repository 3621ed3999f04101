import errno
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commandline import call, fails, fine, leftovers, told
from numpy.testing import assert_allclose, assert_array_equal

import otmoe
from otmoe import (
    DistributedMoEClassifier,
    DistributedMoERegressor,
    FeatureSpec,
    MoEClassifier,
    MoERegressor,
    load_between,
    load_features,
    load_model,
    shards_from,
)
from otmoe.cli import main
from otmoe.likelihood.fit import em

pytestmark = pytest.mark.usefixtures("own_folder")

ROOT = Path(__file__).parents[2]
HERE = ["--n-jobs", "1"]  # fits in this process


@pytest.fixture(scope="module")
def frame():
    data = otmoe.simulate(900, 2, 2, random_state=0)
    return pa.table(
        {
            "y": data.y,
            "x0": data.X[:, 0],
            "x1": data.X[:, 1],
            "wind": np.where(np.arange(900) % 3 == 0, "N", "S"),
            "hospital": np.repeat(["Lyon", "Nantes", "Brest"], 300),
            "w": np.tile([1.0, 2.0], 450),
        }
    )


@pytest.fixture
def folder(tmp_path, frame):
    """Three files; two are whole, and the fault goes into the second."""
    path = tmp_path / "data"
    path.mkdir()
    small = frame.select(["y", "x0", "x1"])
    for i in range(3):
        pq.write_table(small.slice(300 * i, 300), path / f"part-{i}.parquet")
    return path


@pytest.fixture(scope="module")
def model(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    pq.write_table(frame.select(["y", "x0", "x1"]), folder / "data.parquet")
    path = folder / "model.json"
    fine("run", folder / "data.parquet", "--target", "y", "--experts", 2, *HERE, "-o", path)
    return path


@pytest.fixture(scope="module")
def message(model):
    data, path = model.parent / "data.parquet", model.parent / "lyon.moe.json"
    fine("fit", data, "--target", "y", "--experts", 2, "--site", "Lyon", "-o", path)
    return path


RUN = ["--target", "y", "--experts", 2, *HERE, "-o", "model.json"]

# -- the whole route -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "poisson", "classes"])
def test_the_whole_route_equals_the_python_interface(family):
    size = "--files 3 --rows 1500 --experts 2 --features 2 --softness 0.5 --seed 3".split()
    fine("simulate", "-o", "data", *size, "--family", family, "--truth", "truth.json")
    fine("features", "data", "--target", "y", "--center", "-o", "features.json")
    how = ["--features", "features.json", "--family", family, "--seed", 1, "--n-support", 500]
    fine("run", "data", *how, *RUN)
    extra = ["--proba"] if family == "classes" else ["--quantiles", ".05,.5,.95"]
    fine("predict", "model.json", "data", "-o", "out.parquet", "--expert", "--keep", "y", *extra)

    spec = FeatureSpec.load("features.json")
    options = {"n_support": 500, "n_jobs": 1, "random_state": 1}
    if family == "classes":
        est = DistributedMoEClassifier(2, **options)
    else:
        est = DistributedMoERegressor(2, family=family, **options)
    est.fit_shards(shards_from("data", target="y", features=spec))
    assert_array_equal(load_model("model.json").to_vector(), est.model_.to_vector())
    assert load_features("model.json") == spec

    rows = pa.concat_tables([pq.read_table(f"data/part-{i}.parquet") for i in range(3)])
    X, out = spec.encode(rows), pq.read_table("out.parquet")
    assert out.column("y").equals(rows.column("y"))
    bare = otmoe.MoE(est.model_.gate, est.model_.experts, None, est.model_.classes)
    plain = (MoEClassifier if family == "classes" else MoERegressor).from_model(bare)
    assert_array_equal(out.column("expert"), plain.predict_expert(X))
    if family == "classes":
        assert out.column("prediction").to_pylist() == plain.predict(X).tolist()
        found = [out.column(f"p(c{c})") for c in range(3)]
        assert_allclose(np.transpose(found), plain.predict_proba(X), rtol=1e-12, atol=1e-14)
    else:
        assert_allclose(out.column("prediction"), plain.predict(X), rtol=1e-12)
        found = [out.column(name) for name in ("q0.05", "q0.5", "q0.95")]
        assert_allclose(np.transpose(found), plain.predict_quantile(X), rtol=1e-12)
    fine("predict", "truth.json", "data", "-o", "by_truth.parquet")


def in_a_process(*words):
    env = {**os.environ, "PYTHONPATH": str(Path(otmoe.__file__).parents[1])}
    how = {"capture_output": True, "text": True, "env": env, "check": False}
    return subprocess.run([sys.executable, *words], **how)


def test_a_real_process_with_two_workers_gives_the_same_model(folder):
    how = "-m otmoe run data --target y --experts 2 --n-jobs 2 --json -o two.json"
    done = in_a_process(*how.split())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 900
    fine("run", "data", *RUN)
    two, one = load_model("two.json"), load_model("model.json")
    assert_allclose(two.to_vector(), one.to_vector(), rtol=1e-10)


def test_the_script_is_the_group():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, name = scripts["otmoe"].split(":")
    assert getattr(import_module(module), name) is main


# -- run -------------------------------------------------------------------------------------------


def test_sites_weights_and_columns(frame):
    pq.write_table(frame, "all.parquet")
    found = told("run", "all.parquet", "--site-column", "hospital", "--weight", "w", *RUN)
    assert [shard["name"] for shard in found["shards"]] == ["Brest", "Lyon", "Nantes"]
    assert [shard["n_samples"] for shard in found["shards"]] == [450.0] * 3
    assert found["terms"] == ["intercept", "x0", "x1", "wind=S"]
    assert_allclose(sum(found["mass"]), 1)
    about = json.loads(Path("model.json").read_text())["about"]
    assert about["sites"] == "Brest, Lyon, Nantes" and about["rows"] == 900 and about["seed"] == 0
    fine("run", "all.parquet", "--columns", "x1, x0", "--cut", 2, "--force", *RUN)
    assert load_model("model.json").feature_names == ("x1", "x0")


@pytest.mark.parametrize(
    ("cut", "names"),
    [
        ("file", ["all.parquet"]),
        ("row-group", ["all.parquet#0", "all.parquet#1", "all.parquet#2"]),
        ("2", ["shard 1", "shard 2"]),
    ],
)
def test_cut(frame, cut, names):
    pq.write_table(frame.select(["y", "x0", "x1"]), "all.parquet", row_group_size=300)
    found = told("run", "all.parquet", "--cut", cut, *RUN)
    assert [shard["name"] for shard in found["shards"]] == names


def test_refine_goes_on_to_the_fit_of_all_rows():
    size = ["--rows", 900, "--experts", 2, "--features", 2, "--softness", 1]
    fine("simulate", "-o", "data", "--files", 3, *size, "--seed", 3)
    report = told("run", "data", *RUN, "--refine", "auto")
    assert report["status"]["code"] == "refined" and report["converged"]
    assert json.loads(Path("model.json").read_text())["about"]["refine rounds"] > 1
    rows = pq.read_table("data")
    X, y = np.column_stack([rows.column(f"x{j}") for j in range(2)]), rows.column("y").to_numpy()
    model = load_model("model.json")
    assert_allclose(em(X, y, 2, init=model).model.to_vector(), model.to_vector(), rtol=1e-4)
    assert call("run", "data", *RUN, "--force", "--refine", "-1").exit_code == 2


def test_personal_models_of_sites(tmp_path):
    rng = np.random.default_rng(0)
    city = np.repeat([f"city {m}" for m in range(7)], 80)
    x = rng.normal(size=len(city))
    y = x + np.repeat(rng.normal(size=7), 80) + 0.3 * rng.normal(size=len(city))
    pq.write_table(pa.table({"y": y, "x": x, "city": city}), "rows.parquet")
    where = ["rows.parquet", "--target", "y", "--site-column", "city"]
    report = told("run", *where, "--experts", 1, "--personal", "auto", *HERE, "-o", "model.json")
    found = load_between("model.json")
    blocks = {spread["block"]: spread for spread in report["between"]["spreads"]}
    assert blocks["expert intercepts"]["tau"] == found.spreads[0].tau > 0.5
    assert [site.comparison.best for site in found.sites].count("personal") >= 5
    some = ["--experts", 1, "--personal", "intercepts"]
    printed = fine("run", *where, *some, *HERE, "-o", "other.json").stdout
    assert "Held-out rows are predicted best" in " ".join(printed.split())
    assert report["between"]["strength"] == found.strength > 0
    strength = load_between("other.json").strength
    assert f"use {strength:g} times these deviations" in " ".join(printed.split())
    forecast = report["forecasts"]["city 2"]
    assert set(forecast["held_out"]) == {"common", "personal", "own"} >= set(forecast["weights"])
    assert sum(forecast["weights"].values()) == pytest.approx(1)
    alone = told("personalise", "model.json", *where, "--site", "city 2", "-o", "mine.json")
    assert alone["best"] in ("personal", "own")
    assert alone["held_out"]["personal"] > alone["held_out"]["common"]
    assert sum(alone["weights"].values()) == pytest.approx(1)
    fine("run", *where, "--personal", "gate", "--experts", 1, "--model-only", *HERE, "-o", "m.json")
    assert load_between("m.json").sites == ()


def test_the_report_names_what_matters(folder):
    result = fine("run", "data", *RUN)
    for words in ("shards", "3", "900", "bytes", "model.json", "share of rows", "variance"):
        assert words in result.stdout
    assert "candidate" in result.stdout and "one_expert" in result.stdout
    assert "nats per row relative to the shards' own models" in result.stdout
    assert result.stderr == ""
    assert fine("run", "data", "--force", "-q", *RUN).output == ""
    found = told("run", "data", "--force", *RUN)
    chosen = [c["method"] for c in found["candidates"] if c["chosen"]]
    assert chosen == [found["method"]]
    about = json.loads(Path("model.json").read_text())["about"]
    assert about["method"] == "auto" and [about["chosen"]] == chosen
    assert_allclose(np.mean([shard["lost"] for shard in found["shards"]]), found["lost"])
    found = told("run", "data", "--force", "--method", "em", *RUN)
    assert found["candidates"] == [] and found["method"] == "em"


def test_brackets_in_names_are_no_markup(folder):
    (folder / "part-1.parquet").rename(folder / "[red]part.parquet")
    pq.write_table(pq.read_table(folder / "part-0.parquet").slice(0, 1), folder / "[b].parquet")
    result = fine("run", "data", "--on-error", "skip", *RUN)
    assert "[b].parquet" in result.stdout and "[b].parquet" in result.stderr


# -- faults ----------------------------------------------------------------------------------------


def broken(table):
    Path("data/part-1.parquet").write_bytes(b"no parquet")


def replaced(change):
    def fault(table):
        pq.write_table(change(table), "data/part-1.parquet")

    return fault


def column(name, values):
    return replaced(
        lambda t: t.set_column(t.column_names.index(name), name, pa.array(values(len(t))))
    )


FAULTS = [
    (broken, "unreadable", {}),
    (replaced(lambda t: t.drop_columns(["x1"])), "no_column", {"column": "x1"}),
    (column("x1", lambda n: ["warm"] * n), "not_numbers", {"kind": "text"}),
    (column("x1", lambda n: np.full(n, np.nan)), "column_empty", {"rows": 300}),
    (column("x1", lambda n: [None, *range(n - 1)]), "column_missing", {"rows": 300}),
    (column("x1", lambda n: np.full(n, np.inf)), "column_infinite", {"count": 300}),
    (replaced(lambda t: t.slice(0, 1)), "shard_too_small", {"rows": 1, "experts": 2}),
]


def label(folder, low):
    """Make classes of the numbers y in every file: "high", and below zero what low(file) says."""
    for path in folder.iterdir():
        table = pq.read_table(path)
        labels = np.where(np.asarray(table.column("y")) > 0, "high", low(path.name))
        pq.write_table(table.set_column(0, "y", pa.array(labels)), path)


@pytest.mark.parametrize(("make", "code", "facts"), FAULTS)
@pytest.mark.parametrize("family", ["gaussian", "classes"])
def test_a_bad_shard_is_named_and_can_be_skipped(folder, make, code, facts, family):
    if family == "classes":
        label(folder, lambda name: "low")
    make(pq.read_table("data/part-1.parquet"))
    line = fails("run", "data", "--family", family, *RUN, code=code, **facts)
    assert "part-1.parquet: " in line
    if code == "column_missing":
        assert "--missing drop" in line and "otmoe features --missing indicator" in line
    assert not Path("model.json").exists() and leftovers(folder.parent) == []
    result = fine("run", "data", "--family", family, "--on-error", "skip", "--json", *RUN)
    found = json.loads(result.stdout)
    assert {name: why["code"] for name, why in found["failed"].items()} == {"part-1.parquet": code}
    assert "shard_failed" in [warning["code"] for warning in found["warnings"]]
    assert result.stderr == "".join(f"warning: {w['text']}\n" for w in found["warnings"])
    assert [s["name"] for s in found["shards"]] == ["part-0.parquet", "part-2.parquet"]


def test_one_class_in_a_shard_is_fitted_and_in_all_is_refused(folder):
    label(folder, lambda name: "high" if name == "part-1.parquet" else "low")
    fine("run", "data", "--family", "classes", *RUN)
    assert load_model("model.json").classes.tolist() == ["high", "low"]
    for path in folder.iterdir():
        table = pq.read_table(path)
        pq.write_table(table.set_column(0, "y", pa.array(["high"] * 300)), path)
    again = ["run", "data", "--family", "classes", "--force", *RUN]
    fails(*again, code="one_class_in_y", label="high")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["data/part-0.parquet", "data/part-0.parquet"], {"code": "file_twice"}),
        (["nowhere.parquet"], {"code": "not_there"}),
        (["data/*.csv"], {"code": "no_match"}),
        (["data", "--cut", "1000"], {"code": "cut_too_fine", "cut": 1000, "rows": 900}),
        (["data", "--columns", "x7"], {"code": "no_column", "column": "x7"}),
        (["data", "--family", "poisson"], {"code": "not_counts"}),
        (["data", "--features", "none.json"], {}),
    ],
)
def test_bad_data_is_one_line(folder, args, expected):
    line = fails("run", *args, *RUN, **expected)
    assert expected or line == "error: there is no file or folder none.json; check the name."


def test_dropped_rows_are_counted_and_said(folder):
    column("x1", lambda n: [None, *np.linspace(-1, 1, n - 1)])(pq.read_table("data/part-1.parquet"))
    result = fine("run", "data", "--missing", "drop", "--json", *RUN)
    assert json.loads(result.stdout)["dropped"] == 1
    assert "warning: 1 of " in result.stderr and "(x1 in 1)" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["run", "data", "--target", "y", "-o", "m.json"],
        ["run", "data", "--site-column", "a", "--cut", "3", *RUN],
        ["run", "data", "--features", "f.json", "--columns", "a", *RUN],
        ["run", "data", "--cut", "0", *RUN],
        ["run", "data", "--cut", "half", *RUN],
        ["run", "data", "--address", "tcp://head:8786", *RUN],
        ["predict", "m.json", "data", "--quantiles", "5", "-o", "p.csv"],
        ["predict", "m.json", "data", "--keep", "a,,b", "-o", "p.csv"],
        ["features", "data", "--target", "y", "--columns", "y,x0", "-o", "f.json"],
        ["simulate", "-o", "new", "--rows", "3", "--files", "4"],
        ["frobnicate"],
    ],
)
def test_wrong_usage_is_2(folder, args):
    result = call(*args)
    assert result.exit_code == 2 and "Usage:" in result.stderr and result.stdout == ""


@pytest.mark.parametrize("executor", ["dask", "ray"])
def test_an_executor_that_is_not_installed_is_said(folder, executor, monkeypatch):
    for name in ("dask.distributed", "ray"):
        monkeypatch.setitem(sys.modules, name, None)
    fails("run", "data", "--executor", executor, *RUN, code="shell_no_engine", executor=executor)


# -- output ----------------------------------------------------------------------------------------


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


WRITING = ["run", "predict", "features", "simulate", "fit", "aggregate"]


@pytest.fixture
def args(folder, model, message):
    """Return the words of every command."""
    to = ["-o", "out.parquet"]
    rows = ["data", "--target", "y"]
    return {
        "run": ["run", *rows, "--experts", 2, *HERE, *to],
        "predict": ["predict", model, "data", *to],
        "features": ["features", *rows, *to],
        "simulate": ["simulate", "--rows", "50", "--features", "2", *to],
        "fit": ["fit", *rows, "--experts", 2, "--site", "Lyon", *to],
        "aggregate": ["aggregate", message, "--support", "data", *to],
        "inspect": ["inspect", message],
        "evaluate": ["evaluate", model, *rows],
    }


@pytest.mark.parametrize("command", WRITING)
def test_what_is_there_is_not_replaced_unless_asked(args, command):
    Path("out.parquet").write_text("old")
    fails(*args[command], code="output_exists", path=Path("out.parquet"))
    assert Path("out.parquet").read_text() == "old"
    fine(*args[command], "--force")
    assert Path("out.parquet").read_bytes()[:3] != b"old"


@pytest.mark.parametrize("command", WRITING)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(args, command, monkeypatch):
    Path("out.parquet").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    line = fails(*args[command], "--force")
    where = ".otmoe-ledger.json: " if command == "fit" else ""  # which is written first
    assert f"{where}No space left on device" in line
    if not where:  # a run keeps its local fits first
        assert ("(out.parquet.parts/" if command == "run" else "(out.parquet)") in line
    assert not Path("out.parquet.parts").exists()
    assert Path("out.parquet").read_text() == "old" and leftovers(Path()) == []


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz"])
def test_a_disk_that_fills_while_predictions_are_written(folder, model, suffix, monkeypatch):
    out = Path(f"out.{suffix}")
    out.write_text("old")
    opened = Path.open

    class Full:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        write = full

    def patched(path, mode="r", *args, **options):
        file = opened(path, mode, *args, **options)
        return Full(file) if mode == "xb" else file

    monkeypatch.setattr(Path, "open", patched)
    line = fails("predict", model, "data", "-o", out, "--force")
    assert "No space left on device" in line and out.name in line
    assert out.read_text() == "old" and leftovers(folder.parent) == []


@pytest.mark.parametrize("command", WRITING)
def test_a_folder_that_is_not_there(args, command):
    words = [str(a).replace("out.parquet", "no/out.parquet") for a in args[command]]
    fails(*words, code="no_folder", folder=Path("no"))


@pytest.mark.parametrize("command", [*WRITING, "inspect", "evaluate"])
def test_json_is_one_object_and_nothing_else(args, command):
    result = fine(*args[command], "--json")
    assert json.loads(result.stdout)["command"] == command
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("run", "otmoe.shards_from"),
        ("predict", "otmoe.documents.files.load_model_file"),
        ("features", "otmoe.data.shards.sample_rows"),
        ("simulate", "otmoe.data.shards.write_batches"),
        ("fit", "otmoe.distributed.task.fit_rows"),
        ("aggregate", "otmoe.data.shards.draw_features"),
        ("inspect", "otmoe.documents.files.open_document"),
        ("evaluate", "otmoe.evaluation.files.evaluate_files"),
    ],
)
def test_control_c_is_130_and_a_mistake_of_ours_is_one_line(args, command, target, monkeypatch):
    monkeypatch.setattr(target, Mock(side_effect=KeyboardInterrupt))
    result = call(*args[command])
    assert result.exit_code == 130 and "error: interrupted" in result.stderr
    monkeypatch.setattr(target, Mock(side_effect=KeyError("gate")))
    assert "KeyError: 'gate' (OTMOE_DEBUG=1 shows where)" in fails(*args[command])
    monkeypatch.setenv("OTMOE_DEBUG", "1")
    assert "Traceback" in call(*args[command]).stderr


INTERRUPT = """
import os, signal
from contextlib import contextmanager
from otmoe.cli import main, run

@contextmanager
def progress(*_):
    yield lambda *_: os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    run.progress = progress
    main("run data --target y --experts 2 --cut 8 --n-jobs 2 -o model.json".split())
"""


def test_control_c_while_workers_fit(folder):
    Path("interrupt.py").write_text(INTERRUPT)
    done = in_a_process("interrupt.py")
    assert done.returncode == 130 and done.stdout == ""
    assert "are kept in model.json.parts" in done.stderr
    assert done.stderr.endswith("error: interrupted\n")
    assert not Path("model.json").exists() and leftovers(folder.parent) == []


# -- predict ---------------------------------------------------------------------------------------


def test_csv_in_and_out(frame, model):
    part = frame.select(["x1", "x0", "wind"]).append_column("id", pa.array(["007"] * 900))
    pa.csv.write_csv(part, "rows.csv", pa.csv.WriteOptions(quoting_style="none"))
    pq.write_table(part, "rows.parquet")
    fine("predict", model, "rows.csv", "--keep", "id,wind", "-o", "a.csv.gz")
    fine("predict", model, "rows.parquet", "--keep", "id,wind", "-o", "b.parquet")
    text = pa.csv.ConvertOptions(column_types={"id": pa.string()})
    a, b = pa.csv.read_csv("a.csv.gz", convert_options=text), pq.read_table("b.parquet")
    assert a.column_names == b.column_names == ["id", "wind", "prediction"]
    assert a.drop_columns("prediction").equals(b.drop_columns("prediction"))
    assert_allclose(a.column("prediction"), b.column("prediction"), rtol=1e-12)


def test_rows_with_gaps_are_refused_or_kept(frame, model):
    rows = frame.select(["x0", "x1"]).slice(0, 5)
    gaps = rows.set_column(0, "x0", pa.array([None, *rows.column("x0").to_pylist()[1:]]))
    pq.write_table(pa.concat_tables([gaps, rows]), "rows.parquet")
    pq.write_table(pa.table({"x0": pa.nulls(3, pa.float64()), "x1": [1.0] * 3}), "none.parquet")
    wrong = {"code": "column_missing", "columns": "1 of column 'x0'", "rows": 10}
    line = fails("predict", model, "rows.parquet", "-o", "out.parquet", **wrong)
    assert "'rows.parquet': " in line
    assert not Path("out.parquet").exists() and leftovers(Path()) == []
    files = ["rows.parquet", "none.parquet", "-o", "out.parquet"]
    fine("predict", model, *files, "--missing", "keep", "--expert")
    out = pq.read_table("out.parquet")
    assert out.column("prediction").is_null().to_pylist() == [True] + [False] * 9 + [True] * 3
    X = np.column_stack([rows.column(name) for name in ("x0", "x1")])
    found = out.column("prediction").slice(5, 5)
    assert_allclose(found, load_model(model).predict(X), rtol=1e-12)


def test_the_whole_count_is_told_though_batches_are_small(model):
    n = 30_000
    x = np.zeros(n)
    x[[5, n - 1]] = np.nan
    pq.write_table(pa.table({"x0": x, "x1": np.zeros(n)}), "rows.parquet")
    wrong = {"code": "column_missing", "columns": "2 of column 'x0'", "rows": n}
    fails("predict", model, "rows.parquet", "-o", "out.csv", **wrong)


def test_no_rows_give_a_file_without_rows(frame, model):
    pq.write_table(frame.slice(0, 0), "none.parquet")
    fine("predict", model, "none.parquet", "--keep", "hospital", "-o", "out.parquet")
    out = pq.read_table("out.parquet")
    assert out.num_rows == 0 and out.column_names == ["hospital", "prediction"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--proba"], {"code": "proba_of_numbers"}),
        (["--keep", "y,y"], {"code": "output_column_twice", "column": "y"}),
        (["--keep", "colour"], {"code": "no_column", "column": "colour"}),
        (["-o", "out.xlsx"], {"code": "file_kind"}),
    ],
)
def test_what_cannot_be_predicted_is_one_line(folder, model, args, expected):
    fails("predict", model, "data", "-o", "out.parquet", *args, **expected)
    assert not Path("out.parquet").exists()


def test_a_file_that_is_no_model_is_named(folder):
    Path("m.json").write_text("{}")
    args = ["predict", "m.json", "data", "-o", "out.parquet"]
    assert "m.json" in fails(*args, code="kind_missing")


# -- features and simulate -------------------------------------------------------------------------


def test_levels_come_from_all_files(frame):
    one = frame.select(["y", "wind"]).slice(0, 10)
    pq.write_table(one, "a.parquet")
    pq.write_table(one.set_column(1, "wind", pa.array(["E"] * 10)), "b.parquet")
    fine("features", "a.parquet", "b.parquet", "--target", "y", "-o", "f.json")
    assert FeatureSpec.load("f.json").columns[0].levels == ("E", "N", "S")
    how = ["--target", "y", "--force", "-o", "f.json"]
    few = ["--max-levels", 2]
    fails("features", "a.parquet", "b.parquet", *how, *few, code="many_levels", levels=3)
    pq.write_table(one.select(["y"]), "c.parquet")
    wrong = {"code": "file_lacks_column", "column": "wind"}
    assert "'c.parquet': " in fails("features", "a.parquet", "c.parquet", *how, **wrong)
    pq.write_table(one.set_column(1, "wind", pa.array([1.5] * 10)), "d.parquet")
    fails("features", "a.parquet", "d.parquet", *how, code="files_disagree")


def test_a_folder_of_other_files_is_left_alone(folder):
    args = ["simulate", "-o", "data", "--files", 2, "--rows", 50, "--features", 2, "--force"]
    fails(*args, code="folder_in_use")
    assert len(list(folder.iterdir())) == 3


# -- help and documents ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", [None, *main.commands])
def test_help_teaches(command):
    result = fine(*([] if command is None else [command]), "--help")
    assert re.search(r"Examples?[:,]", result.stdout)
    assert f"otmoe {command or 'run'} " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_version():
    assert fine("--version").stdout == f"otmoe {otmoe.__version__}\n"
    assert call().exit_code == 2
