import json
import os
import pickle
import re
from decimal import Decimal
from pathlib import Path

import cloudpickle
import numpy as np
import oracles
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_model
from refusals import NOTHING, cases, put, refused, refused_document

from otmoe import FeatureSpec, LocalModel, load_features, load_model, save_model
from otmoe.data.columns import Column
from otmoe.text.names import unseen

WIND = Column("wind", "category", ("N", "NE", "S"), "S")
SPEC = FeatureSpec((Column("age", center=40.0, scale=10.0), WIND, Column("dose")))
ROWS = {
    "wind": ["NE", "S", "N", "S"],
    "dose": [1, 2, 3, 4],
    "remark": [[1], [2], [], [3]],  # no feature, and no number
    "age": [50.0, 35.0, 40.0, 60.0],
}
X = np.array([[1, 0, 1, 1], [-0.5, 0, 0, 2], [0, 1, 0, 3], [2, 0, 0, 4]], float)


def chunks(table, at):
    return pa.concat_tables([table.slice(0, at), table.slice(at)])


FORMS = {
    "mapping": lambda rows: rows,
    "mapping of arrays": lambda rows: {
        name: np.array(values) for name, values in rows.items() if name != "remark"
    },
    "arrow table": pa.table,
    "record batch": lambda rows: pa.table(rows).to_batches()[0],
    "arrow table in chunks": lambda rows: chunks(pa.table(rows), 3),
    "arrow dictionaries": lambda rows: chunks(
        pa.table(rows | {"wind": pa.array(rows["wind"]).dictionary_encode()}), 2
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
    found = SPEC.encode(chunks(pa.table(rows), 11))
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
    with refused("column_levels", column="wind", values='"W" (3 rows), "SW" (1 rows)'):
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
    refused("column_missing", columns=f"2 of column {column!r}", rows=3).by(SPEC.encode, rows)
    found = SPEC.encode(rows, missing="keep")
    assert_array_equal(np.isnan(found).any(axis=1), [False, True, True])
    assert_array_equal(np.isnan(found).sum(axis=1), [0, 1, 1] if column == "age" else [0, 2, 2])
    only = {name: values[-1:] for name, values in rows.items()}
    assert np.isnan(SPEC.encode(only, missing="keep")).any()


DATES, TIMES = np.array(["2020-01-01"] * 2, "M8[D]"), pd.date_range("2020", periods=3)


@pytest.mark.parametrize(
    ("column", "values", "code", "facts"),
    [
        ("age", ["a", "b"], "not_numbers", {"kind": "text"}),
        ("age", pa.array(["a", "b"]).dictionary_encode(), "not_numbers", {"kind": "text"}),
        ("age", DATES, "not_numbers", {"kind": "dates or times (date32[day])"}),
        ("age", [[1], [2]], "not_numbers", {"kind": "lists or objects (list<item: int64>)"}),
        ("age", [b"1", b"2"], "not_numbers", {"kind": "values of type binary"}),
        ("age", [None, None], "column_empty", {"rows": 2}),
        ("age", [np.inf, 1.0], "column_infinite", {"count": 1}),
        ("wind", [0.5, 1.0], "fractions", {}),
        ("wind", DATES, "not_a_category", {"kind": "dates or times (date32[day])"}),
    ],
)
def test_a_column_that_cannot_be_used_is_named(column, values, code, facts):
    with refused(code, column=column, **facts):
        SPEC.encode({"age": [1, 2], "dose": [1, 2], "wind": ["N", "S"], column: values})


def test_columns_that_are_no_table_are_named():
    rows = {"dose": [1, 2], "wind": ["N", "S"]}
    with refused("not_a_vector", name="column 'age'", shape=(2, 1)):
        SPEC.encode(rows | {"age": np.ones((2, 1))})
    for age in ([1, 2, 3], [1, "b"]):
        refused("table_unreadable").by(SPEC.encode, rows | {"age": age})


def test_a_column_that_is_not_there_is_named():
    with refused("no_column", column="age", columns="'dose', 'wind'"):
        SPEC.encode({"dose": [1], "wind": ["N"]})
    twice = pd.DataFrame([[1, 2, "N", 3]], columns=["age", "age", "wind", "dose"])
    refused("column_twice", column="age").by(SPEC.encode, twice)
    refused("not_a_table", TypeError, kind="ndarray").by(SPEC.encode, np.ones((2, 3)))
    refused("lazy_frame", TypeError).by(SPEC.encode, pl.LazyFrame(ROWS))


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
    levels = Column("d", "category", ("y", "z"), "y"), Column("e", "category", ("9", "10"), "9")
    assert spec.columns == (Column("a"), Column("b"), Column("c"), *levels, Column("f"))
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
    ("values", "code", "facts"),
    [
        (TIMES, "no_feature", {"kind": "dates or times (timestamp[us])"}),
        ([[1], [2], [3]], "no_feature", {"kind": "lists or objects (list<item: int64>)"}),
        ([b"1", b"2", b"3"], "no_feature", {"kind": "values of type binary"}),
        (["x", "y", "z"], "many_levels", {"levels": 3, "most": 2}),
        (["x", "x", None], "one_level", {"value": '"x"'}),
        ([None] * 3, "sample_lacks_column", {"rows": 3}),
        ([np.nan] * 3, "sample_lacks_column", {"rows": 3}),
        (pa.array([None] * 3, pa.string()), "sample_lacks_column", {"rows": 3}),
    ],
)
def test_a_sample_that_cannot_be_used_is_refused(values, code, facts):
    refused(code, column="a", **facts).by(FeatureSpec.from_sample, {"a": values}, max_levels=2)


@pytest.mark.parametrize("values", [[], pa.array([], pa.float64())])
def test_a_sample_without_rows_is_refused(values):
    refused("sample_empty").by(FeatureSpec.from_sample, {"a": values})


# -- there and back ----------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8).filter(
    lambda text: unseen(text, joiners=True) is None
)
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
    widths = [1 if c.kind == "number" else len(c.levels) - 1 for c in spec.columns]
    assert len(spec.feature_names) == sum(widths)


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


