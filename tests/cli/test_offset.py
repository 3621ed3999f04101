"""Counts with an exposure, whose logarithm is a column of the files."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
import statsmodels.api as sm
from commandline import fails, fine, refined_by_files, told, unguarded
from numpy.testing import assert_allclose

from otmoe import load_model, shards_from


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    exposure = rng.uniform(0.2, 20, 900)
    age, sex = rng.normal(size=900), rng.integers(0, 2, 900).astype(float)
    y = rng.poisson(exposure * np.exp(0.3 + 0.4 * age - 0.5 * sex)).astype(float)
    return {"y": y, "age": age, "sex": sex, "time": np.log(exposure)}


@pytest.fixture
def files(rows, tmp_path):
    for i in range(3):
        table = pa.table({name: values[i::3] for name, values in rows.items()})
        pq.write_table(table, tmp_path / f"{i}.parquet")
    return [tmp_path / f"{i}.parquet" for i in range(3)]


def pooled(rows):
    X = sm.add_constant(np.column_stack([rows["age"], rows["sex"]]))
    return sm.GLM(rows["y"], X, sm.families.Poisson(), offset=rows["time"]).fit(tol=1e-12)


def test_a_run_over_files_ends_at_the_regression_with_this_offset(rows, files, tmp_path):
    model = tmp_path / "model.json"
    asked = ["--target", "y", "--family", "poisson", "--experts", 1, "--offset", "time"]
    fine("run", *files, *asked, "--refine", "auto", "--n-jobs", 1, "-o", model)
    here, fit = load_model(model).experts.coef[0], pooled(rows)
    assert_allclose(here, fit.params, atol=0.02 * fit.bse.min())  # apart by the weak prior


def test_sites_answer_with_the_offset_of_their_fit(rows, files, tmp_path):
    off, sent = unguarded(tmp_path), []
    for i, file in enumerate(files):
        sent.append(tmp_path / f"{i}.json")
        asked = ["--target", "y", "--family", "poisson", "--experts", 1, "--offset", "time"]
        fine("fit", file, *asked, "--site", f"s{i}", "--share", 50, *off, "-o", sent[-1])
    merged, state, ask = (tmp_path / name for name in ("merged.json", "state.json", "ask.json"))
    fine("aggregate", *sent, "-o", merged)
    fine("refine", "start", merged, *sent, "--state", state, "-o", ask)
    refined = refined_by_files(tmp_path, sent, state, ask, off)
    fit = pooled(rows)
    assert_allclose(load_model(refined).experts.coef[0], fit.params, atol=0.02 * fit.bse.min())


def test_the_ledger_is_named_from_the_folder_one_is_in(files, tmp_path, monkeypatch):
    asked = ["--target", "y", "--family", "poisson", "--experts", 1, "--offset", "time"]
    (tmp_path / "elsewhere").mkdir()
    for folder, name in (
        (".", ".otmoe-ledger.json"),
        ("elsewhere", tmp_path / ".otmoe-ledger.json"),
    ):
        monkeypatch.chdir(tmp_path / folder)
        found = fine("fit", files[0], *asked, "--site", "a", "-o", "a.moe.json").stdout
        assert f"recorded in the ledger {name}, which stays here" in " ".join(found.split())


def test_predictions_and_scores_know_the_offset(rows, files, tmp_path):
    model = tmp_path / "model.json"
    asked = ["--target", "y", "--family", "poisson", "--experts", 1, "--offset", "time"]
    fine("run", *files, *asked, "-o", model)
    moe = load_model(model)
    X = np.column_stack([rows["age"], rows["sex"]])[0::3]
    y, offset = rows["y"][0::3], rows["time"][0::3]
    fine("predict", model, files[0], "--offset", "time", "-o", tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    assert_allclose(found, moe.predict(X, offset))
    score = told("evaluate", model, files[0], "--target", "y", "--offset", "time")
    assert_allclose(score["log_likelihood"], moe.log_density(X, y, offset).mean())
    for command in (
        ["predict", model, files[0], "-o", tmp_path / "q.csv"],
        ["evaluate", model, files[0], "--target", "y"],
    ):
        assert "--offset time" in fine(*command).stderr
    asked = ["evaluate", model, files[0], "--target", "y", "--offset", "time"]
    alone = sm.GLM(y, np.ones(len(y)), sm.families.Poisson(), offset=offset).fit()
    assert_allclose(told(*asked)["null"]["log_likelihood"], alone.llf / len(y), rtol=1e-9)
    shown = " ".join(fine("summary", model).stdout.split())
    alone = sm.GLM(rows["y"], np.ones(900), sm.families.Poisson(), offset=rows["time"]).fit()
    assert f"{alone.llf / 900:.4f}"[:5] in shown
    assert "without the offset" not in shown and "--target y --offset time" in shown


def test_a_row_without_offset_is_counted_and_can_be_dropped(rows, tmp_path):
    time = np.where(np.arange(900) % 100 == 7, np.nan, rows["time"])
    pq.write_table(pa.table({**rows, "time": time}), tmp_path / "gaps.parquet")
    asked = ["--target", "y", "--family", "poisson", "--experts", 1, "--offset", "time"]
    model = tmp_path / "m.json"
    fine("run", tmp_path / "gaps.parquet", *asked, "--missing", "drop", "-o", model)
    said = fails("run", tmp_path / "gaps.parquet", *asked, "-o", tmp_path / "n.json")
    assert "time" in said and "9" in said
    keep = ["--offset", "time", "--missing", "keep"]
    fine("predict", model, tmp_path / "gaps.parquet", *keep, "-o", tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["prediction"].null_count == 9


def test_shards_in_memory_have_it_too(rows):
    shards = shards_from(rows, target="y", offset="time", cut=3)
    assert [shard.features.feature_names for shard in shards] == [("age", "sex")] * 3
    assert_allclose(np.concatenate([shard.read().offset for shard in shards]), rows["time"])
    by_site = shards_from(
        {**rows, "site": np.arange(900) % 2}, target="y", offset="time", site_column="site"
    )
    assert_allclose(by_site[1].read().offset, rows["time"][1::2])


def test_tables_with_semicolons_are_predicted_and_evaluated(rows, tmp_path):
    table, one = pa.table(rows), tmp_path / "rows.csv"
    with pv.CSVWriter(one, table.schema, write_options=pv.WriteOptions(delimiter=";")) as writer:
        writer.write_table(table)
    model = tmp_path / "m.json"
    fine("run", one, "--target", "y", "--experts", 1, "--sep", ";", "-o", model)
    fine("predict", model, one, "--sep", ";", "-o", tmp_path / "p.csv")
    assert told("evaluate", model, one, "--target", "y", "--sep", ";")["rows"] == 900
