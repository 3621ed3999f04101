"""Sketches and rows in messages: the same to the last bit, and broken ones refused by name."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from oracles import message, random_model
from refusals import cases, put, refused, refused_document
from sketches import clustered, mixed, same

from otmoe import FeatureSpec, LocalModel, MoEClassifier, MoERegressor, Policy, Sketch, simulate
from otmoe.data.columns import Column
from otmoe.data.shards import RowsShard, ShardError
from otmoe.distributed.task import Task, fit_local

NAMES = ("age", "visits", "ill", "wind=E", "wind=S", "unit")


def sent(rng, names=NAMES, **changes):
    """Return a message with a sketch of every kind of column, and three rows."""
    X = mixed(rng, 300)
    model = replace(random_model(rng, 2, X.shape[1]), feature_names=names)
    known = {"sketch": Sketch.fit(X), "support": X[:3]}
    return message(model, "Lyon", 300.0, **known | changes)


# -- there and back ----------------------------------------------------------------------------


@pytest.mark.parametrize("names", [NAMES, None])
def test_a_sketch_comes_back_the_same(rng, names, tmp_path):
    before = sent(rng, names)
    before.save(tmp_path / "lyon.moe.json")
    after = LocalModel.load(tmp_path / "lyon.moe.json")
    assert same(after.sketch, before.sketch)
    assert after.support.tobytes() == before.support.tobytes()
    assert after.to_json() == before.to_json()
    assert_array_equal(after.sketch.draw(20), before.sketch.draw(20))


def test_units_come_back_the_same(rng):
    spec = FeatureSpec((Column("age", center=40.1, scale=0.3), Column("dose")))
    X = spec.encode({"age": rng.normal(40, 9, 90), "dose": rng.normal(size=90)})
    model = replace(random_model(rng), feature_names=("age", "dose"))
    before = message(model, features=spec, sketch=Sketch.fit(X, features=spec))
    after = LocalModel.from_json(before.to_json())
    assert same(after.sketch, before.sketch) and after.sketch.units == {0: (40.1, 0.3)}


def test_dummies_alone_have_a_sketch_too(rng):
    X = (rng.random((200, 2)) < [0.3, 0.6]).astype(float)
    before = message(random_model(rng), sketch=Sketch.fit(X))
    assert before.sketch.numbers == () and len(before.sketch.weight) == 1
    assert same(LocalModel.from_json(before.to_json()).sketch, before.sketch)


def test_without_them_nothing_is_said(rng):
    document = json.loads(sent(rng, sketch=None, support=None).to_json())
    assert "sketch" not in document and "support" not in document


def test_a_sketch_is_small(rng):
    X = clustered(rng, 4000, 20, 4)
    sketch = Sketch.fit(X)
    assert len(sketch.weight) == 4
    model = random_model(rng, 4, 20)
    bare, full = message(model), message(model, sketch=sketch)
    assert sketch.n_floats == 4 * (1 + 20 + 210)
    assert len(full.to_json()) - len(bare.to_json()) < 22_000


def test_the_text_is_for_people(rng):
    document = json.loads(sent(rng).to_json())["sketch"]
    assert document["numbers"] == ["age", "visits"] and document["whole"] == ["visits"]
    assert [len(row) for row in document["cov"]] == [3] * len(document["weight"])
    cov = sent(np.random.default_rng(20240229)).sketch.cov[0]
    assert document["cov"][0] == [cov[0, 0], cov[0, 1], cov[1, 1]]
    assert [c["features"] for c in document["categories"]] == [["ill"], ["wind=E", "wind=S"]]
    assert document["constant"] == {"unit": 0.1}


# -- broken ones -------------------------------------------------------------------------------

WHERE, PROB = "sketch.categories", "categories.1.prob"
NO_SCALE = {"center": 0.0, "scale": 0.0}
BROKEN = [
    ("weight.0", -0.1, "field_not_positive sketch.weight[0]"),
    ("weight.0", 0.9, "sum_not_one sketch.weight"),
    ("weight", [], "sum_not_one sketch.weight", {"total": 0}),
    ("weight", [1.0], "rows_of_sketch sketch.mean", {"wanted": 1}),
    ("mean.1", [0.0], "length sketch.mean[1]", {"wanted": 2}),
    ("mean.1.0", float("nan"), "field_nan sketch.mean[1][0]", {"value": "NaN"}),
    ("cov.0", [1.0, 0.0], "length sketch.cov[0]", {"wanted": 3}),
    ("cov.0", [1.0, 2.0, 1.0], "not_a_covariance sketch.cov[0]"),
    ("cov.0", [0.0, 0.0, 0.0], "not_a_covariance sketch.cov[0]"),
    ("cov.0", [1e30, 1e30, 1e30], "not_a_covariance sketch.cov[0]"),
    ("numbers", ["age", "dose"], "names_no_feature sketch.numbers", {"name": '"dose"'}),
    ("numbers", ["age", "age"], "named_twice sketch.numbers", {"name": '"age"'}),
    ("numbers", ["age"], "sketch_lacks sketch", {"name": '"visits"'}),
    ("constant", {"age": 1.0, "unit": 0.1}, "named_twice sketch.constant", {"name": '"age"'}),
    ("whole", ["ill"], "names_no_number sketch.whole", {"name": '"ill"'}),
    ("not_negative", ["x"], "names_no_number sketch.not_negative", {"name": '"x"'}),
    ("categories.0.features", ["age"], f"named_twice {WHERE}[0].features", {"name": '"age"'}),
    (f"{PROB}.0", [0.5, 0.5, 0.25], f"sum_not_one {WHERE}[1].prob[0]", {"total": 1.25}),
    (f"{PROB}.0.0", -0.5, f"field_too_small {WHERE}[1].prob[0][0]", {"least": 0}),
    ("categories.1.prob.0", [1.0], "length sketch.categories[1].prob[0]", {"wanted": 3}),
    (PROB, [[1.0, 0.0, 0.0]], f"rows_of_sketch {WHERE}[1].prob", {"wanted": 2}),
    ("units", {"y": {"center": 0.0, "scale": 1.0}}, "not_a_feature sketch.units.y"),
    ("units", {"age": NO_SCALE}, "field_not_positive sketch.units.age.scale"),
    ("more", 1, "field_unknown sketch.more", {"version": 1}),
]


@pytest.mark.parametrize(("path", "value", "problem", "facts"), cases(BROKEN))
def test_a_broken_sketch_is_refused_by_name(rng, path, value, problem, facts):
    document = sent(rng).document()
    assert len(document["sketch"]["weight"]) == 2
    put(document["sketch"], path, value)
    refused_document(LocalModel, document, "lyon.moe.json", problem, facts)


ROWS = [
    ([], "support_rows support", {"most": 10000}),
    ([[1.0] * 6] * 10_001, "support_rows support", {"most": 10000}),
    ([[1.0] * 6, [1.0] * 5], "length_of_features support[1]", {"wanted": 6}),
    ([[1.0] * 5 + ["N"]], "field_number support[0][5]"),
    ([[1.0] * 5 + [float("inf")]], "field_infinite support[0][5]"),
]


@pytest.mark.parametrize(("rows", "problem", "facts"), cases(ROWS))
def test_broken_rows_are_refused_by_name(rng, rows, problem, facts):
    document = put(sent(rng).document(), "support", rows)
    refused_document(LocalModel, document, "message", problem, facts)


def test_a_sketch_of_other_features_does_not_leave(rng):
    X = rng.normal(size=(50, 3))
    with refused("length_of_features support[0]", length=3, wanted=2):
        message(random_model(rng), support=X[:5])
    with refused("sketch_of_other_features", features=3, wanted=2):
        message(random_model(rng), sketch=Sketch.fit(X))


def test_weights_that_are_rounded_are_taken_for_what_they_mean(rng):
    document = json.loads(sent(rng).to_json())
    rounded = [round(w, 7) for w in document["sketch"]["weight"]]
    document["sketch"]["weight"] = [w * (1 + 5e-7) for w in rounded]
    after = LocalModel.from_json(json.dumps(document)).sketch
    X = mixed(rng, 300)
    assert np.all(np.isfinite(after.draw(100)))
    before = sent(np.random.default_rng(20240229)).sketch
    assert np.abs(after.log_density(X) - before.log_density(X)).max() < 1e-5


# -- made by those who fit ---------------------------------------------------------------------


@pytest.fixture
def data():
    return simulate(400, 2, 3, random_state=0)


OFF = Policy.off()


def test_an_estimator_sends_what_it_is_asked_for(data):
    est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    bare = est.to_message("Lyon")
    assert bare.sketch is None and bare.support is None
    full = est.to_message("Lyon", data.X, sketch=True, share=7, policy=OFF)
    assert same(full.sketch, est.to_message("Lyon", data.X, sketch=True, policy=OFF).sketch)
    assert full.support.shape == (7, 3)
    assert {tuple(row) for row in full.support} <= {tuple(row) for row in data.X}
    assert len({tuple(row) for row in full.support}) == 7
    assert est.to_message("Lyon", data.X, share=1000, policy=OFF).support.shape == (400, 3)
    assert len(full.sketch.weight) == 2
    assert len(est.to_message("Lyon", data.X, sketch=1).sketch.weight) == 1
    other = est.to_message("Lyon", data.X, share=7, random_state=1, policy=OFF)
    assert not np.array_equal(other.support, full.support)


def test_frames_and_classes_have_sketches_too(data):
    frame = pd.DataFrame(data.X, columns=["a", "b", "c"])
    est = MoEClassifier(2, random_state=0, alpha=1.0).fit(frame, data.y > np.median(data.y))
    full = est.to_message("Lyon", frame, sketch=True, share=3, policy=OFF)
    assert same(full.sketch, Sketch.fit(data.X)) and full.support.shape == (3, 3)
    with pytest.raises(ValueError, match="feature names"):
        est.to_message("Lyon", frame[["b", "a", "c"]], sketch=True)


def test_weights_of_the_fit_are_those_of_the_sketch(data):
    weight = 1.0 + (data.X[:, 0] > 0)
    est = MoERegressor(2, random_state=0).fit(data.X, data.y, sample_weight=weight)
    full = est.to_message("Lyon", data.X, sketch=True, sample_weight=weight, policy=OFF)
    mean = np.average(data.X, axis=0, weights=weight)
    np.testing.assert_allclose(full.sketch.moments[0], mean, rtol=1e-10)


HALF = {"name": "n_components", "value": 2.5}


@pytest.mark.parametrize(
    ("kwargs", "code", "facts"),
    [
        ({"sketch": True}, "x_missing", {}),
        ({"share": 5}, "x_missing", {}),
        ({"X": np.zeros((400, 3)), "sketch": 2.5}, "not_whole", HALF),
        ({"X": np.zeros((20, 3)), "sketch": True}, "other_rows", {"rows": 20, "fitted": 400}),
        ({"X": np.zeros((20, 3)), "share": -1}, "share_wrong", {"value": -1, "most": 10000}),
        ({"X": np.zeros((20, 3)), "share": 20_000}, "share_wrong", {"value": 20_000}),
        ({"X": np.zeros((20, 3)), "share": 0.5}, "share_wrong", {"value": 0.5}),
    ],
)
def test_a_mistake_is_named(data, kwargs, code, facts):
    est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    refused(code, ValueError, **facts).by(est.to_message, "Lyon", **kwargs)
    with pytest.raises(ValueError, match="2 features"):
        est.to_message("Lyon", np.zeros((20, 2)), sketch=True)


def test_a_task_asks_for_a_sketch_and_rows(data):
    shard = RowsShard("Lyon", data.X, data.y)
    task = Task(shard, 3, 2, options={"n_init": 2})
    bare = fit_local(task).message
    assert bare.sketch is None and bare.support is None
    full = fit_local(replace(task, sketch=True, share=5)).message
    assert full.support.shape == (5, 3) and full.sketch.n_features == 3
    assert_array_equal(full.model.to_vector(), bare.model.to_vector())
    again = fit_local(replace(task, sketch=True, share=5)).message
    assert again.to_json() == full.to_json()
    few = replace(task, shard=RowsShard("Nice", data.X[:8], data.y[:8]), n_experts=1, sketch=True)
    refused("sketch_rows", ShardError, least=10, where="Nice").by(fit_local, few)