KINDS = "'number' or 'category'"
BROKEN = [
    ("otmoe", NOTHING, "kind_missing otmoe", {"kind": "null"}),
    ("otmoe", "model", "features_inside otmoe"),
    ("schema_version", 2, "schema_version schema_version", {"known": 1}),
    ("schema_version", NOTHING, "schema_version schema_version", {"version": "null"}),
    ("columns", NOTHING, "field_missing columns"),
    ("columns", [], "no_columns columns"),
    ("columns", ["age"], "field_object columns[0]"),
    ("rows", 1, "field_unknown rows", {"version": 1}),
    ("unknown", "drop", "field_choice unknown", {"choices": "'error' or 'reference'"}),
    ("columns.0.name", NOTHING, "field_missing columns[0].name"),
    ("columns.0.name", "a\x1b", "control_character columns[0].name", {"character": "001B"}),
    ("columns.0.name", "wind", "second_time columns[1]", {"value": '"wind"'}),
    ("columns.0.name", "wind=S", "second_time feature_names[1]", {"value": '"wind=S"'}),
    ("columns.0.kind", "text", "field_choice columns[0].kind", {"choices": KINDS}),
    ("columns.0.center", float("nan"), "field_nan columns[0].center"),
    ("columns.0.scale", 0, "field_not_positive columns[0].scale"),
    ("columns.0.levels", ["a"], "wrong_kind_of_column columns[0].levels", {"kind": "number"}),
    ("columns.1.center", 1, "wrong_kind_of_column columns[1].center", {"kind": "category"}),
    ("columns.1.levels", NOTHING, "few_levels columns[1].levels"),
    ("columns.1.levels", ["N"], "few_levels columns[1].levels"),
    ("columns.1.levels", ["N", 1], "field_text columns[1].levels[1]"),
    ("columns.1.levels", ["N", "N"], "second_time columns[1].levels[1]"),
    ("columns.1.reference", "E", "reference_unknown columns[1].reference"),
]


@pytest.mark.parametrize(("path", "value", "problem", "facts"), cases(BROKEN))
def test_a_broken_file_is_refused_by_name(path, value, problem, facts):
    refused_document(FeatureSpec, put(by_hand(), path, value), "our.json", problem, facts)


def test_a_specification_is_checked_when_it_is_made():
    with refused("wrong_kind_of_column columns[0].center", where="features"):
        FeatureSpec([Column("a", "category", ("x", "y"), center=3.0)])
    refused("not_a_column", TypeError, value='"a"').by(FeatureSpec, ["a"])


def test_the_example_in_the_documentation_is_a_specification():
    text = (Path(__file__).parents[2] / "docs" / "shards.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    code, *_ = re.findall(r"```python\n(.*?)```", text.split("Its features are")[1], flags=re.S)
    assert FeatureSpec.from_json(example).to_json() == example
    exec(code, scope := {"text": example})
    assert str(scope["X"]).replace("\n", "\n# ") in code
    assert scope["spec"].feature_names == ("age", "wind=N", "wind=NE")


# -- beside a model ----------------------------------------------------------------------------


def message(**changes):
    return oracles.message(random_model(np.random.default_rng(0), 2, 4), "Lyon", **changes)


def test_a_model_carries_its_features(tmp_path):
    sent = message(features=SPEC)
    assert LocalModel.from_json(sent.to_json()).features == SPEC
    sent.save(tmp_path / "lyon.moe.json")
    save_model(sent.model, tmp_path / "model.moe.json", features=SPEC)
    save_model(sent.model, tmp_path / "plain.moe.json")
    assert load_features(tmp_path / "lyon.moe.json") == SPEC
    assert load_features(tmp_path / "model.moe.json") == SPEC
    assert load_features(tmp_path / "plain.moe.json") is None
    assert_array_equal(load_model(tmp_path / "model.moe.json").to_vector(), sent.model.to_vector())
    assert '"features"' not in message().to_json()


def test_features_of_another_model_are_refused(tmp_path):
    with refused("features_count features", features=1, wanted=4):
        message(features=FeatureSpec.of_names(["a"]))
    model = random_model(np.random.default_rng(0), 2, 2)
    named = type(model)(model.gate, model.experts, ("a", "b"))
    with refused("features_other features", name='"b"', where="model"):
        save_model(named, tmp_path / "m.json", features=FeatureSpec.of_names(["b", "a"]))
    broken = put(message(features=SPEC).document(), "features.columns.1.levels", ["N"])
    refused_document(LocalModel, broken, "Lyon", "few_levels features.columns[1].levels", {})


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
    found = again.model.predict(again.features.encode(rows))
    assert_array_equal(found, fit.model.predict(features))
