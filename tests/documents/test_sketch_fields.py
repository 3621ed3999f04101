"""Sketches and rows in messages: the same to the last bit, and broken ones refused by name."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from oracles import message, random_model
from sketches import clustered, mixed, same

from otmoe import FeatureSpec, LocalModel, MoEClassifier, MoERegressor, Sketch, simulate
from otmoe.data.columns import Column
from otmoe.data.shards import ShardError
from otmoe.distributed.task import RowsShard, Task, fit_local
from otmoe.documents.message import MessageError

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
    before = message(
        replace(random_model(rng), feature_names=("age", "dose")),
        features=spec,
        sketch=Sketch.fit(X, features=spec),
    )
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


BROKEN = [
    (("weight", 0), -0.1, "sketch.weight[0]` is -0.1; give a number above 0"),
    (("weight", 0), 0.9, "sketch.weight` adds up to"),
    (("weight",), [], "sketch.weight` adds up to 0; give probabilities that add up to 1"),
    (("weight",), [1.0], "sketch.mean` has 2 rows; give 1, one for each entry of `sketch.weight"),
    (("mean", 1), [0.0], "sketch.mean[1]` has 1 entries; give 2"),
    (("mean", 1, 0), float("nan"), "sketch.mean[1][0]` is NaN; give a finite number"),
    (("cov", 0), [1.0, 0.0], "sketch.cov[0]` has 2 entries; give 3"),
    (("cov", 0), [1.0, 2.0, 1.0], "sketch.cov[0]` is not positive definite; give the upper"),
    (("cov", 0), [0.0, 0.0, 0.0], "sketch.cov[0]` is not positive definite"),
    (("cov", 0), [1e30, 1e30, 1e30], "sketch.cov[0]` is not positive definite"),
    (("numbers",), ["age", "dose"], 'sketch.numbers` names "dose", which is no feature'),
    (("numbers",), ["age", "age"], 'sketch.numbers` names "age" a second time'),
    (("numbers",), ["age"], 'sketch` lacks the feature "visits"; add it to its numbers'),
    (("constant",), {"age": 1.0, "unit": 0.1}, 'sketch.constant` names "age" a second time'),
    (("whole",), ["ill"], 'sketch.whole` names "ill", which is no number'),
    (("not_negative",), ["x"], 'sketch.not_negative` names "x", which is no number'),
    (("categories", 0, "features"), ["age"], 'categories[0].features` names "age" a second time'),
    (("categories", 1, "prob", 0), [0.5, 0.6, 0.1], "categories[1].prob[0]` adds up to 1.2"),
    (
        ("categories", 1, "prob", 0, 0),
        -0.5,
        "categories[1].prob[0][0]` is -0.5; give a number of at least 0",
    ),
    (("categories", 1, "prob", 0), [1.0], "categories[1].prob[0]` has 1 entries; give 3"),
    (("categories", 1, "prob"), [[1.0, 0.0, 0.0]], "categories[1].prob` has 1 rows; give 2"),
    (("units",), {"y": {"center": 0.0, "scale": 1.0}}, "sketch.units.y` is no feature"),
    (("units",), {"age": {"center": 0.0, "scale": 0.0}}, "units.age.scale` is 0.0; give a number"),
    (("more",), 1, "sketch.more` is not a field of schema version 1"),
]


@pytest.mark.parametrize(("path", "value", "sentence"), BROKEN)
def test_a_broken_sketch_is_refused_by_name(rng, path, value, sentence):
    document = json.loads(sent(rng).to_json())
    assert len(document["sketch"]["weight"]) == 2
    place = document["sketch"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(MessageError) as error:
        LocalModel.from_json(json.dumps(document), "lyon.moe.json")
    assert sentence in str(error.value)
    assert str(error.value).startswith("lyon.moe.json: `sketch")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "`support` has 0 rows; give 1 to 10000, or leave it out"),
        ([[1.0] * 6] * 10_001, "`support` has 10001 rows; give 1 to 10000"),
        ([[1.0] * 6, [1.0] * 5], "`support[1]` has 5 entries; give 6, one for each feature"),
        ([[1.0] * 5 + ["N"]], '`support[0][5]` is "N"; give a number'),
        (
            [[1.0] * 5 + [float("inf")]],
            "`support[0][5]` is infinite or too large; give a finite number",
        ),
    ],
)
def test_broken_rows_are_refused_by_name(rng, rows, sentence):
    document = json.loads(sent(rng).to_json()) | {"support": rows}
    with pytest.raises(MessageError) as error:
        LocalModel.from_json(json.dumps(document))
    assert sentence in str(error.value)


def test_a_sketch_of_other_features_does_not_leave(rng):
    X = rng.normal(size=(50, 3))
    with pytest.raises(MessageError, match=r"`support\[0\]` has 3 entries; give 2"):
        message(random_model(rng), support=X[:5])
    with pytest.raises(MessageError, match="the sketch has 3 features, but the model has 2"):
        message(random_model(rng), sketch=Sketch.fit(X))


def test_weights_that_are_rounded_are_taken_for_what_they_mean(rng):
    document = json.loads(sent(rng).to_json())
    rounded = [round(w, 7) for w in document["sketch"]["weight"]]
    document["sketch"]["weight"] = [w * (1 + 5e-7) for w in rounded]
    after = LocalModel.from_json(json.dumps(document)).sketch
    X = mixed(rng, 300)
    assert np.all(np.isfinite(after.draw(100)))
    assert (
        np.abs(
            after.log_density(X) - sent(np.random.default_rng(20240229)).sketch.log_density(X)
        ).max()
        < 1e-5
    )


# -- made by those who fit ---------------------------------------------------------------------


@pytest.fixture
def data():
    return simulate(400, 2, 3, random_state=0)


def test_an_estimator_sends_what_it_is_asked_for(data):
    est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    bare = est.to_message("Lyon")
    assert bare.sketch is None and bare.support is None
    full = est.to_message("Lyon", data.X, sketch=True, share=7)
    assert same(full.sketch, est.to_message("Lyon", data.X, sketch=True).sketch)
    assert full.support.shape == (7, 3)
    assert {tuple(row) for row in full.support} <= {tuple(row) for row in data.X}
    assert len({tuple(row) for row in full.support}) == 7
    assert est.to_message("Lyon", data.X, share=1000).support.shape == (400, 3)
    assert len(full.sketch.weight) == 2
    assert len(est.to_message("Lyon", data.X, sketch=1).sketch.weight) == 1
    other = est.to_message("Lyon", data.X, share=7, random_state=1)
    assert not np.array_equal(other.support, full.support)


def test_frames_and_classes_have_sketches_too(data):
    frame = pd.DataFrame(data.X, columns=["a", "b", "c"])
    est = MoEClassifier(2, random_state=0, alpha=1.0).fit(frame, data.y > np.median(data.y))
    full = est.to_message("Lyon", frame, sketch=True, share=3)
    assert same(full.sketch, Sketch.fit(data.X)) and full.support.shape == (3, 3)
    with pytest.raises(ValueError, match="feature names"):
        est.to_message("Lyon", frame[["b", "a", "c"]], sketch=True)


def test_weights_of_the_fit_are_those_of_the_sketch(data):
    weight = 1.0 + (data.X[:, 0] > 0)
    est = MoERegressor(2, random_state=0).fit(data.X, data.y, sample_weight=weight)
    full = est.to_message("Lyon", data.X, sketch=True, sample_weight=weight)
    mean = np.average(data.X, axis=0, weights=weight)
    np.testing.assert_allclose(full.sketch.moments[0], mean, rtol=1e-10)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"sketch": True}, "X is missing: rows are not kept after fit"),
        ({"share": 5}, "X is missing"),
        ({"X": np.zeros((400, 3)), "sketch": 2.5}, "n_components is 2.5; give a whole number"),
        ({"X": np.zeros((20, 3)), "sketch": True}, "X has 20 rows .* but the fit had 400"),
        ({"X": np.zeros((20, 2)), "sketch": True}, "2 features"),
        ({"X": np.zeros((20, 3)), "share": -1}, "share is -1; give a whole number from 0 to 10000"),
        ({"X": np.zeros((20, 3)), "share": 20_000}, "share is 20000; give"),
        ({"X": np.zeros((20, 3)), "share": 0.5}, "share is 0.5; give"),
    ],
)
def test_a_mistake_is_named(data, kwargs, sentence):
    est = MoERegressor(2, random_state=0).fit(data.X, data.y)
    with pytest.raises(ValueError, match=sentence):
        est.to_message("Lyon", **kwargs)


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
    with pytest.raises(ShardError, match="Nice: X has 8 rows .*, and a sketch needs 10"):
        fit_local(few)
