"""Frames with words, offsets in cross-validation, and estimators where models are taken."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline

from otmoe import (
    DistributedMoEClassifier,
    DistributedMoERegressor,
    FeatureEncoder,
    FeatureSpec,
    MoEClassifier,
    MoERegressor,
    Policy,
    aggregate,
    load_features,
    load_model,
    report,
    save_model,
    select_n_experts,
)
from otmoe.data.shards import shards_from
from otmoe.text.notices import OtmoeWarning

RNG = np.random.default_rng(0)
N = 400
FRAME = pd.DataFrame(
    {
        "dose": RNG.standard_normal(N),
        "sex": RNG.choice(["f", "m"], N),
        "ward": pd.Categorical(RNG.choice(list("uvw"), N), categories=list("wuv")),
        "smoker": RNG.random(N) < 0.3,
    }
)
Y = FRAME["dose"] + (FRAME["sex"] == "m") + 0.5 * RNG.standard_normal(N)
QUICK = {"n_init": 1, "random_state": 0}


@pytest.mark.parametrize("make", [MoERegressor, DistributedMoERegressor])
def test_a_frame_with_words_is_encoded_and_remembered(make):
    est = make(1, **QUICK).fit(FRAME, Y)
    spec = FeatureSpec.from_sample(FRAME)
    assert est.features_ == spec
    assert tuple(est.feature_names_in_) == spec.feature_names == est.model_.feature_names
    by_hand = make(1, **QUICK).fit(spec.encode(FRAME), Y)
    assert_array_equal(est.model_.to_vector(), by_hand.model_.to_vector())
    assert_array_equal(est.predict(FRAME), by_hand.predict(spec.encode(FRAME)))
    # in another order, with another column, with levels that do not occur, or encoded already
    odd = FRAME.assign(more=1)[["ward", "more", "smoker", "sex", "dose"]]
    women = FRAME["sex"] == "f"
    assert_allclose(est.predict(odd[women]), est.predict(FRAME)[women], rtol=1e-12)
    assert_array_equal(est.predict(FeatureEncoder(spec).fit_transform(FRAME)), est.predict(FRAME))


def test_a_frame_of_numbers_is_left_alone_and_forgets_the_words_before():
    est = MoERegressor(1, **QUICK).fit(FRAME, Y)
    est.fit(FRAME[["dose", "smoker"]], Y)
    assert not hasattr(est, "features_") and tuple(est.feature_names_in_) == ("dose", "smoker")


def test_columns_that_are_called_as_their_features_are_encoded():
    numbers = FRAME[["dose", "smoker"]].assign(dose=FRAME["dose"] * 5 + 40)
    spec = FeatureSpec.from_sample(numbers, center=True)
    (shard,) = shards_from((numbers, Y.to_numpy()), features=spec)
    est = DistributedMoERegressor(1, **QUICK).fit_shards([shard])
    assert tuple(numbers) == spec.feature_names
    assert_array_equal(est.predict(numbers), est.model_.predict(spec.encode(numbers)))


def test_the_gate_may_see_a_category_by_its_name():
    est = MoERegressor(2, gate_features=["ward"], **QUICK).fit(FRAME, Y)
    names = est.model_.terms
    assert [names[j] for j in est.model_.gate.columns] == ["intercept", "ward=v", "ward=w"]


def test_what_a_frame_may_not_hold_is_named():
    dates = FRAME.assign(day=pd.Timestamp("2024-05-01"))
    refused("no_feature", column="day").by(MoERegressor(1).fit, dates, Y)
    ids = FRAME.assign(name=[f"p{i}" for i in range(N)])
    refused("many_levels", column="name").by(MoERegressor(1).fit, ids, Y)
    gaps = FRAME.assign(sex=FRAME["sex"].where(FRAME.index > 4))
    refused("column_missing", columns="5 of column 'sex'").by(MoERegressor(1).fit, gaps, Y)
    est = MoERegressor(1, **QUICK).fit(FRAME, Y)
    refused("column_levels", column="sex").by(est.predict, FRAME.assign(sex="x"))


@pytest.mark.parametrize("make", [MoERegressor, DistributedMoERegressor])
def test_text_is_no_number(make):
    refused("target_is_text").by(make(1).fit, FRAME[["dose"]], FRAME["sex"])
    est = make(1, **QUICK).fit(FRAME[["dose"]], Y.astype(object))
    same = make(1, **QUICK).fit(FRAME[["dose"]], Y)
    assert_array_equal(est.model_.to_vector(), same.model_.to_vector())


# -- pipelines -----------------------------------------------------------------------------------


def test_a_specification_works_in_pipelines():
    spec = FeatureSpec.from_sample(FRAME)
    for encoder in (FeatureEncoder(), FeatureEncoder(spec), clone(FeatureEncoder(spec))):
        frame = encoder.fit_transform(FRAME[::-1])
        assert encoder.spec_ == spec and frame.index.equals(FRAME.index[::-1])
        assert list(frame.columns) == list(encoder.get_feature_names_out())
        assert_array_equal(frame, spec.encode(FRAME)[::-1])
    pipe = make_pipeline(FeatureEncoder(spec), LinearRegression())
    scores = cross_val_score(pipe, FRAME, Y, cv=3)
    assert scores.min() > 0.5
    mine = make_pipeline(FeatureEncoder(spec), MoERegressor(1, alpha=0, **QUICK))
    assert_allclose(cross_val_score(mine, FRAME, Y, cv=3), scores, rtol=1e-6)
    assert tuple(mine.fit(FRAME, Y)[-1].feature_names_in_) == spec.feature_names
    refused("no_column", column="sex").by(FeatureEncoder(spec).fit, FRAME.drop(columns="sex"))


# -- offsets -------------------------------------------------------------------------------------

X = RNG.standard_normal((N, 2))
EXPOSURE = RNG.uniform(0.1, 10, N)
COUNTS = RNG.poisson(EXPOSURE * np.exp(0.5 + 0.3 * X[:, 0]))
TRUE = (RNG.random(N) < 1 / (1 + np.exp(-2 * np.log(EXPOSURE) - X[:, 1]))).astype(int)


@pytest.mark.parametrize(
    ("est", "y"),
    [
        (MoERegressor(1, family="poisson", **QUICK), COUNTS),
        (DistributedMoERegressor(1, family="poisson", n_shards=2, **QUICK), COUNTS),
        (MoEClassifier(1, **QUICK), TRUE),
        (DistributedMoEClassifier(1, n_shards=2, **QUICK), TRUE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_cross_validation_takes_offsets_along(est, y):
    offset = np.log(EXPOSURE)
    with config_context(enable_metadata_routing=True):
        asked = clone(est).set_fit_request(offset=True).set_score_request(offset=True)
        found = cross_validate(asked, X, y, cv=3, params={"offset": offset}, return_indices=True)
    pairs = zip(found["indices"]["train"], found["indices"]["test"], strict=True)
    for score, (train, test) in zip(found["test_score"], pairs, strict=True):
        fitted = clone(est).fit(X[train], y[train], offset=offset[train])
        assert score == fitted.score(X[test], y[test], offset=offset[test])
        with pytest.warns(OtmoeWarning, match="taken as 0"):
            assert score > fitted.score(X[test], y[test])  # the exposure says most of it


def test_a_prediction_without_the_offset_of_the_fit_warns():
    offset = np.log(EXPOSURE)
    counts = MoERegressor(1, family="poisson", **QUICK)
    classes = MoEClassifier(1, **QUICK)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "time": offset, "y": COUNTS})
    shards = shards_from(table, target="y", offset="time", cut=2)
    apart = DistributedMoERegressor(1, family="poisson", **QUICK).fit_shards(shards)
    for est, y, method in (
        (counts, COUNTS, "predict"),
        (counts, COUNTS, "predict_interval"),
        (counts, COUNTS, "sample"),
        (classes, TRUE, "predict"),
        (classes, TRUE, "predict_proba"),
    ):
        call = getattr(est.fit(X, y, offset=offset), method)
        with pytest.warns(OtmoeWarning, match="fitted with an offset, which is taken as 0") as told:
            call(X)
        assert [w.message.codes for w in told] == [("offset_unsaid",)]
    with pytest.warns(OtmoeWarning, match="taken as 0"):
        apart.predict(table[["a", "b"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts.fit(X, COUNTS, offset=offset).predict(X, offset)
        classes.fit(X, TRUE, offset=offset).predict(X, offset)
        apart.fit_shards(shards).predict(table[["a", "b"]], offset)
        counts.fit(X, COUNTS).predict(X)


def test_offsets_of_two_classes_are_part_of_the_log_odds():
    offset = np.log(EXPOSURE)
    est = MoEClassifier(1, alpha=0, expert_alpha=0, **QUICK).fit(X, TRUE, offset=offset)
    b, *slopes = est.model_.experts.coef[0]
    wanted = 1 / (1 + np.exp(-(b + X @ slopes + offset)))
    assert_allclose(est.predict_proba(X, offset)[:, 1], wanted, rtol=1e-9)
    assert_array_equal(est.predict(X, offset), (wanted > 0.5).astype(int))
    score = X.T @ (TRUE - wanted)  # zero at the maximum with this offset
    assert_allclose(score, 0, atol=1e-4)
    three = RNG.integers(0, 3, N)
    refused("no_offset").by(MoEClassifier(1, **QUICK).fit, X, three, offset=offset)


# -- where models are taken ----------------------------------------------------------------------


@pytest.mark.usefixtures("own_folder")
def test_estimators_are_saved_and_reported():
    est = MoERegressor(1, **QUICK).fit(FRAME, Y)
    path = save_model(est, "model.json")
    assert path == Path("model.json") and load_features(path) == est.features_
    assert_array_equal(load_model(path).to_vector(), est.model_.to_vector())
    refused("no_model_to_save", kind="MoERegressor").by(save_model, MoERegressor(), "m.json")
    assert report(est, "page.html") == Path("page.html")
    assert Path("page.html").read_text() == report(est)
    many = DistributedMoERegressor(1, n_shards=2, **QUICK).fit(FRAME, Y)
    assert "shard 1" in report(many)  # what each shard contributed


def test_a_message_has_grams_where_they_are_asked_for():
    sent = []
    for name, rows in (("a", slice(0, 200)), ("b", slice(200, N))):
        est = MoERegressor(2, **QUICK).fit(X[rows], Y[rows])
        how = {"grams": True, "sketch": True, "policy": Policy.off()}  # which rounds nothing
        message = est.to_message(name, X[rows], y=Y[rows], **how)
        assert message.grams is not None and message.sketch is not None
        assert est.to_message(name).grams is None
        sent.append(message)
    merged = aggregate(sent, X, method="gram")
    assert merged.method == "gram"
    assert repr(merged).startswith("Aggregation(") and len(repr(merged)) < 80
    refused("y_missing").by(est.to_message, "a", X[rows], grams=True)
    refused("x_missing").by(est.to_message, "a", grams=True)


def test_a_selection_shows_itself_in_notebooks():
    found = select_n_experts(X[:, :1], X[:, 0] + 0.1 * Y, n_experts=[1, 2])
    page = found._repr_html_()
    assert page.count("<tr>") == 3 and f"{found.n_experts} expert" in page


# -- what travels --------------------------------------------------------------------------------


def test_support_rows_and_refine_rounds_are_counted():
    est = DistributedMoERegressor(1, n_shards=2, refine=2, **QUICK).fit(X, Y)
    said, P = est.aggregation_.communication, est.model_.n_parameters
    assert said.support_bytes == 8 * N * 2  # shards this small bring back all their rows
    rounds = est.aggregation_.refinement.rounds
    assert said.refine_bytes == 8 * rounds * 2 * (2 * P + 1 + P * (P + 1) // 2)
    assert said.bytes == said.message_bytes + said.support_bytes + said.refine_bytes
