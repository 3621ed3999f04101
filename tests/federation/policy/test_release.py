"""Messages held against a policy: rules by name, rounding, overrides, statements."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commandline import call, fails, fine, told
from numpy.testing import assert_allclose
from refusals import refused

from otmoe import FeatureSpec, LocalModel, MoERegressor, Policy, simulate
from otmoe.data.columns import Column
from otmoe.datasets import data_folder, load_beijing, load_flights, load_mmash
from otmoe.federation.policy.figures import figures_of
from otmoe.federation.policy.release import released
from otmoe.federation.policy.rounding import (
    coarse_scaling,
    nice,
    rounded_log_likelihood,
    rounded_sketch,
)
from otmoe.federation.policy.rules import Measure, Rule, Verdict
from otmoe.federation.policy.statement import Statement
from otmoe.federation.policy.verdict import judge, judge_message, said
from otmoe.likelihood.fit import em
from otmoe.likelihood.grams import Grams
from otmoe.likelihood.information import observed_information
from otmoe.likelihood.rows import Rows
from otmoe.text.sentences import Finding

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(scope="module")
def site():
    """Return a fit that may leave, its rows and its message."""
    data = simulate(600, 2, 3, softness=0.5, random_state=0)
    fit = em(data.X, data.y, 2, random_state=0)
    return LocalModel.from_fit(fit, "Lyon"), Rows(data.X, data.y)


# -- rules -----------------------------------------------------------------------------------------


BROKEN = {
    "rows": {"rows": 601},
    "parameters": {"parameters": 0.02},
    "expert_rows": {"expert_rows_per_coefficient": 500},
    "leverage": {"leverage": 1e-3},
    "certainty": {"certainty": 0.1},
    "columns": {"deny": ["x1"]},
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_named_with_its_figure_and_a_remedy(site, rule):
    made = released(*site, Policy(**BROKEN[rule]), columns=["x0", "x1", "x2"])
    (broken,) = made.verdict.refused
    assert broken.rule == rule and made.verdict.word == "do not send"
    text = str(said(broken))
    assert text.startswith(f"rule {rule}: ") and ";" in text
    assert f"{broken.limit:g}" in text or rule == "columns"
    assert released(*site, Policy()).verdict.word == "send"
    off = released(*site, Policy.off(), columns=["x0", "x1", "x2"])
    assert off.verdict.measures == () and off.message.to_json() == site[0].to_json()


@pytest.mark.parametrize("listed", [{"allow": ["x0", "x1"]}, {"deny": ["x2"]}])
def test_columns_are_allowed_or_denied(listed):
    data = simulate(300, 1, 3, random_state=0)
    est = MoERegressor(1).fit(pd.DataFrame(data.X, columns=["x0", "x1", "x2"]), data.y)
    error = refused("policy_refuses", rules=["columns"]).by(
        est.to_message, "Lyon", policy=Policy(**listed)
    )
    assert "x2" in str(error) and "x1" not in str(error)


def test_a_policy_that_switches_a_rule_off_does_not_measure_it(site):
    verdict = released(*site, Policy(leverage=None, certainty=None)).verdict
    assert {m.rule for m in verdict.measures} == {"rows", "parameters", "expert_rows"}


def test_many_parameters_are_a_warning_before_they_are_refused(site):
    verdict = released(*site, Policy(parameters_warn=0.01)).verdict
    assert verdict.word == "consider" and not verdict.refused
    (warned,) = [m for m in verdict.measures if m.outcome == "warn"]
    assert said(warned).code == Finding.POLICY_PARAMETERS_WARN.code


def test_what_is_set_aside_is_written_into_the_message(site):
    policy = Policy(rows=1000)
    aside = {Rule.ROWS: "published already", Rule.CELLS: "not broken"}
    made = released(*site, policy, overrides=aside)
    assert made.verdict.word == "consider"
    received = LocalModel.from_json(made.message.to_json())
    assert received.overrides == {"rows": "published already"}
    data = simulate(40, 1, 2, random_state=0)
    est = MoERegressor(1).fit(data.X, data.y)
    refused("policy_refuses", rules=["rows"]).by(est.to_message, "Lyon", policy=Policy(rows=50))
    sent = est.to_message("Lyon", policy=Policy(rows=50), overrides={"rows": "simulated"})
    assert sent.overrides == {"rows": "simulated"}
    refused("rule_unknown overrides").by(est.to_message, "Lyon", overrides={"luck": "none"})


def test_people_are_counted_where_a_column_says_whose_rows_are():
    data = simulate(200, 1, 2, random_state=0)
    est = MoERegressor(1).fit(data.X, data.y)
    est.to_message("Lyon")
    ids = np.arange(200) % 8
    error = refused("policy_refuses").by(est.to_message, "Lyon", data.X, data.y, ids=ids)
    assert "rows" in error.facts["rules"] and "8 people" in str(error)
    est.to_message("Lyon", data.X, data.y, ids=np.arange(200) % 100)
    refused("rows_for_policy").by(est.to_message, "Lyon", ids=ids)
    refused("other_rows").by(est.to_message, "Lyon", data.X[:50], data.y[:50])


def test_levels_that_only_the_site_knows_are_not_named():
    rng = np.random.default_rng(0)
    spec = FeatureSpec((Column("city", "category", ("Lyon", "Nice")), Column("flat")))
    city = np.repeat(["Lyon", "Nice"], [396, 4])
    X = spec.encode({"city": city, "flat": np.full(400, 7.0)})
    y = rng.normal(size=400)
    message = LocalModel.from_fit(em(X, y, 1), "Lyon", features=spec)
    agreed = released(message, Rows(X, y), Policy(cell=4))
    assert agreed.verdict.word == "send" and agreed.message.constant == {"flat": 7.0}
    own = released(message, Rows(X, y), Policy(cell=5), own_names=True)
    assert {m.rule for m in own.verdict.refused} == {"names", "cells"}
    assert own.message.constant == {}
    named = released(message, Rows(X, y), Policy(cell=4, names=True), own_names=True)
    assert named.verdict.word == "send" and named.message.constant == {"flat": 7.0}


def test_a_sketch_of_few_rows_and_rows_of_x_are_refused(site):
    message, rows = site
    message = message.with_support(rows.X, sketch=True, share=3)
    verdict = released(message, rows, Policy(component_rows=400)).verdict
    assert {m.rule for m in verdict.refused} == {"sketch", "share"}
    from_file = judge_message(Policy(component_rows=400), message)
    assert {m.rule for m in from_file.refused} == {"sketch", "share"}


# -- rounding --------------------------------------------------------------------------------------


def test_steps_are_round_numbers():
    values = 10.0 ** np.random.default_rng(0).uniform(-8, 8, 500)
    found = nice(values)
    assert np.all((found <= values * (1 + 1e-9)) & (found > values / 2.5 * (1 - 1e-9)))
    assert {f"{v:e}"[0] for v in found} == {"1", "2", "5"}
    assert_allclose(nice(np.array([1.0, 2.0, 5.0, 1e-3])), [1.0, 2.0, 5.0, 1e-3])


@pytest.mark.parametrize("family", ["gaussian", "logistic", "multinomial", "poisson"])
def test_rounding_costs_less_than_a_hundredth_of_the_noise(family):
    """In the norm of the information, whatever the scale of the features and how many rows."""
    data = simulate(20_000, 2, 3, family=family, softness=0.5, random_state=0)
    X = data.X * [1, 1e-3, 5] + [0, 0, 2013]
    options = {"family": family, "n_classes": 3 if family == "multinomial" else 2}
    message = LocalModel.from_fit(em(X, data.y, 2, random_state=0, **options), "Lyon")
    rows = Rows(X, data.y)
    made = released(message, rows, Policy())
    scaling = coarse_scaling(rows.moments())
    before, after = (scaling.from_user(m.model).to_vector() for m in (message, made.message))
    there = observed_information(scaling.from_user(message.model), replace(rows, scaling=scaling))
    moved = after - before
    assert np.all(moved != 0)
    assert np.sqrt(moved @ there.matrix @ moved / len(moved)) < 0.01


def test_what_is_sent_has_few_digits(site):
    message, rows = site
    sent = released(message, rows, Policy()).message
    digits = [len(f"{abs(v):.12g}".replace(".", "").strip("0")) for v in sent.model.gate.coef[0]]
    assert max(digits) <= 6
    assert sent.log_likelihood == round(message.log_likelihood)
    again = released(message, rows, Policy()).message
    assert again.to_json() == sent.to_json()
    plain = released(message, rows, Policy(digits=None)).message
    assert plain.to_json() == message.to_json()


def test_a_log_likelihood_says_no_more_than_a_row_could_change():
    assert rounded_log_likelihood(-1234.5678, 400, 0.01) == -1235.0
    assert rounded_log_likelihood(-1234567.8, 10**6, 0.01) == -1234570.0


def test_rounded_sketches_and_grams_are_valid(site):
    message, rows = site
    X = np.array(rows.X)
    X[:, 2] = X[:, 2] > 1
    rows = Rows(X, rows.y)
    fit = em(X, rows.y, 2, random_state=0)
    message = LocalModel.from_fit(fit, "Lyon").with_support(X, sketch=True)
    message = replace(message, grams=Grams.of(fit.model, rows))
    sent = LocalModel.from_json(released(message, rows, Policy()).message.to_json())
    assert_allclose(sent.sketch.moments[0], message.sketch.moments[0], atol=0.1)
    size = np.abs(message.grams.matrices).max(axis=(1, 2), keepdims=True)
    assert np.all(np.abs(sent.grams.matrices - message.grams.matrices) < 0.1 * size)
    few = rounded_sketch(replace(message.sketch, prob=()), 12, 0.01)
    assert_allclose(few.weight.sum(), 1.0) and np.all(few.weight > 0)
    np.linalg.cholesky(few.cov)


# -- the shell -------------------------------------------------------------------------------------


def written(n=300, **columns):
    data = simulate(n, 2, 2, softness=0.5, random_state=0)
    frame = pd.DataFrame({"y": data.y, "x0": data.X[:, 0], "x1": data.X[:, 1], **columns})
    frame.to_parquet("lyon.parquet")
    FeatureSpec.of_names(["x0", "x1"]).save("features.json")
    how = ["--target", "y", "--experts", 2, "--site", "Lyon", "--features", "features.json"]
    return ["fit", "lyon.parquet", *how, "-o", "lyon.moe.json"]


def test_a_refused_message_is_not_written_but_the_statement_is():
    fit = written(20)
    fails(*fit, "--statement", "s.html", code="policy_refuses")
    assert not Path("lyon.moe.json").exists()
    page = Path("s.html").read_text()
    assert "do not send" in page and "No file was written" in page and "rule parameters" in page
    HTMLParser().feed(page)


def test_the_policy_in_force_is_announced():
    fit = written()
    assert told(*fit)["policy"] == "built in"
    Path("policy.json").write_text('{"rows": 1000}')
    fails(*fit, "--force", code="policy_refuses", rules=["rows"])
    Path("mine.json").write_text('{"rows": 100}')
    found = told(*fit, "--force", "--policy", "mine.json")
    assert (found["policy"], found["verdict"]) == ("mine.json", "send")
    Path("policy.json").write_text('{"rowz": 1000}')
    fails(*fit, "--force", code="field_unknown")


def test_a_rule_is_set_aside_with_a_reason():
    fit = written()
    Path("policy.json").write_text('{"rows": 1000, "leverage": 0.001}')
    for words in (["--override", "rows"], ["--reason", "because"]):
        assert call(*fit, *words).exit_code == 2
    one = ["--override", "rows", "--reason", "agreed"]
    fails(*fit, *one, code="policy_refuses", rules=["leverage"])
    both = ["--override", "rows", "--override", "leverage", "--reason", "agreed by the board"]
    shown = fine(*fit, *both).stdout
    assert "Verdict: CONSIDER" in shown and "overridden: agreed by the board" in shown
    assert told("inspect", "lyon.moe.json")["overrides"] == dict.fromkeys(
        ("rows", "leverage"), "agreed by the board"
    )


def test_people_are_counted_by_the_column_that_the_policy_names():
    fit = written(300, patient=np.arange(300) % 6)
    Path("policy.json").write_text('{"id": "patient"}')
    line = fails(*fit, code="policy_refuses")
    assert "6 people" in line


def test_a_statement_belongs_to_one_message():
    fit = written()
    refused_name = fails(*fit, "--statement", "s.pdf", code="statement_name")
    assert "s.pdf" in refused_name and not Path("lyon.moe.json").exists()
    fine(*fit, "--statement", "s.json")
    found = json.loads(Path("s.json").read_text())
    assert found["verdict"] == "send" and len(found["sha256"]) == 64
    known = told("inspect", "lyon.moe.json", "--statement", "s.json")
    assert known["verdict"] == "send"
    assert [m["rule"] for m in known["measures"]] == [m["rule"] for m in found["measures"]]
    assert told("inspect", "lyon.moe.json")["verdict"] == "consider"
    Path("lyon.moe.json").write_text(Path("lyon.moe.json").read_text() + "\n")
    fails("inspect", "lyon.moe.json", "--statement", "s.json", code="other_statement")
    found["measures"][0]["rule"] = "luck"
    Path("s.json").write_text(json.dumps(found))
    fails("inspect", "lyon.moe.json", "--statement", "s.json", code="rule_unknown")


def test_a_page_to_sign_says_what_is_set_aside_and_runs_nothing():
    rows = Measure(Rule.ROWS, 4.0, 10.0, "refuse")
    verdict = Verdict((rows,), {Rule.ROWS: "<b>they agreed</b>"})
    page = Statement("<i>Lyon</i>", "m.json", "0" * 64, "2024-02-29", "built in", 4.0, {}, verdict)
    html = page.to_html()
    assert "<script" not in html and "http" not in html
    assert "&lt;i&gt;Lyon" in html and "&lt;b&gt;they agreed" in html and "<b>" not in html
    assert "overridden" in html and "signature" in html


# -- real sites ------------------------------------------------------------------------------------

real = pytest.mark.skipif("OTMOE_DATA" not in __import__("os").environ, reason="no data here")


def verdict_on(X, y, n_experts, family, features=None, **options):
    fit = em(X, y, n_experts, family=family, random_state=0, **options)
    return judge(Policy(), figures_of(fit.model, Rows(X, y), features=features))


@real
def test_a_small_airline_is_refused_and_a_large_one_passes():
    table = load_flights()
    beside = ("late15", "day", "carrier", "month")
    names = [name for name in table.column_names if name not in beside]
    spec = FeatureSpec.from_sample(table, ["month", *names])
    day, carrier = table["day"].to_numpy(), np.array(table["carrier"].to_pylist())
    y = table["late15"].to_numpy(zero_copy_only=False).astype(float)
    train = day % 5 != 0
    for name, word in (("OO", "do not send"), ("9E", "send")):
        mine = (carrier == name) & train
        X = spec.encode(table.filter(mine))
        verdict = verdict_on(X, y[mine], 2, "logistic", spec, n_init=2)
        assert verdict.word == word
        if name == "OO":
            broken = {m.rule: m for m in verdict.refused}
            assert {"parameters", "expert_rows", "cells", "leverage"} <= broken.keys()
            assert broken[Rule.PARAMETERS].where == "84 parameters for 19 rows"


@real
def test_stations_and_people_pass():
    data = load_beijing()
    mine = np.flatnonzero((data.site == data.site[0]) & data.train)[::4]
    assert verdict_on(data.X[mine], data.y[mine], 4, "gaussian", n_init=2).word == "send"
    data = load_mmash()
    mine = data.site == data.site[0]
    assert verdict_on(data.X[mine], data.y[mine], 2, "gaussian", n_init=2).word == "send"


@real
def test_hospitals_get_the_verdict_a_person_would_give():
    """At one expert: in Switzerland one healthy patient has angina, in the VA two are women."""
    table = pd.read_parquet(data_folder() / "heart_disease" / "heart4sites.parquet")
    features = ["age", "sex", "asymptomatic", "thalach", "exang", "oldpeak"]
    table = table.assign(asymptomatic=(table["cp"] == 4).astype(float)).dropna(subset=features)
    words = {}
    for site, rows in table.groupby("site", observed=True):
        y = rows["disease"].to_numpy(float)
        verdict = verdict_on(rows[features].to_numpy(float), y, 1, "logistic")
        words[site] = (verdict.word, [(str(m.rule), m.figure) for m in verdict.refused])
    assert words["cleveland"] == words["hungarian"] == ("send", [])
    assert words["va"] == ("do not send", [("cells", 2.0)])
    assert words["switzerland"] == ("do not send", [("cells", 1.0)])
