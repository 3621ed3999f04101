"""Sites that differ, by files: from their fits to a model of each that beats the common one."""

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import call, fails, fine, leftovers, told
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import (
    DistributedMoERegressor,
    load_between,
    load_features,
    load_model,
    save_model,
    shards_from,
    simulate,
)
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.state import RefineState
from otmoe.federation.between import differences
from otmoe.federation.rounds import step
from otmoe.inference.between import between_sites
from otmoe.likelihood.prior import fit_with_prior
from otmoe.likelihood.rows import Rows
from otmoe.text.sentences import Error, Warn

SITES = [f"site {m}" for m in range(6)]
NEW = "Metz"  # has no part in the rounds, and few rows
TARGET = ["--target", "y"]
STEP = ["refine", "step", "state.json"]


def write_rows(folder):
    """Write rows of sites whose intercepts differ, and later ones to hold models against."""
    rng = np.random.default_rng(5)
    truth = simulate(10, 2, 2, softness=1.0, random_state=3).truth
    for name in [*SITES, NEW]:
        coef = truth.experts.coef.copy()
        coef[:, 0] += 0.7 * np.sqrt(truth.experts.var) * rng.normal(size=2)
        own = replace(truth, experts=replace(truth.experts, coef=coef))
        n = 40 if name == NEW else 300
        X = rng.normal(size=(n + 2000, 2))
        city = np.repeat(name, n + 2000)
        rows = pa.table({"y": own.sample(X, rng)[0], "x0": X[:, 0], "x1": X[:, 1], "city": city})
        pq.write_table(rows.slice(0, n), folder / f"{name}.parquet")
        pq.write_table(rows.slice(n), folder / f"{name}.test.parquet")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Return a folder in which the last step is about to be taken."""
    folder = tmp_path_factory.mktemp("ended")
    write_rows(folder)
    for name in SITES:
        fine(
            *("fit", folder / f"{name}.parquet", *TARGET, "--columns", "x0,x1", "--experts", 2),
            *("--site", name, "--sketch", "--n-init", 3, "-o", folder / f"{name}.moe.json"),
        )
    fine("aggregate", folder / "*.moe.json", "-o", folder / "model.json")
    where = ["--state", folder / "state.json", "-o", folder / "round1.request.json"]
    begun = [folder / "model.json", folder / "*.moe.json", "--between", "auto", *where]
    assert told("refine", "start", *begun)["between"] == "auto"
    last = folder / "last.json"
    for number in range(1, 20):
        for name in SITES:
            answer(folder, name, number)
        before = (folder / "state.json").read_bytes()
        replies = folder / f"*.round{number}.reply.json"
        fine("refine", "step", folder / "state.json", replies, "-o", last)
        if last.exists():
            (folder / "state.json").write_bytes(before)
            (folder / "number").write_text(str(number))
            return folder
    raise AssertionError("the rounds do not end")


def answer(folder, name, number, *how):
    asked = [folder / f"round{number}.request.json", folder / f"{name}.parquet", *TARGET]
    out = folder / f"{name}.round{number}.reply.json"
    agreed = how or ("--scatter",)
    return fine("refine", "answer", *asked, "--site", name, *agreed, "--force", "-o", out)


@pytest.fixture
def here(ended, own_folder, tmp_path):
    """Work in a copy of it."""
    copytree(ended, tmp_path, dirs_exist_ok=True)
    return int(Path("number").read_text())


def log_likelihood(model, name, *more):
    return told("evaluate", model, f"{name}.test.parquet", *TARGET, *more)["log_likelihood"]


def personal(name, *more):
    out = ["--site", name, "-o", f"{name}.mine.json", "--force"]
    return told("personalise", "last.json", f"{name}.parquet", *TARGET, *out, *more)


# -- the route -------------------------------------------------------------------------------------


def test_the_last_step_says_how_sites_differ_as_the_same_replies_do(here):
    report = told(*STEP, f"*.round{here}.reply.json", "-o", "again.json")
    found = load_between("again.json")
    asked = RefineRequest.load(f"round{here}.request.json")
    replies = [RefineReply.load(f"{name}.round{here}.reply.json").content for name in SITES]
    pooled = RefineState.load("state.json").refinement.pooled
    assert pooled is not None  # the state is that of the last step
    there = between_sites(asked.model, asked.scaling, pooled, replies)
    assert found.spreads == there.spreads and found.prior.tau == there.prior.tau
    for name in ("mean", "mean_error", "deviation"):
        assert_array_equal(getattr(found, name), getattr(there, name))
    for one, other in zip(found.sites, there.sites, strict=True):
        for name in ("site", "q", "estimate", "error", "shrunk", "shrunk_error"):
            assert_array_equal(getattr(one, name), getattr(other, name))
    told_of = {part["block"]: part for part in report["between"]["spreads"]}
    assert told_of["expert intercepts"]["tau"] == found.prior.tau["expert intercepts"] > 0.3
    assert told_of["expert intercepts"]["i2"] > 0.8 and report["kind"] == "sandwich"
    assert Path("again.json").read_bytes() == Path("last.json").read_bytes()


def test_the_state_keeps_the_wish_and_no_matrix_of_a_site(here):
    state = json.loads(Path("state.json").read_text())
    assert state["between"] == "auto" and state["sandwich"]
    del state["between"]
    assert RefineState.from_json(json.dumps(state)).between is None  # as an older one
    asked = json.loads(Path(f"round{here}.request.json").read_text())
    assert asked["between"] is True
    one = len(Path(f"{SITES[0]}.round{here}.reply.json").read_text())
    assert len(Path("state.json").read_text()) < len(SITES) * one


@pytest.mark.parametrize("name", [SITES[0], SITES[4], NEW])
def test_a_personal_model_beats_the_common_one_on_later_rows(here, name):
    report = personal(name)
    assert report["converged"] and set(report["moved"]) >= {"expert intercepts"}
    likelihood = report["log_likelihood"]
    assert likelihood["personal"] > likelihood["common"]
    assert log_likelihood(f"{name}.mine.json", name) > log_likelihood("last.json", name) + 0.01
    assert load_features(f"{name}.mine.json") == load_features("last.json")
    about = told("inspect", f"{name}.mine.json")["about"]
    assert (about["made by"], about["site"]) == ("otmoe personalise", name)
    fine("predict", f"{name}.mine.json", f"{name}.test.parquet", "-o", "predictions.parquet")
    assert pq.read_table("predictions.parquet").num_rows == 2000
    assert leftovers(Path()) == []


def test_it_is_the_most_probable_model_of_the_sites_rows(here):
    name = SITES[1]
    personal(name, "--restrict", "intercepts")
    rows = pq.read_table(f"{name}.parquet")
    X = np.column_stack([rows.column("x0"), rows.column("x1")])
    prior = load_between("last.json").prior.restricted("intercepts")
    fit = fit_with_prior(Rows(X, rows.column("y").to_numpy()), prior)
    found = load_model(f"{name}.mine.json")
    assert_allclose(found.to_vector(), fit.model.to_vector(), rtol=1e-12)
    centre = prior.scaling.from_user(prior.centre)
    slopes = prior.scaling.from_user(found).experts.coef[:, 1:]
    assert_allclose(slopes, centre.experts.coef[:, 1:], rtol=1e-9)


def test_the_rows_of_a_site_may_lie_among_those_of_others(here):
    pq.write_table(pa.concat_tables(pq.read_table(f"{n}.parquet") for n in SITES), "all.parquet")
    out = ["-o", "mine.json", "--force"]
    among = ["personalise", "last.json", "all.parquet", *TARGET, "--site-column", "city", *out]
    fine(*among, "--site", SITES[2])
    personal(SITES[2])
    there = load_model(f"{SITES[2]}.mine.json").to_vector()
    assert_allclose(load_model("mine.json").to_vector(), there, rtol=1e-12)
    fails(*among, "--site", "Nice", code="site_unknown", site="Nice")
    result = call(*among)
    assert result.exit_code == 2 and Error["shell_site_of_column".upper()].value in result.output


def test_groups_of_a_run_are_those_of_its_personal_models(here):
    parts = [
        pq.read_table(f"{n}.parquet").append_column("day", pa.array(np.arange(300) // 3))
        for n in SITES
    ]
    pq.write_table(pa.concat_tables(parts), "days.parquet")
    asked = ["run", "days.parquet", *TARGET, "--site-column", "city", "--experts", "1"]
    asked += ["--columns", "x0,x1", "-o", "days.json", "--force"]
    fine(*asked, "--personal", "auto", "--groups", "day")
    found = load_between("days.json")
    table = pa.concat_tables(parts)
    shards = shards_from(table, target="y", site_column="city", groups="day", features=["x0", "x1"])
    est = DistributedMoERegressor(1, personal="auto", random_state=0)
    est.fit_shards(shards, groups="day")
    assert found.prior.design_effect == pytest.approx(est.between_.prior.design_effect, rel=1e-6)
    assert found.prior.tau == pytest.approx(est.between_.prior.tau, rel=1e-3, abs=1e-6)
    result = call(*asked, "--groups", "day")
    assert result.exit_code == 2
    assert Error["shell_groups_of_personal".upper()].value in " ".join(result.output.split())


def test_a_site_that_does_not_compute_has_the_servers_version(here):
    name = SITES[3]
    model = load_between("last.json").model_of(name)
    save_model(model, "theirs.json", features=load_features("last.json"))
    one = log_likelihood("last.json", name, "--site", name)
    assert one == log_likelihood("theirs.json", name) > log_likelihood("last.json", name)
    data = [f"{name}.test.parquet", "--force", "-o"]
    fine("predict", "last.json", *data, "one.parquet", "--site", name)
    fine("predict", "theirs.json", *data, "two.parquet")
    assert pq.read_table("one.parquet") == pq.read_table("two.parquet")
    data = [f"{name}.test.parquet", *TARGET, "--site", NEW]
    fails("evaluate", "last.json", *data, code="site_unknown", site=NEW)
    fails("evaluate", "model.json", *data, code="shell_no_prior")


def test_inspect_explains_it(here):
    words = " ".join(fine("inspect", f"round{here}.request.json").stdout.split())
    assert "the scatter too, for sandwich standard errors and to estimate how sites differ" in words
    assert told("inspect", f"round{here}.request.json")["between"] is True
    assert told("inspect", "state.json")["between"] == "auto"
    words = fine("inspect", f"{SITES[0]}.round{here}.reply.json").stdout
    assert "Its scatter B has 66 numbers" in words and "differences between sites" in words
    words = fine("inspect", "last.json").stdout
    for part in ("How 6 sites with 1,800 rows differ", "90 % interval", "expert intercepts", "I²"):
        assert part in words
    report = told("inspect", "last.json")
    assert [s["block"] for s in report["between"]["spreads"]][2] == "expert intercepts"
    assert len(report["between"]["by_site"]) == 6
    assert report["bytes"] == sum(part["bytes"] for part in report["parts"])
    assert "how sites differ" in {part["name"] for part in report["parts"]}


def test_the_prior_can_go_to_sites_without_the_names_of_others(here):
    fine(*STEP, f"*.round{here}.reply.json", "-o", "bare.json", "--model-only")
    assert SITES[3] not in json.dumps(json.loads(Path("bare.json").read_text())["between"])
    out = ["--site", NEW, "-o", "mine.json"]
    fine("personalise", "bare.json", f"{NEW}.parquet", *TARGET, *out)
    personal(NEW)
    there = load_model(f"{NEW}.mine.json").to_vector()
    assert_array_equal(load_model("mine.json").to_vector(), there)


# -- refusals --------------------------------------------------------------------------------------


def test_a_site_without_a_scatter_is_named_and_the_model_is_written(here):
    answer(Path(), SITES[2], here, "--missing", "drop")
    before = RefineState.load("state.json")
    replies = [RefineReply.load(f"{name}.round{here}.reply.json") for name in SITES]
    after = step(before, replies)
    refused("no_spread", sites=SITES[2]).by(differences, before, after, replies)
    found = fine(*STEP, f"*.round{here}.reply.json", "-o", "again.json")
    assert "will not say how sites differ" in found.stderr and SITES[2] in found.stderr
    assert load_between("again.json") is None
    assert_allclose(load_model("again.json").to_vector(), load_model("last.json").to_vector())
    assert RefineState.load("state.json").done


def test_one_site_alone_says_nothing_about_differences(here):
    alone = [f"{SITES[0]}.round{here}.reply.json", "--allow-missing", "-o", "again.json"]
    before = RefineState.load("state.json")
    reply = RefineReply.load(alone[0])
    after = step(before, [reply], allow_missing=True)
    refused("one_site_alone").by(differences, before, after, [reply])


def test_a_step_that_was_taken_back_leaves_nothing_to_say(here):
    before = RefineState.load("state.json")
    replies = [RefineReply.load(f"{name}.round{here}.reply.json") for name in SITES]
    after = step(before, replies)
    back = replace(after, refinement=replace(after.refinement, kept=False))
    refused("step_back_no_spread").by(differences, before, back, replies)
    rough = replace(after, refinement=replace(after.refinement, decrement=1.0))
    found = differences(before, rough, replies)
    assert found.warnings[-1].code == Warn.BETWEEN_NOT_AT_MAXIMUM.code
    assert differences(before, replace(after, between=None), replies) is None


def test_replies_from_which_nothing_follows_are_named(here):
    before = RefineState.load("state.json")
    replies = [RefineReply.load(f"{name}.round{here}.reply.json") for name in SITES]
    after = step(before, replies)
    odd = replace(replies[0].content.information, score=np.full(11, np.nan))
    broken = replace(replies[0], content=replace(replies[0].content, information=odd), checked=True)
    refused("no_differences").by(differences, before, after, [broken, *replies[1:]])


def test_what_cannot_be_personalised_is_refused(here):
    out = ["-o", "mine.json", "--site", NEW]
    rows = [f"{NEW}.parquet", *TARGET]
    line = fails("personalise", "model.json", *rows, *out, code="shell_no_prior")
    assert line.startswith("error: model.json: ") and "refine start --between" in line
    fails("personalise", f"{SITES[0]}.moe.json", *rows, *out, code="shell_no_prior")
    gaps = {"y": [None, 1.0], "x0": [1.0, None], "x1": [0.0, 1.0]}
    pq.write_table(pa.table(gaps), "gaps.parquet")
    data = ["gaps.parquet", *TARGET, *out, "--missing", "drop"]
    assert NEW in fails("personalise", "last.json", *data, code="no_rows")
    weights = pq.read_table(f"{NEW}.parquet").append_column("w", pa.array(np.zeros(40)))
    pq.write_table(weights, "weights.parquet")
    data = ["weights.parquet", *TARGET, *out, "--weight", "w"]
    assert NEW in fails("personalise", "last.json", *data, code="rows_without_weight")
    assert not Path("mine.json").exists()
    begun = ["model.json", "*.moe.json", "--state", "s.json", "-o", "r.json", "--between", "slopes"]
    assert call("refine", "start", *begun).exit_code == 2


def test_where_nothing_differs_the_mean_is_the_answer(here):
    between = load_between("last.json")
    refused("prior_wrong", name="slopes").by(replace, between.prior, tau={"slopes": 1.0})
    none = replace(between.prior, tau={})
    spreads = tuple(replace(spread, tau=0.0, low=0.0) for spread in between.spreads)
    same = replace(between, prior=none, spreads=spreads)
    save_model(between.common, "same.json", None, load_features("last.json"), None, same)
    rows = ["same.json", f"{NEW}.parquet", *TARGET, "-o", "mine.json"]
    found = fine("personalise", *rows)
    assert f"warning: {Warn.SHELL_NOT_PERSONAL(restricted='')}" in found.stderr
    centre = between.prior.centre.to_vector()
    assert_allclose(load_model("mine.json").to_vector(), centre, rtol=1e-9, atol=1e-12)
