"""Several responses, from files, through every command."""

import json

import numpy as np
import pandas as pd
import pytest
from commandline import call, fails, fine, refined_by_files, told, unguarded
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import (
    DistributedMoERegressor,
    LocalModel,
    MoERegressor,
    load_model,
    save_model,
    shards_from,
)
from otmoe.data.formula import Formula
from otmoe.data.responses import responses_of
from otmoe.federation.policy.figures import figures_of
from otmoe.federation.policy.rounding import rounded_grams
from otmoe.federation.policy.rowsets import RowSet
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.model.gate import SoftmaxGate
from otmoe.model.mixture import MoE
from otmoe.text.sentences import Error

ASKED = ["--target", "cost,visits", "--family", "gaussian,poisson", "--experts", 2]
FAMILY = ["gaussian", "poisson"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 1800
    a, b = rng.normal(size=(2, n))
    severe = rng.random(n) < 1 / (1 + np.exp(-2 * a))
    cost = np.where(severe, 9, 3) + b + rng.normal(size=n)
    visits = rng.poisson(np.exp(np.where(severe, 1.2, 0.1 + 0.3 * b)))
    total = rng.integers(1, 6, n)
    died = rng.binomial(total, np.where(severe, 0.6, 0.2))
    columns = {"a": a, "b": b, "cost": cost, "visits": visits, "died": died, "total": total}
    return pd.DataFrame({**columns, "name": ["x"] * n})


@pytest.fixture
def files(rows, tmp_path):
    found = []
    for i in range(3):
        found.append(tmp_path / f"{i}.csv")
        rows[i::3].drop(columns=["died", "total", "name"]).to_csv(found[-1], index=False)
    return found


@pytest.fixture(scope="module")
def pooled(rows):
    return MoERegressor(2, family=FAMILY, random_state=0).fit(
        rows[["a", "b"]], rows[["cost", "visits"]]
    )


def test_a_target_names_columns():
    names = ["cost", "visits", "died", "total", "a,b", "km/h"]
    assert responses_of("cost", names) == (("cost", None),)
    assert responses_of("cost, visits", names) == (("cost", None), ("visits", None))
    assert responses_of("cost,died/total", names) == (("cost", None), ("died", "total"))
    assert responses_of("a,b", names) == (("a,b", None),)  # a column of that name comes first
    assert responses_of("cost,none", names) == (("cost", None), ("none", None))
    assert Formula.parse("cost, died/total ~ a").target == "cost,died/total"
    refused("formula_unreadable", wanted="the name of the response").by(Formula.parse, "cost, ~ a")


def test_a_refined_run_is_the_pooled_fit(rows, files, pooled, tmp_path):
    model = tmp_path / "model.json"
    fine("run", *files, *ASKED, "--refine", "auto", "--n-jobs", 1, "-o", model)
    found = load_model(model)
    X, Y = rows[["a", "b"]].to_numpy(), rows[["cost", "visits"]].to_numpy(float)
    assert found.feature_names == ("a", "b") and found.experts.responses == ["cost", "visits"]
    assert abs(found.log_density(X, Y).sum() - pooled.log_likelihood_) < 1e-4
    again = tmp_path / "again.json"
    asked = ["--formula", "cost, visits ~ a + b", *ASKED[2:]]
    fine("run", *files, *asked, "--refine", "auto", "--n-jobs", 1, "-o", again)
    assert_allclose(load_model(again).to_vector(), found.to_vector(), rtol=1e-9)
    text = fine("summary", model).output
    assert "visits: b" in text and "--target cost,visits" in text


def test_sites_go_all_the_way(rows, files, pooled, tmp_path):
    sent, off, spec = [], unguarded(tmp_path), tmp_path / "features.json"
    fine("features", *files, "--target", "cost,visits", "-o", spec)
    own = ["--expert-features", "cost=b", "--expert-features", "visits=-intercept,b"]
    for i, file in enumerate(files):
        sent.append(tmp_path / f"{i}.moe.json")
        how = ["--features", spec, "--site", f"s{i}", "--sketch", *own, *off]
        fine("fit", file, *ASKED, *how, "-o", sent[-1])
    first = LocalModel.load(sent[0]).model
    assert first.structure.columns == (((0, 2), (2,)),)
    merged, state, ask = (tmp_path / name for name in ("merged.json", "state.json", "ask.json"))
    fine("aggregate", *sent, "-o", merged)
    fine("refine", "start", merged, *sent, "--state", state, "-o", ask)
    turned = ["--target", "visits,cost", "--site", "s0", *off, "-o", tmp_path / "no.json"]
    fails("refine", "answer", ask, files[0], *turned, code="responses_other")
    refined = refined_by_files(tmp_path, sent, state, ask, off)
    features = {"cost": ["b"], "visits": ["-intercept", "b"]}
    X, Y = rows[["a", "b"]], rows[["cost", "visits"]]
    best = MoERegressor(2, family=FAMILY, expert_features=features, random_state=0).fit(X, Y)
    model = load_model(refined)
    height = model.log_density(X.to_numpy(), Y.to_numpy(float)).sum()
    assert abs(height - best.log_likelihood_) < 1e-3
    fine("report", refined, "-o", tmp_path / "report.html")
    again = [*sent[:1], "--start", merged, "--site", "s0", *off]
    out = ["-o", tmp_path / "second.json"]
    fine("fit", files[0], "--target", "cost,visits", *again[1:], *out)
    fails(
        "fit", files[0], "--target", "visits,cost", *again[1:], *out, "--force",
        code="responses_other",
    )  # fmt: skip


def test_each_response_is_predicted_and_measured(rows, files, pooled, tmp_path):
    model, predicted = tmp_path / "model.json", tmp_path / "p.csv"
    fine("run", *files, *ASKED, "--refine", "auto", "--n-jobs", 1, "-o", model)
    found = told("evaluate", model, *files, "--target", "cost,visits")
    assert_allclose(found["log_likelihood"], pooled.log_likelihood_ / 1800, rtol=1e-6)
    assert set(found["responses"]) == {"cost", "visits"}
    assert "r2" in found["responses"]["cost"] and "deviance" in found["responses"]["visits"]
    text = fine("evaluate", model, *files, "--target", "cost,visits").output
    assert "visits: deviance per row" in text and "of the variance of cost" in text
    fine("predict", model, files[0], "--keep", "cost", "--expert", "-o", predicted)
    table = pd.read_csv(predicted)
    assert list(table) == ["cost", "prediction(cost)", "prediction(visits)", "expert"]
    mean = load_model(model).predict(rows[["a", "b"]].to_numpy()[::3])
    assert_allclose(table[["prediction(cost)", "prediction(visits)"]], mean, rtol=1e-9)
    turned = ["evaluate", model, files[0], "--target"]
    fails(*turned, "visits,cost", code="responses_other", wanted=["cost", "visits"])
    fails(*turned, "cost", code="joint_columns")
    fails(
        "predict", model, files[0], "--quantiles", ".5", "-o", tmp_path / "q.csv",
        code="joint_no_quantiles",
    )  # fmt: skip
    by = tmp_path / "by.csv"
    rows.assign(site=np.where(rows.a > 0, "up", "down")).to_csv(by, index=False)
    sites = told("evaluate", model, by, "--target", "cost,visits", "--site-column", "site")
    assert set(sites["sites"]["up"]["responses"]) == {"cost", "visits"}


def test_families_are_one_for_each_or_one_for_all(rows, tmp_path):
    file = tmp_path / "rows.csv"
    rows[:400].to_csv(file, index=False)
    out, use = ["-o", tmp_path / "m.json", "--n-jobs", 1], ["--columns", "a,b", "--experts", 1]
    fine("run", file, "--target", "cost,visits", *use, *out)
    assert load_model(tmp_path / "m.json").experts.family == "gaussian+gaussian"
    three = ["--target", "cost,visits,died/total", "--family", "gaussian,poisson,binomial"]
    fine("run", file, *three, *use, *out, "--force")
    assert load_model(tmp_path / "m.json").experts.responses == ["cost", "visits", "died"]
    two = ["--target", "cost,visits"]
    fails("run", file, *two, "--family", "gaussian,poisson,gamma", *use, *out, "--force",
          code="families_count")  # fmt: skip
    said = call("run", file, *two, "--family", "classes", *use, *out, "--force")
    sentence = Error["shell_several_classes".upper()].value.format(responses="cost, visits")
    assert said.exit_code == 2 and sentence in " ".join(said.stderr.split())
    for family in ("gaussian,classes", "gaussian,cauchy"):
        assert call("run", file, *two, "--family", family, *use, *out, "--force").exit_code == 2
    text = ["--target", "cost,name", "--columns", "a,b", "--experts", 1, *out, "--force"]
    fails("run", file, *text, code="target_text", column="name")
    fails("run", file, "--target", "cost,cost", *use, *out, "--force", code="roles_shared")
    fails("run", file, "--target", "cost,", *use, *out, "--force", code="no_column")


def test_rows_without_a_response_are_dropped_or_refused(rows, tmp_path):
    gone = rows[["a", "b", "cost", "visits"]].astype(float)
    gone.loc[5, "visits"] = np.nan
    gone.to_csv(tmp_path / "gone.csv", index=False)
    out = ["--n-jobs", 1, "-o", tmp_path / "m.json"]
    assert "visits" in fails("run", tmp_path / "gone.csv", *ASKED, *out)
    assert (
        "1 of 1,800" in fine("run", tmp_path / "gone.csv", *ASKED, "--missing", "drop", *out).stderr
    )


def test_tables_in_memory_have_several_responses(rows, pooled):
    table = rows[["a", "b", "cost", "visits"]]
    shards = shards_from(table, target="cost,visits", cut=2)
    assert shards[0].response_names == ("cost", "visits")
    assert_allclose(shards[1].read().y, table[["cost", "visits"]][900:])
    est = DistributedMoERegressor(2, family=FAMILY, refine="auto", random_state=0)
    est.fit_shards(shards)
    assert_allclose(est.model_.experts.coef, pooled.model_.experts.coef, atol=1e-3)
    assert est.model_.experts.responses == ["cost", "visits"]
    wrong = DistributedMoERegressor(2, family=["gaussian"] * 3)
    refused("families_count").by(wrong.fit_shards, shards)
    refused("target_text", column="name").by(shards_from, rows, target="cost,name")
    formula = MoERegressor.from_formula(
        "cost, visits ~ a + b", table, family=FAMILY, random_state=0
    )
    assert_allclose(formula.log_likelihood_, pooled.log_likelihood_, rtol=1e-9)
    assert formula.model_.experts.responses == ["cost", "visits"]


# -- policy --------------------------------------------------------------------------------------


def test_the_policy_sees_every_response(rows, files, tmp_path):
    for column in ("cost", "visits"):
        denied = tmp_path / "deny.json"
        denied.write_text(json.dumps({"deny": [column]}))
        asked = [*ASKED, "--site", "s", "--policy", denied, "-o", tmp_path / "no.json"]
        assert column in fails("fit", files[0], *asked)
    known = rows[["a", "b"]].assign(cost=3 * rows.a + rows.b, visits=rows.visits)
    known.to_csv(tmp_path / "known.csv", index=False)  # x tells all of one of the responses
    for target, family in (
        ("cost,visits", "gaussian,poisson"),
        ("visits,cost", "poisson,gaussian"),
    ):
        asked = ["--target", target, "--family", family, "--experts", 1, "--site", "s"]
        said = fails("fit", tmp_path / "known.csv", *asked, "-o", tmp_path / "no.json")
        assert "rule certainty" in said


def test_certainty_is_that_of_the_response_that_is_known_best(rows):
    X = rows[["a", "b"]].to_numpy()
    for order in ([0, 1], [1, 0]):
        exact = np.where(rows.a > 0, 2 * rows.b, rows.cost)  # in one expert alone
        Y = np.column_stack([exact, rows.visits.astype(float)])[:, order]
        family = [["gaussian", "poisson"][i] for i in order]
        parts = [
            MoERegressor(1, family=family).fit(X[side], Y[side]).model_.experts
            for side in (rows.a > 0, rows.a <= 0)
        ]
        gate = SoftmaxGate(np.array([[0.0, 50.0, 0.0], [0.0, 0.0, 0.0]]))
        model = MoE(gate, type(parts[0]).concat(parts))
        assert figures_of(model, Rows(X, Y)).certainty == 1.0


def test_rows_are_known_again_by_one_of_their_responses(rows):
    X, key = rows[["a", "b"]].to_numpy(), b"secret"
    both, one = rows[["cost", "visits"]].to_numpy(float), rows["cost"].to_numpy()
    whole = RowSet.of(Rows(X, both), key)
    assert whole.difference(RowSet.of(Rows(X[1:], one[1:]), key)) == 1
    assert RowSet.of(Rows(X[1:], one[1:]), key).difference(whole) == 1
    assert whole.difference(RowSet.of(Rows(X, both), key)) == 0
    assert whole.difference(RowSet.of(Rows(X[:-2], both[:-2]), key)) <= 2
    other = RowSet.of(Rows(X, rows[["b", "a"]].to_numpy()), key)
    assert whole.difference(other) > 100
    assert len(whole.parts) == 2 and RowSet.of(Rows(X, one), key).parts == ()


def test_classes_among_responses_do_not_pass_the_border(rows, files, tmp_path):
    binary = rows[["a", "b", "cost"]].assign(ill=(rows.visits > 1).astype(int))
    binary.to_csv(tmp_path / "binary.csv", index=False)
    Y = binary[["cost", "ill"]]
    est = MoERegressor(2, family=["gaussian", "logistic"], random_state=0)
    model = est.fit(binary[["a", "b"]], Y).model_
    path = save_model(model, tmp_path / "model.json")
    sent = tmp_path / "s.moe.json"
    asked = ["--target", "cost,ill", "--start", path, "--site", "s", "-o", sent]
    fails("fit", tmp_path / "binary.csv", *asked, code="classes_among_responses")
    assert not sent.exists()
    assert_array_equal(load_model(path).to_vector(), model.to_vector())


def test_grams_are_rounded_in_the_units_of_each_response(rows):
    X = rows[["a", "b"]].to_numpy()
    D = np.column_stack([np.ones(len(X)), X])
    gram, none = D.T @ D, np.zeros((3, 3))
    scaling, levels = Scaling.of(X), [False, False]

    def rounded(unit):  # of responses whose curvatures differ by a power of ten
        matrix = np.block([[gram, none], [none, unit * gram]])[None]
        return rounded_grams(Grams(np.array([float(len(X))]), matrix), scaling, levels).matrices[0]

    alike, apart = rounded(1.0), rounded(1e-6)
    assert_allclose(apart[:3, :3], alike[:3, :3], rtol=1e-9)
    assert_allclose(apart[3:, 3:], 1e-6 * alike[3:, 3:], rtol=1e-6)
    assert np.any(alike[:3, :3] != gram)
