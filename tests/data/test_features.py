import json
import os
import pickle
import re
from decimal import Decimal
from pathlib import Path

import cloudpickle
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_model

from otmoe import FeatureSpec, LocalModel, load_features, load_model, save_model
from otmoe.data.columns import Column
from otmoe.documents.message import MessageError

WIND = Column("wind", "category", ("N", "NE", "S"), "S")
SPEC = FeatureSpec((Column("age", center=40.0, scale=10.0), WIND, Column("dose")))
ROWS = {
    "wind": ["NE", "S", "N", "S"],
    "dose": [1, 2, 3, 4],
    "remark": [[1], [2], [], [3]],  # no feature, and no number
    "age": [50.0, 35.0, 40.0, 60.0],
}
X = np.array([[1, 0, 1, 1], [-0.5, 0, 0, 2], [0, 1, 0, 3], [2, 0, 0, 4]], float)

FORMS = {
    "mapping": lambda rows: rows,
    "mapping of arrays": lambda rows: {
        name: np.array(values) for name, values in rows.items() if name != "remark"
    },
    "arrow table": pa.table,
    "record batch": lambda rows: pa.table(rows).to_batches()[0],
    "arrow table in chunks": lambda rows: pa.concat_tables(
        [pa.table(rows).slice(0, 3), pa.table(rows).slice(3)]
    ),
    "arrow dictionaries": lambda rows: pa.concat_tables(
        [
            pa.table(rows | {"wind": pa.array(rows["wind"]).dictionary_encode()}).slice(at, 2)
            for at in (0, 2)
        ]
    ),
    "large text": lambda rows: pa.table(rows | {"wind": pa.array(rows["wind"], pa.large_string())}),
    "pandas": lambda rows: pd.DataFrame(rows, index=[(7, "a"), 3, None, 3]),
    "pandas categories": lambda rows: pd.DataFrame(rows).astype({"wind": "category"}),
    "pandas nullable": lambda rows: pd.DataFrame(rows).astype(
        {"age": "Float64", "dose": "Int64", "wind": "string"}
    ),
    "polars": pl.DataFrame,
    "polars categories": lambda rows: pl.DataFrame(rows).cast({"wind": pl.Categorical}),
    "polars enum": lambda rows: pl.DataFrame(rows).cast({"wind": pl.Enum(["S", "N", "NE"])}),
}

# -- encoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_table_is_encoded_alike(form):
    found = SPEC.encode(FORMS[form](ROWS))
    assert_array_equal(found, X, strict=True)
    assert found.flags.c_contiguous
    assert SPEC.feature_names == ("age", "wind=N", "wind=NE", "dose")


def test_dummies_are_those_of_pandas(rng):
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=200),
            "b": rng.choice(["x", "y", "z"], 200),
            "c": rng.integers(0, 5, 200),
            "d": pd.Categorical(rng.choice(["lo", "hi"], 200), categories=["hi", "lo", "mid"]),
        }
    )
    expected = pd.get_dummies(frame, prefix_sep="=", drop_first=True, dtype=float)
    spec = FeatureSpec.from_sample(frame)
    found = pd.DataFrame(spec.encode(frame), columns=spec.feature_names)
    assert set(found) == set(expected)
    assert_array_equal(found[list(expected)], expected)


def test_rows_are_encoded_one_by_one(rng):
    """More rows than one batch, in chunks of any size: row i depends on row i alone."""
    n = 70_000
    rows = {"age": rng.normal(size=n), "dose": rng.integers(0, 9, n)}
    rows["wind"] = rng.choice(["N", "NE", "S"], n)
    table = pa.concat_tables([pa.table(rows).slice(0, 11), pa.table(rows).slice(11)])
    found = SPEC.encode(table)
    some = np.append(rng.integers(0, n, 50), [0, 10, 11, n - 1])
    assert_array_equal(found[some], SPEC.encode({k: v[some] for k, v in rows.items()}))


