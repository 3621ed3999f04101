"""Successes in trials, from files, through every command."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import fails, fine, refined_by_files, told, unguarded
from numpy.testing import assert_allclose

from otmoe import LocalModel, MoERegressor, load_model, shards_from, simulate
from otmoe.data.formula import Formula
from otmoe.data.responses import responses_of

ASKED = ["--target", "y/trials", "--family", "binomial", "--experts", 2]


@pytest.fixture(scope="module")
def data():
    return simulate(1800, 2, 2, family="binomial", softness=1.0, random_state=3)


def columns(data, part):
    y, X = data.y[part].astype(int), data.X[part]
    return {"y": y[:, 0], "trials": y.sum(axis=1), "a": X[:, 0], "b": X[:, 1]}


@pytest.fixture
def files(data, tmp_path):
    for i in range(3):
        pq.write_table(pa.table(columns(data, slice(i, None, 3))), tmp_path / f"{i}.parquet")
    return [tmp_path / f"{i}.parquet" for i in range(3)]


@pytest.fixture(scope="module")
def pooled(data):
    return MoERegressor(2, family="binomial", random_state=0).fit(data.X, data.y)


def test_a_refined_run_is_the_pooled_fit(data, files, pooled, tmp_path):
    model = tmp_path / "model.json"
    fine("run", *files, *ASKED, "--refine", "auto", "--n-jobs", 1, "-o", model)
    found = load_model(model)
    assert found.feature_names == ("a", "b")  # trials are no feature
    best = pooled.model_.log_density(data.X, data.y).sum()
    assert abs(found.log_density(data.X, data.y).sum() - best) < 1e-4
    again = tmp_path / "again.json"
    asked = ["--formula", "y/trials ~ a + b", "--family", "binomial", "--experts", 2]
    fine("run", *files, *asked, "--refine", "auto", "--n-jobs", 1, "-o", again)
    assert_allclose(load_model(again).to_vector(), found.to_vector(), rtol=1e-9)


def test_sites_go_all_the_way(data, files, pooled, tmp_path):
    sent, off = [], unguarded(tmp_path)
    spec = tmp_path / "features.json"
    fine("features", *files, "--target", "y/trials", "-o", spec)
    for i, file in enumerate(files):
        sent.append(tmp_path / f"{i}.moe.json")
        how = ["--features", spec, "--site", f"s{i}", "--sketch", *off]
        fine("fit", file, *ASKED, *how, "-o", sent[-1])
    assert_allclose(LocalModel.load(sent[0]).model.experts.trials, 10)
    merged, state, ask = (tmp_path / name for name in ("merged.json", "state.json", "ask.json"))
    fine("aggregate", *sent, "-o", merged)
    fine("refine", "start", merged, *sent, "--state", state, "-o", ask)
    refined = refined_by_files(tmp_path, sent, state, ask, off)
    best = pooled.model_.log_density(data.X, data.y).sum()
    assert abs(load_model(refined).log_density(data.X, data.y).sum() - best) < 1e-3
    found = told("evaluate", refined, *files, "--target", "y/trials")
    assert_allclose(found["log_likelihood"], best / 1800, rtol=1e-5)
    assert 0 < found["explained"] < 1
    assert "binomial" in fine("summary", refined).output
    predicted = tmp_path / "predicted.parquet"
    fine("predict", refined, files[0], "-o", predicted)
    share = pq.read_table(predicted)["prediction"].to_numpy()
    assert_allclose(share, load_model(refined).predict(data.X[::3]), rtol=1e-12)
    fails("predict", refined, files[0], "--quantiles", ".5", "-o", tmp_path / "q.csv")
    fine("report", refined, "-o", tmp_path / "report.html")


def test_answers_are_held_to_the_policy(files, tmp_path):
    sent = tmp_path / "0.moe.json"
    fine("fit", files[0], *ASKED, "--site", "s0", "--sketch", "-o", sent)  # that is built in
    denied = tmp_path / "deny.json"
    denied.write_text('{"deny": ["trials"]}')
    asked = [*ASKED, "--site", "s0", "--policy", denied, "-o", tmp_path / "no.json"]
    assert "trials" in fails("fit", files[0], *asked)


def test_numbers_of_experts_are_compared(files):
    found = told(
        "select", *files, "--target", "y/trials", "--family", "binomial", "--experts", "1-2"
    )
    assert found["n_experts"] == 2


def test_failures_below_zero_name_the_remedy(files, tmp_path):
    table = pq.read_table(files[0]).to_pydict()
    table["trials"][7] = table["y"][7] - 1
    pq.write_table(pa.table(table), tmp_path / "wrong.parquet")
    out = ["--site", "s", "-o", tmp_path / "no.json"]
    said = fails("fit", tmp_path / "wrong.parquet", *ASKED, *out, code="trials_not_counts")
    assert "row 7" in said
    table["trials"][7] = None
    pq.write_table(pa.table(table), tmp_path / "gap.parquet")
    assert "trials" in fails("fit", tmp_path / "gap.parquet", *ASKED, *out)
    fine("fit", tmp_path / "gap.parquet", *ASKED, "--missing", "drop", *out)
    out = [*out, "--force"]
    fails("fit", files[0], *ASKED[:1], "y/nothing", *ASKED[2:], *out, code="no_column")
    fails("fit", files[0], "--target", "y/trials", "--experts", 2, *out, code="response_columns")
    fails("fit", files[0], *ASKED, "--weight", "trials", *out, code="roles_shared")


def test_a_column_may_have_a_slash_in_its_name():
    assert responses_of("a/b/c", ["a", "b/c"]) == (("a", "b/c"),)
    assert responses_of("a / b", ["a", "b"]) == (("a", "b"),)
    assert responses_of("a/b", ["a", "b", "a/b"]) == (("a/b", None),)
    assert responses_of("a/b", ["a"]) == (("a/b", None),)
    rows = {"km/h": [1.0, 2.0], "km": [3.0, 4.0], "h": [5.0, 6.0]}
    (shard,) = shards_from(rows, target="km/h")
    assert shard.read().y.tolist() == [1.0, 2.0] and shard.features.names == ("km", "h")


def test_tables_in_memory_and_formulas_have_trials(data, pooled):
    table = columns(data, slice(None))
    est = MoERegressor.from_formula("y/trials ~ .", table, family="binomial", random_state=0)
    assert_allclose(est.log_likelihood_, pooled.log_likelihood_, rtol=1e-9)
    (shard,) = shards_from(table, target="y/trials")
    assert_allclose(shard.read().y, data.y)
    assert Formula.parse("`my y`/`my n` ~ x").target == "my y/my n"
