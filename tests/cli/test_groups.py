"""Rows that share their expert, and experts that are always 0, on the command line."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from commandline import call, fails, fine, told, unguarded
from numpy.testing import assert_allclose

from otmoe import LocalModel, MoERegressor, load_model
from otmoe.text.sentences import Error, Warn

pytestmark = pytest.mark.usefixtures("own_folder")

HOW = ["--experts", 2, "--gate-features", "age", "--target", "y"]
PER = ["--expert-per", "person"]


@pytest.fixture
def rows(own_folder):
    rng = np.random.default_rng(0)
    n_people, size = 240, 5
    g = np.repeat(np.arange(n_people), size)
    age = rng.normal(size=n_people)
    kind = rng.random(n_people) < 1 / (1 + np.exp(-0.3 - 0.8 * age))
    x = rng.normal(size=len(g))
    y = np.where(kind[g], 1 + 0.8 * x, 0.3 - 0.5 * x) + rng.normal(size=len(g))
    person = [f"p{i}" for i in g]
    table = pa.table({"person": person, "x": x, "age": age[g], "y": y})
    for i in range(2):
        pa.csv.write_csv(table.slice(600 * i, 600), f"s{i}.csv")
    return table


def test_sites_fit_merge_and_refine_with_groups(rows):
    X, y = rows.select(["x", "age"]).to_pandas(), rows["y"].to_numpy()
    how = {"expert_per": "group", "gate_features": ["age"], "random_state": 0}
    est = MoERegressor(2, **how).fit(X, y, groups=rows["person"].to_numpy(zero_copy_only=False))

    fine("run", "s0.csv", "s1.csv", *HOW, *PER, "--refine", "auto", "-o", "run.json")
    model = load_model("run.json")
    assert model.expert_per == "group"
    model = model.aligned_to(est.model_, X.to_numpy())
    assert_allclose(model.to_vector(), est.model_.to_vector(), atol=1e-3)
    about = told("inspect", "run.json")["about"]
    assert about["expert per"] == "person"
    assert_allclose(float(about["log-likelihood"]), est.log_likelihood_, atol=1e-3)

    for i in range(2):
        site = ["--site", f"s{i}", "-o", f"s{i}.moe.json", "--sketch"]
        fine("fit", f"s{i}.csv", *HOW, *PER, *site, *unguarded())
    assert LocalModel.load("s0.moe.json").model.expert_per == "group"
    fine("aggregate", "s0.moe.json", "s1.moe.json", "-o", "merged.json")
    begin = ["--state", "state.json", "-o", "round1.request.json"]
    fine("refine", "start", "merged.json", "s0.moe.json", "s1.moe.json", *begin)
    for r in range(1, 6):
        for i in range(2):
            reply = ["--fit", f"s{i}.moe.json", "-o", f"s{i}.{r}.reply.json", *unguarded()]
            fine("refine", "answer", f"round{r}.request.json", *reply)
        replies = [f"s{i}.{r}.reply.json" for i in range(2)]
        step = told("refine", "step", "state.json", *replies, "-o", "refined.json")
        if step["done"]:
            break
    found = load_model("refined.json").aligned_to(est.model_, X.to_numpy())
    assert_allclose(found.to_vector(), est.model_.to_vector(), atol=1e-2)

    lacking = call("refine", "answer", "round1.request.json", "s0.csv", "--target", "y",
                   "--site", "s0", "-o", "x.json", *unguarded())  # fmt: skip
    assert lacking.exit_code == 1 and "--groups" in lacking.stderr


def test_a_start_of_groups_needs_their_column(rows):
    fine("run", "s0.csv", *HOW, *PER, "-o", "run.json")
    start = ["fit", "s1.csv", "--target", "y", "--site", "s1", "--start", "run.json"]
    fine(*start, *PER, "-o", "s1.moe.json", *unguarded())
    assert LocalModel.load("s1.moe.json").model.expert_per == "group"
    assert call(*start, "-o", "s2.moe.json", *unguarded()).exit_code == 1
    fine("run", "s0.csv", *HOW, "--columns", "x,age", "-o", "plain.json")
    wrong = call(*[*start[:-1], "plain.json"], *PER, "-o", "s3.moe.json", *unguarded())
    assert wrong.exit_code == 2
    assert Error.SHELL_START_OR.value.format(option="--expert-per") in wrong.stderr


def test_files_that_share_a_group_are_refused(rows):
    pa.csv.write_csv(rows.slice(598, 600), "s1.csv")
    found = call("run", "s0.csv", "s1.csv", *HOW, *PER, "-o", "run.json")
    assert found.exit_code == 1 and "'p119'" in found.stderr


def test_a_zero_expert(own_folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    y = np.where(rng.random(2000) < 0.3, 0, rng.poisson(np.exp(1 + 0.5 * x)))
    pa.csv.write_csv(pa.table({"x": x, "y": y}), "a.csv")
    how = ["a.csv", "--target", "y", "--family", "poisson", "--experts", 2, "--zero-expert"]
    fine("run", *how, "-o", "run.json")
    assert load_model("run.json").zeros == [1]
    fine("fit", *how, "--site", "a", "-o", "a.moe.json", *unguarded())
    assert LocalModel.load("a.moe.json").model.zeros == [1]
    shown = told("inspect", "run.json", "--coefficients")["coefficients"]["experts"]["intercept"]
    assert shown[1] is None and abs(shown[0] - 1) < 0.1
    assert "-300" not in fine("inspect", "run.json", "--coefficients").output
    fine("report", "run.json", "-o", "report.html")
    assert "-300" not in Path("report.html").read_text()
    classes = ["a.csv", "--target", "y", "--family", "classes", "--experts", 2, "--zero-expert"]
    assert call("run", *classes, "-o", "other.json").exit_code == 2


# -- select and evaluate ---------------------------------------------------------------------------


def test_the_number_of_experts_is_chosen_by_the_likelihood_of_groups(rows):
    how = ["s0.csv", "s1.csv", "--target", "y", "--gate-features", "age", "--experts", "1-3"]
    found = told("select", *how, *PER)
    assert (found["n_experts"], found["expected_bic"]) == (2, None)
    X, y = rows.select(["x", "age"]).to_pandas(), rows["y"].to_numpy()
    person = rows["person"].to_numpy(zero_copy_only=False)
    est = MoERegressor(1, expert_per="group", gate_features=["age"]).fit(X, y, groups=person)
    assert_allclose(found["table"][0]["log_likelihood"], est.log_likelihood_, rtol=1e-8)
    assert_allclose(found["table"][0]["bic"], est.bic(X, y, groups=person), rtol=1e-8)  # of rows
    est = MoERegressor(2, expert_per="group", gate_features=["age"]).fit(X, y, groups=person)
    lost = est.log_likelihood_ - found["table"][1]["log_likelihood"]
    assert 0 <= lost < 4  # what merging two shards costs; that of single rows is lower by 70
    assert est.log_likelihood_ - est.log_density(X, y).sum() > 70
    fails("select", *how, *PER, "--criterion", "expected_bic", code="expected_bic_of_groups")


def test_evaluation_is_by_group_however_rows_are_cut_into_files(rows):
    fine("run", "s0.csv", "s1.csv", *HOW, *PER, "--refine", "auto", "-o", "run.json")
    shuffled = rows.take(np.random.default_rng(1).permutation(len(rows)))
    pa.csv.write_csv(shuffled.slice(0, 500), "t0.csv")
    pa.csv.write_csv(shuffled.slice(500), "t1.csv")
    est = MoERegressor.from_model(load_model("run.json"))
    X, y = rows.select(["x", "age"]).to_pandas(), rows["y"].to_numpy()
    person = rows["person"].to_numpy(zero_copy_only=False)
    each = est.log_density(X, y, groups=person)
    for files in (["s0.csv", "s1.csv"], ["t0.csv", "t1.csv"]):
        found = told("evaluate", "run.json", *files, "--target", "y", *PER)
        assert (found["rows"], found["groups"]) == (1200, 240)
        assert_allclose(found["log_likelihood"], each.sum() / 1200, rtol=1e-10)
    assert "1,200 rows in 240 groups" in fine("evaluate", "run.json", "s0.csv", "s1.csv",
                                              "--target", "y", *PER).output  # fmt: skip
    alone = call("evaluate", "run.json", "s0.csv", "s1.csv", "--target", "y", "--json")
    assert Warn.SHELL_GROUPS_UNSAID.value.format(column="person") in " ".join(alone.stderr.split())
    found = json.loads(alone.stdout)["log_likelihood"]
    assert_allclose(found, est.log_density(X, y).mean(), rtol=1e-10)
    assert found < each.sum() / 1200 - 0.05
    fine("run", "s0.csv", "s1.csv", *HOW, "--columns", "x,age", "-o", "plain.json")
    fails("evaluate", "plain.json", "s0.csv", "--target", "y", *PER, code="groups_not_shared")


def test_evaluation_refuses_what_a_group_cannot_have(rows):
    fine("run", "s0.csv", *HOW, *PER, "-o", "run.json")
    table = rows.to_pandas()
    table["site"] = np.where(np.arange(len(table)) % 7 < 3, "lyon", "nantes")
    table["w"] = 1.0
    table.loc[599, "w"] = 2.0
    table["z"] = table["age"]
    table.to_csv("all.csv", index=False)
    how = ["evaluate", "run.json", "--target", "y", *PER]
    fails(*how, "all.csv", "--site-column", "site", code="group_at_two_sites")
    table["site"] = np.where(np.arange(len(table)) < 600, "lyon", "nantes")
    table.to_csv("all.csv", index=False)
    by_site = told(*how, "all.csv", "--site-column", "site")
    share = [by_site["sites"][name]["log_likelihood"] for name in ("lyon", "nantes")]
    assert_allclose(by_site["log_likelihood"], np.mean(share), rtol=1e-12)
    # The rows of a group lie in two files, so that no batch has all of them.
    table.iloc[:598].to_csv("a.csv", index=False)
    table.iloc[598:].to_csv("b.csv", index=False)
    fails(*how, "a.csv", "b.csv", "--weight", "w", code="weight_varies")
    table.loc[599, "age"] += 0.5
    table.loc[598, "age"] += 0.5
    table.iloc[598:].to_csv("b.csv", index=False)
    fails(*how, "a.csv", "b.csv", code="gate_varies", name="age")