def test_a_level_that_does_not_occur_keeps_its_column():
    found = SPEC.encode({"age": [40], "wind": ["S"], "dose": [7]})
    assert_array_equal(found, [[0, 0, 0, 7]])
    assert SPEC.encode(pa.table(ROWS).slice(0, 0)).shape == (0, 4)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], [1, 0]),
        (np.array([3, 250], np.uint8), [3, 250]),
        ([2**62 + 1, -1], [2.0**62, -1]),
        ([Decimal("1.25"), Decimal("-3")], [1.25, -3]),
        (np.array([0.5, 2], np.float32), [0.5, 2]),
        (pa.array([5, 7]).dictionary_encode(), [5, 7]),
        (pd.Series([1, 2], dtype="Int8"), [1, 2]),
        (pl.Series([0.5, 1.5]), [0.5, 1.5]),
    ],
)
def test_numbers_of_every_type(values, expected):
    assert_array_equal(FeatureSpec.of_names(["a"]).encode({"a": values})[:, 0], expected)


@pytest.mark.parametrize(
    "values", [[1, 2, 1], np.array([1.0, 2.0, 1.0]), ["1", "2", "1"], pd.Categorical([1, 2, 1])]
)
def test_codes_can_be_categories(values):
    spec = FeatureSpec([Column("ward", "category", ["1", "2"])])
    assert_array_equal(spec.encode({"ward": values}), [[0], [1], [0]])


def test_truth_can_be_a_category():
    spec = FeatureSpec([Column("ill", "category", ["false", "true"])])
    assert_array_equal(spec.encode({"ill": [True, False]}), [[1], [0]])


def test_an_unknown_level_is_refused_by_name_and_count():
    rows = {"age": [1] * 6, "dose": [1] * 6, "wind": ["N", "W", "S", "W", "SW", "W"]}
    with pytest.raises(ValueError, match=r"^column 'wind' has .*: \"W\" \(3 rows\), \"SW\" \(1 "):
        SPEC.encode(rows)
    lenient = FeatureSpec(SPEC.columns, unknown="reference")
    assert_array_equal(lenient.encode(rows)[:, 1:3], [[1, 0]] + [[0, 0]] * 5)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("age", [1.0, None, None]),
        ("age", np.array([1.0, np.nan, np.nan])),
        ("wind", ["N", None, None]),
        ("wind", np.array(["N", None, np.nan], object)),
        ("wind", pd.Categorical(["N", None, None])),
    ],
)
def test_missing_values_are_refused_or_kept(column, values):
    rows = {"age": [1, 2, 3], "dose": [1, 2, 3], "wind": ["N", "S", "S"], column: values}
    with pytest.raises(ValueError, match=f"^column '{column}' is missing in 2 of 3 rows; fill"):
        SPEC.encode(rows)
    found = SPEC.encode(rows, missing="keep")
    assert_array_equal(np.isnan(found).any(axis=1), [False, True, True])
    assert_array_equal(np.isnan(found).sum(axis=1), [0, 1, 1] if column == "age" else [0, 2, 2])
    only = {name: values[-1:] for name, values in rows.items()}
    assert np.isnan(SPEC.encode(only, missing="keep")).any()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"age": ["a", "b"]}, "column 'age' holds text where numbers are meant; mend the column"),
        ({"age": pa.array(["a", "b"]).dictionary_encode()}, "column 'age' holds text where numb"),
        ({"age": np.array(["2020-01-01"] * 2, "M8[D]")}, r"column 'age' holds dates or times \(d"),
        ({"age": [[1], [2]]}, r"column 'age' holds lists or objects \(list"),
        ({"age": [b"1", b"2"]}, "column 'age' holds values of type binary"),
        ({"age": [None, None]}, "column 'age' is missing in all 2 rows; leave it out"),
        ({"age": [np.inf, 1.0]}, "column 'age' is infinite in 1 rows; mend them"),
        ({"age": np.ones((2, 1))}, r"column 'age' has shape \(2, 1\); give one value per row"),
        ({"age": [1, 2, 3]}, "the table cannot be read: .*length"),
        ({"age": [1, "b"]}, "the table cannot be read: .*'b'"),
        ({"wind": [0.5, 1.0]}, "column 'wind' holds fractions where a category is meant"),
        ({"wind": np.array(["2020-01-01"] * 2, "M8[D]")}, "column 'wind' holds dates or times"),
    ],
)
def test_a_column_that_cannot_be_used_is_named(changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        SPEC.encode({"age": [1, 2], "dose": [1, 2], "wind": ["N", "S"]} | changes)


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="^there is no column 'age'; there are 'dose', 'wind'.$"):
        SPEC.encode({"dose": [1], "wind": ["N"]})
    twice = pd.DataFrame([[1, 2, "N", 3]], columns=["age", "age", "wind", "dose"])
    with pytest.raises(ValueError, match="^there are two columns 'age'; rename"):
        SPEC.encode(twice)
    with pytest.raises(TypeError, match="^the table is a ndarray; give a pyarrow table"):
        SPEC.encode(np.ones((2, 3)))
    with pytest.raises(TypeError, match=r"^the table is a lazy frame; call \.collect\(\)"):
        SPEC.encode(pl.LazyFrame(ROWS))


