"""What a site remembers of its answers, and what it refuses because of them."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commandline import fails, fine, told
from numpy.testing import assert_allclose
from refusals import refused

from otmoe import FeatureSpec, LocalModel, simulate
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.federation.policy.border import judged_by_ledger
from otmoe.federation.policy.ledger import NAME, ROWS, Ledger, answer_of, keep, opened, study_of
from otmoe.federation.policy.rowsets import BUCKETS, RowSet
from otmoe.federation.policy.rules import Policy
from otmoe.likelihood.rows import Rows, Scaling

KEY = bytes(32)


@pytest.fixture(scope="module")
def data():
    return simulate(3000, 2, 2, softness=0.5, random_state=0)


def known(X, y, weight=None):
    return RowSet.of(Rows(X, y, weight), KEY)


# -- rows ------------------------------------------------------------------------------------------


def test_the_order_of_rows_does_not_matter_and_their_number_does(data):
    order = np.random.default_rng(0).permutation(3000)
    whole = known(data.X, data.y)
    assert whole.same(known(data.X[order], data.y[order]))
    assert whole.difference(known(data.X[order], data.y[order])) == 0
    assert not whole.same(known(data.X, data.y, np.full(3000, 2.0)))


@pytest.mark.parametrize("gone", [1, 3, 9])
def test_few_rows_are_counted_whichever_they_are(data, gone):
    whole, rng = known(data.X, data.y), np.random.default_rng(gone)
    for _ in range(20):
        some = np.delete(np.arange(3000), rng.choice(3000, gone, replace=False))
        assert 0 < known(data.X[some], data.y[some]).difference(whole) <= gone
        moved = data.y.copy()
        moved[rng.choice(3000, gone, replace=False)] += 1.0
        assert 0 < known(data.X, moved).difference(whole) <= 2 * gone  # one out, one in


def test_many_rows_are_seen_to_be_many(data):
    whole = known(data.X, data.y)
    assert known(data.X[30:], data.y[30:]).difference(whole) > 20
    assert known(data.X[1500:], data.y[1500:]).difference(known(data.X[:1500], data.y[:1500])) > 250
    assert BUCKETS == 256


def test_features_that_are_written_otherwise_hide_no_row(data):
    """A server may ask for other units each time: then y tells that they are the same rows."""
    whole = known(data.X, data.y)
    assert known(data.X[1:] * 7 - 1, data.y[1:]).difference(whole) == 1
    assert known(data.X * 7 - 1, data.y).difference(whole) > 200  # another study of all of them
    y = (data.y > 0).astype(float)  # of classes, their numbers count
    assert known(data.X[1:] * 7, y[1:]).difference(known(data.X, y)) == 1
    assert known(data.X[500:] * 7, y[500:]).difference(known(data.X, y)) > 100


def test_another_key_leads_to_other_sums(data):
    there = RowSet.of(Rows(data.X, data.y), bytes([1] * 32))
    assert np.all(there.all != known(data.X, data.y).all)
    # and no number of a row is in what is kept
    assert not set(there.all.tolist()) & set(data.y.view(np.uint64).tolist())


# -- the file --------------------------------------------------------------------------------------

SPEC = FeatureSpec.of_names(["age", "dose"])


def answered(data, ledger=None):
    ledger = Ledger(KEY) if ledger is None else ledger
    model = replace(data.truth, feature_names=SPEC.feature_names)
    study = study_of("Lyon", "y", SPEC, model)
    rows = known(data.X, data.y)
    ledger = ledger.with_answer(study, answer_of("message", model, SPEC, sums=False), rows)
    reply = replace(answer_of("reply", model, SPEC, Scaling.of(data.X)), digits=0.02)
    return ledger.with_answer(study, reply, rows), study, reply, rows


def test_a_ledger_and_its_file_are_one(data, tmp_path):
    ledger, study, *_ = answered(data)
    path = tmp_path / "ledger.json"
    keep(ledger.asked(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with opened(path) as again:
        assert again.to_json() == ledger.asked().to_json()
        assert [a.kind for a in again.answers(study)] == ["message", "reply"]
        assert len(again.rows) == 1 and again.queries == 1
    assert path.stat().st_size < 20_000
    with opened(tmp_path / "new.json") as new:
        assert new.queries == 0 and len(new.key) == 32 and new.key != KEY


@pytest.mark.parametrize(
    ("place", "value"),
    [("key", "00"), ("key", "xy"), ("rows", []), ("all", "00"), ("target", "zz" * 2048)],
)
def test_a_spoilt_ledger_is_not_believed(data, place, value):
    document = json.loads(answered(data)[0].to_json())
    (document if place in document else document["rows"][0])[place] = value
    refused("ledger_spoilt").by(Ledger.from_json, json.dumps(document))


def test_a_ledger_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "ledger.json"
    path.mkdir()
    refused("ledger_unwritable", path=path).by(keep, Ledger(), path)
    with refused("no_folder_to_write"), opened(tmp_path / "nowhere" / "ledger.json"):
        pass


def count(path):
    with opened(path) as ledger:
        keep(ledger.asked(), path)


def test_questions_at_the_same_time_are_all_counted(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, [tmp_path / "ledger.json"] * 40))
    with opened(tmp_path / "ledger.json") as ledger:
        assert ledger.queries == 40
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]


# -- rules -----------------------------------------------------------------------------------------


def broken(ledger, study, answer, known, **rules):
    found = judged_by_ledger(ledger, Policy(**rules), study, answer, known)
    return [(m.where, m.figure) for m in found if m.outcome == "refuse"]


def test_the_same_answer_again_tells_nothing_and_costs_nothing(data):
    ledger, study, reply, rows = answered(data)
    assert ledger.with_answer(study, reply, rows) is ledger
    assert judged_by_ledger(ledger, Policy(replies=1), study, reply, rows) == []


def test_answers_are_counted_by_kind_and_study(data):
    ledger, study, reply, rows = answered(data)
    other = answer_of("reply", reply.model, SPEC, Scaling.of(2 * data.X))
    assert broken(ledger, study, other, rows) == []
    assert broken(ledger, study, other, rows, replies=1) == [("replies of this study", 2)]
    assert broken(ledger, study, other, rows, replies=1, messages=None) != []
    assert broken(ledger, "another", other, rows, replies=1) == []


def test_a_study_is_its_site_its_target_and_its_columns_however_they_are_coded(data):
    model = replace(data.truth, feature_names=SPEC.feature_names)
    study = study_of("Lyon", "y", SPEC, model)
    columns = tuple(replace(c, center=3.0) for c in SPEC.columns[::-1])
    assert study == study_of("Lyon", "y", FeatureSpec(columns), model)
    assert study == study_of("Lyon", "y", None, model)
    others = {study_of("Brest", "y", SPEC, model), study_of("Lyon", "z", SPEC, model)}
    assert len(others | {study}) == 3


def test_rows_that_differ_by_few_are_refused_in_every_study(data):
    ledger, _, reply, _ = answered(data)
    fewer = known(data.X[1:], data.y[1:])
    assert broken(ledger, "another", reply, fewer) == [(ROWS, 1)]
    assert broken(ledger, "another", reply, fewer, rows=None) == []
    assert broken(ledger, "another", reply, known(data.X[100:], data.y[100:])) == []


# -- by files --------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path, own_folder, data):
    frame = pd.DataFrame(data.X[:1000], columns=["age", "dose"]).assign(y=data.y[:1000])
    frame.to_parquet("lyon.parquet")
    SPEC.save("features.json")
    (tmp_path / "off.json").write_text(Policy.off().model_dump_json())
    return frame


FIT = "fit lyon.parquet --target y --experts 1 --site Lyon --features features.json".split()
ANSWER = "refine answer request.json lyon.parquet --target y --site Lyon".split()


def ask(model):
    RefineRequest(1, model, Scaling(np.zeros(2), np.ones(2)), SPEC).save("request.json")


def test_two_replies_that_differ_by_one_row_are_that_row(site):
    fine(*FIT, "-o", "lyon.moe.json")
    model = LocalModel.load("lyon.moe.json").model
    ask(model)
    free = ["--policy", "off.json"]
    fine(*ANSWER, *free, "-o", "all.json")
    site[1:].to_parquet("lyon.parquet")
    fine(*ANSWER, *free, "-o", "fewer.json")
    one, two = (RefineReply.load(f).content.information for f in ("all.json", "fewer.json"))
    x = (one.matrix - two.matrix)[0, 1:3] / (one.matrix - two.matrix)[0, 0]
    assert_allclose(x, site[["age", "dose"]].iloc[0], rtol=1e-6)
    mean = model.experts.coef[0] @ np.append(1.0, x)
    y = mean + (one.score - two.score)[0] * model.experts.var[0]
    assert_allclose(y, site.y.iloc[0], rtol=1e-6)

    site.to_parquet("lyon.parquet")
    found = told(*ANSWER, "-o", "rounded.json")
    assert found["ledger"].endswith(NAME) and found["verdict"] == "send"
    site[1:].to_parquet("lyon.parquet")
    line = fails(*ANSWER, "-o", "again.json", code="policy_refuses", rules=["ledger"])
    assert "rule ledger: the rows differ from those of an earlier answer by 1," in line
    fine(*ANSWER, "-o", "again.json", "--override", "ledger", "--reason", "a mistake in row 0")
    assert RefineReply.load("again.json").overrides == {"ledger": "a mistake in row 0"}


def test_two_messages_that_differ_by_one_row_are_refused_unless_the_first_is_written_over(site):
    fine(*FIT, "-o", "lyon.moe.json")
    site[1:].to_parquet("lyon.parquet")
    fails(*FIT, "-o", "second.moe.json", code="policy_refuses", rules=["ledger"])
    fine(*FIT, "-o", "lyon.moe.json", "--force")
    fine(*FIT, "-o", "second.moe.json")  # the same message in another place
    site.to_parquet("lyon.parquet")
    fails(*FIT, "-o", "lyon.moe.json", "--force", code="policy_refuses", rules=["ledger"])


def test_too_many_messages_are_refused(site):
    def fit(experts):
        return *FIT[:5], experts, *FIT[6:], "--n-init", 1, "-o", f"{experts}.json"

    (rules := Path("two.json")).write_text('{"messages": 2}')
    for experts in (1, 2, 1):
        fine(*fit(experts), "--force", "--policy", rules, "--ledger", "book")
    line = fails(*fit(3), "--policy", rules, "--ledger", "book", code="policy_refuses")
    assert "rule ledger: it would be number 3 of the messages of this study" in line
    fine(*fit(3), "--policy", rules, "--ledger", "another book")