# -- from a sample -----------------------------------------------------------------------------


def test_a_sample_tells_kinds_and_levels():
    sample = pa.table(
        {
            "a": [1, 2],
            "b": [True, None],
            "c": [Decimal("0.5"), Decimal("1.5")],
            "d": ["z", "y"],
            "e": pa.array([10, 9]).dictionary_encode(),
            "f": [0.5, np.nan],
        }
    )
    spec = FeatureSpec.from_sample(sample)
    assert spec.columns == (
        Column("a"),
        Column("b"),
        Column("c"),
        Column("d", "category", ("y", "z"), "y"),
        Column("e", "category", ("9", "10"), "9"),
        Column("f"),
    )
    assert FeatureSpec.from_sample(sample, ["d", "a"]).names == ("d", "a")
    assert FeatureSpec.from_sample(sample, ["a", "f"]) == FeatureSpec.of_names(["a", "f"])


def test_a_sample_tells_center_and_scale(rng):
    sample = {"a": rng.normal(7, 3, 50), "b": [5.0] * 50, "c": ["x", "y"] * 25}
    spec = FeatureSpec.from_sample(sample, center=True)
    found = spec.encode(sample)
    assert_allclose(found[:, 0].mean(), 0, atol=1e-12)
    assert_allclose(found[:, 0].std(), 1)
    assert_array_equal(found[:, 1], 0)
    assert (spec.columns[1].center, spec.columns[1].scale) == (5.0, 1.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (pd.date_range("2020", periods=3), r"column 'a' holds dates or times \(timestamp"),
        ([[1], [2], [3]], "column 'a' holds lists or objects"),
        ([b"1", b"2", b"3"], "column 'a' holds values of type binary, which is no feature; turn"),
        (["x", "y", "z"], "column 'a' has 3 different values, and max_levels is 2; leave it out"),
        (["x", "x", None], "column 'a' has the value \"x\" throughout the sample; leave it out"),
        ([None] * 3, "column 'a' is missing in all 3 rows of the sample; leave it out"),
        ([np.nan] * 3, "column 'a' is missing in all 3 rows of the sample"),
        (pa.array([None] * 3, pa.string()), "column 'a' is missing in all 3 rows of the sample"),
        ([], "the sample has no rows; give some"),
        (pa.array([], pa.float64()), "the sample has no rows; give some"),
    ],
)
def test_a_sample_that_cannot_be_used_is_refused(values, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        FeatureSpec.from_sample({"a": values}, max_levels=2)


# -- there and back ----------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8)
floats = st.floats(-1e30, 1e30)


@st.composite
def columns(draw, name):
    if draw(st.booleans()):
        scale = draw(st.floats(1e-60, 1e60))
        return Column(name, center=draw(floats), scale=scale)
    levels = draw(st.lists(texts, min_size=2, max_size=4, unique=True))
    return Column(name, "category", levels, draw(st.none() | st.sampled_from(levels)))


@st.composite
def specs(draw):
    names = draw(st.lists(texts.map(lambda t: t.replace("=", "")), min_size=1, unique=True))
    unknown = draw(st.sampled_from(["error", "reference"]))
    return FeatureSpec([draw(columns(name)) for name in names], unknown)


@given(specs())
def test_a_specification_comes_back_the_same(spec):
    assert FeatureSpec.from_json(spec.to_json()) == spec
    assert FeatureSpec.from_json(spec.to_json().encode()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert len(spec.feature_names) == sum(
        1 if c.kind == "number" else len(c.levels) - 1 for c in spec.columns
    )


def test_a_specification_is_saved_whole(tmp_path, monkeypatch):
    path = tmp_path / "features.json"
    SPEC.save(path)
    assert FeatureSpec.load(path) == FeatureSpec.load(str(path)) == load_features(path) == SPEC

    def full(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="the disk is full"):
        FeatureSpec.of_names(["a"]).save(path)
    assert os.listdir(tmp_path) == ["features.json"]
    assert FeatureSpec.load(path) == SPEC


def test_a_specification_is_small_when_pickled():
    spec = FeatureSpec.of_names([f"x{j}" for j in range(20)])
    assert len(pickle.dumps(spec)) < 1500
    assert cloudpickle.loads(cloudpickle.dumps(spec)) == spec


def by_hand():
    return {
        "otmoe": "features",
        "schema_version": 1.0,
        "columns": [
            {"name": "age", "kind": "number", "center": 40, "scale": 10},
            {"name": "wind", "kind": "category", "levels": ["N", "S"]},
        ],
    }


def test_a_file_written_by_hand_is_read():
    spec = FeatureSpec.from_json(json.dumps(by_hand()))
    assert spec.feature_names == ("age", "wind=S") and spec.unknown == "error"
    assert_array_equal(spec.encode({"age": [50], "wind": ["S"]}), [[1.0, 1.0]])


NOTHING = object()


@pytest.mark.parametrize(
    ("column", "field", "value", "sentence"),
    [
        (None, "otmoe", NOTHING, '`otmoe` is null; a file of features says "features" there.'),
        (None, "otmoe", "model", '`otmoe` is "model"; read its features with otmoe.load_features'),
        (None, "schema_version", 2, "`schema_version` is 2; this version of otmoe reads 1"),
        (None, "schema_version", NOTHING, "`schema_version` is null; this version"),
        (None, "columns", NOTHING, "`columns` is missing; add it."),
        (None, "columns", [], "`columns` is empty; give at least one column."),
        (None, "columns", ["age"], '`columns[0]` is "age"; give an object.'),
        (None, "rows", 1, "`rows` is not a field of schema version 1; remove it,"),
        (None, "unknown", "drop", "`unknown` is \"drop\"; give 'error' or 'reference'."),
        (0, "name", NOTHING, "`columns[0].name` is missing"),
        (0, "name", "a\x1b", "`columns[0].name` holds the control character U+001B"),
        (0, "name", "wind", '`columns[1]` is "wind" a second time; give each once.'),
        (0, "name", "wind=S", '`feature_names[1]` is "wind=S" a second time'),
        (0, "kind", "text", "`columns[0].kind` is \"text\"; give 'number' or 'category'."),
        (0, "center", float("nan"), "`columns[0].center` is NaN; give a finite number."),
        (0, "scale", 0, "`columns[0].scale` is 0; give a number above 0."),
        (0, "levels", ["a"], "`columns[0].levels` does not go with a number; remove it."),
        (1, "center", 1, "`columns[1].center` does not go with a category; remove it."),
        (1, "levels", NOTHING, "`columns[1].levels` has to list two levels or more; add them."),
        (1, "levels", ["N"], "`columns[1].levels` has to list two levels or more"),
        (1, "levels", ["N", 1], "`columns[1].levels[1]` is 1; give text."),
        (1, "levels", ["N", "N"], '`columns[1].levels[1]` is "N" a second time'),
        (1, "reference", "E", '`columns[1].reference` is "E", which is none of the levels'),
    ],
)
def test_a_broken_file_is_refused_by_name(column, field, value, sentence):
    document = by_hand()
    place = document if column is None else document["columns"][column]
    place[field] = value
    if value is NOTHING:
        del place[field]
    with pytest.raises(MessageError) as caught:
        FeatureSpec.from_json(json.dumps(document), source="our.json")
    assert str(caught.value).startswith(f"our.json: {sentence}")
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_specification_is_checked_when_it_is_made():
    with pytest.raises(MessageError, match=r"^features: `columns\[0\]\.center` does not go with"):
        FeatureSpec([Column("a", "category", ("x", "y"), center=3.0)])
    with pytest.raises(TypeError, match='^features: "a" is no Column; .*of_names'):
        FeatureSpec(["a"])


def test_the_example_in_the_documentation_is_a_specification():
    text = (Path(__file__).parents[2] / "docs" / "shards.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text.split("Its features are")[1], flags=re.DOTALL)
    assert FeatureSpec.from_json(example).to_json() == example
    exec(code, scope := {"text": example})
    assert str(scope["X"]).replace("\n", "\n# ") in code
    assert scope["spec"].feature_names == ("age", "wind=N", "wind=NE")


# -- beside a model ----------------------------------------------------------------------------


def message(**changes):
    known = {
        "site": "Lyon",
        "model": random_model(np.random.default_rng(0), 2, 4),
        "n_samples": 10.0,
        "log_likelihood": -3.0,
        "converged": True,
        "status": "converged",
        "features": SPEC,
    }
    return LocalModel(**known | changes)


def test_a_model_carries_its_features(tmp_path):
    sent = message()
    assert LocalModel.from_json(sent.to_json()).features == SPEC
    sent.save(tmp_path / "lyon.moe.json")
    save_model(sent.model, tmp_path / "model.moe.json", features=SPEC)
    save_model(sent.model, tmp_path / "plain.moe.json")
    assert load_features(tmp_path / "lyon.moe.json") == SPEC
    assert load_features(tmp_path / "model.moe.json") == SPEC
    assert load_features(tmp_path / "plain.moe.json") is None
    assert_array_equal(load_model(tmp_path / "model.moe.json").to_vector(), sent.model.to_vector())
    assert '"features"' not in message(features=None).to_json()


def test_features_of_another_model_are_refused(tmp_path):
    with pytest.raises(MessageError, match="`features` makes 1 features, but the model has 4; men"):
        message(features=FeatureSpec.of_names(["a"]))
    model = random_model(np.random.default_rng(0), 2, 2)
    named = type(model)(model.gate, model.experts, ("a", "b"))
    with pytest.raises(MessageError, match='`features` makes "b" where `model.feature_names` has'):
        save_model(named, tmp_path / "m.json", features=FeatureSpec.of_names(["b", "a"]))
    broken = json.loads(message().to_json())
    broken["features"]["columns"][1]["levels"] = ["N"]
    with pytest.raises(MessageError, match=r"^Lyon: `features\.columns\[1\]\.levels` has to list"):
        LocalModel.from_json(json.dumps(broken), "Lyon")


def test_a_fit_to_encoded_rows_names_its_features():
    from otmoe.likelihood.fit import em

    rng = np.random.default_rng(0)
    rows = {"age": rng.normal(size=300), "dose": rng.normal(size=300)}
    rows["wind"] = rng.choice(["N", "NE", "S"], 300)
    features = SPEC.encode(rows)
    fit = em(features, features[:, 0] + rng.normal(size=300), 1, random_state=0)
    sent = LocalModel.from_fit(fit, "Lyon", features=SPEC)
    assert sent.model.feature_names == SPEC.feature_names
    again = LocalModel.from_json(sent.to_json())
    assert_array_equal(
        again.model.predict(again.features.encode(rows)), fit.model.predict(features)
    )
