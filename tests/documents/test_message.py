import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from families import FAMILIES
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from oracles import random_model
from refusals import NOTHING, cases, put, refused, refused_document

import otmoe
from otmoe import (
    FeatureSpec,
    LocalModel,
    MoE,
    MoEClassifier,
    MoERegressor,
    Policy,
    Sketch,
    load_model,
    save_model,
)
from otmoe.data.terms import Interaction
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.between import BetweenRecord
from otmoe.documents.grams import GramsRecord
from otmoe.documents.structure import StructureRecord
from otmoe.model.experts import GaussianExperts, MultinomialExperts, PoissonExperts
from otmoe.model.gate import SoftmaxGate
from otmoe.text.errors import MessageError
from otmoe.text.strict_json import shown

DOCS = Path(__file__).parents[2] / "docs" / "message.md"
FROM_R = Path(__file__).parent / "from_r.moe.json"

LABELS = {
    "text": ["high", "low", "é\n中"],
    "whole numbers": [-1, 0, 2**62],
    "numbers": [0.1, 1.0, 2.0],
}


def local(model, **changes):
    """Return a message about a model."""
    rows = {"site": "Lyon", "n_samples": 812.5, "log_likelihood": -1234.5678901234567}
    fit = {"converged": True, "status": "converged after 12 iterations"}
    told = {"warnings": ("two columns are collinear.",), "constant": {model.terms[-1]: 0.1}}
    return LocalModel(model=model, **rows | fit | told | changes)


def bits(array):
    return np.asarray(array, np.float64).tobytes()


def assert_same_model(found, expected):
    assert type(found.experts) is type(expected.experts)
    assert bits(found.gate.coef) == bits(expected.gate.coef)
    for field in fields(expected.experts):
        value = getattr(found.experts, field.name)
        assert value.dtype == np.float64
        assert bits(value) == bits(getattr(expected.experts, field.name))
    assert bits(found.to_vector()) == bits(expected.to_vector())
    assert found.gate.columns == expected.gate.columns
    assert found.feature_names == expected.feature_names
    if expected.classes is None:
        assert found.classes is None
    else:
        assert found.classes.dtype == expected.classes.dtype
        assert_array_equal(found.classes, expected.classes)


def assert_same(found, expected):
    assert_same_model(found.model, expected.model)
    for field in fields(LocalModel):
        if field.name != "model":
            assert getattr(found, field.name) == getattr(expected, field.name)


def models(rng):
    """Return a model of every family, with and without names, columns and classes."""
    found = {}
    for family in FAMILIES:
        found[family] = random_model(rng, 3, 3, family=family)
        found[f"{family}, named"] = replace(
            random_model(rng, 2, 3, columns=(0, 2), family=family),
            feature_names=("age", "naïve dose\n(mg)", "x0"),
        )
    for kind, labels in LABELS.items():
        named = found["multinomial, named"]
        found[f"multinomial, {kind}"] = replace(named, classes=np.array(labels))
        found[f"logistic, {kind}"] = replace(found["logistic"], classes=np.array(labels[:2]))
    found["logistic, truth"] = replace(found["logistic"], classes=np.array([False, True]))
    found["one expert, no feature"] = random_model(rng, 1, 0)
    return found


MODELS = models(np.random.default_rng(0))


@pytest.fixture(params=list(MODELS))
def model(request):
    return MODELS[request.param]


# -- there and back ----------------------------------------------------------------------------


def test_a_message_comes_back_the_same(model, tmp_path):
    sent = local(model, constant={})
    assert_same(LocalModel.from_json(sent.to_json()), sent)
    assert_same(LocalModel.from_json(sent.to_json().encode()), sent)
    sent.save(tmp_path / "lyon.moe.json")
    assert_same(LocalModel.load(tmp_path / "lyon.moe.json"), sent)
    assert_same(LocalModel.load(str(tmp_path / "lyon.moe.json")), sent)
    assert_same_model(load_model(tmp_path / "lyon.moe.json"), model)  # its model alone
    assert os.listdir(tmp_path) == ["lyon.moe.json"]


def test_a_model_file_comes_back_the_same(model, tmp_path):
    path = tmp_path / "model.moe.json"
    save_model(model, path, about={"made by": "Åsa", "runs": 3, "checked": True, "share": 0.5})
    assert_same_model(load_model(path), model)
    about = json.loads(path.read_text(encoding="utf-8"))["about"]
    assert about == {"made by": "Åsa", "runs": 3, "checked": True, "share": 0.5}


def test_a_model_without_rows_is_no_message(tmp_path):
    save_model(MODELS["poisson"], tmp_path / "model.moe.json")
    with refused("model_without_site otmoe", where=str(tmp_path / "model.moe.json")):
        LocalModel.load(tmp_path / "model.moe.json")


numbers = st.floats(-1e30, 1e30) | st.sampled_from([5e-324, 1e30, -1e30, -0.0, 1 / 3, 2**53 + 2.0])
positive = st.floats(1e-60, 1e60) | st.sampled_from([1e-60, 1e60])


@st.composite
def any_model(draw):
    """Draw a model of any family and size, with extreme parameters."""
    family = draw(st.sampled_from(list(FAMILIES)))
    K, d = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    columns = draw(st.none() | st.sets(st.integers(0, d)).map(lambda s: (0, *s)))
    gate = SoftmaxGate.blank(K, d + 1, columns)

    def vector(size, values=numbers):
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    experts = FAMILIES[family].make(np.random.default_rng(0), K, d + 1)
    if family == "gaussian":
        experts = GaussianExperts(vector(K * (d + 1)).reshape(K, d + 1), vector(K, positive))
    else:
        experts = experts.with_vector(vector(len(experts.to_vector())))
    return MoE(gate.with_vector(vector(gate.n_parameters)), experts)


@given(model=any_model(), n_samples=st.floats(1, 1e60), log_likelihood=numbers)
def test_every_float_survives(model, n_samples, log_likelihood):
    sent = local(model, n_samples=n_samples, log_likelihood=log_likelihood, constant={})
    found = LocalModel.from_json(sent.to_json())
    assert_same(found, sent)
    assert bits(found.log_likelihood) == bits(log_likelihood)


def test_object_labels_become_text():
    sent = local(replace(MODELS["logistic"], classes=np.array(["no", "yes"], dtype=object)))
    found = LocalModel.from_json(sent.to_json()).model.classes
    assert_array_equal(found, np.array(["no", "yes"]), strict=True)


def test_the_text_is_for_people():
    lines = local(MODELS["gaussian"]).to_json().splitlines()
    head = ["{", '  "otmoe": "local model",', '  "schema_version": 1,', '  "site": "Lyon",']
    assert lines[:4] == head
    row = json.dumps(MODELS["gaussian"].gate.coef[0].tolist())
    assert f"        {row}," in lines
    assert max(map(len, lines)) < 120
    assert "Besançon" in local(MODELS["gaussian"], site="Besançon").to_json()


def test_a_message_is_small():
    model = random_model(np.random.default_rng(0), 4, 20)
    size = len(local(model, warnings=(), constant={}).to_json().encode())
    assert 3000 < size < 4000


# -- from fits ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 1] = 3.7
    return X, X[:, 0] + rng.normal(size=200), rng.uniform(1, 2, 200)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_regressor_says_what_it_found(rows):
    X, y, weight = rows
    est = MoERegressor(2, n_init=1, random_state=0).fit(X, y, weight)
    sent = est.to_message(site="Lyon", policy=Policy.off())
    assert_same_model(sent.model, est.model_)
    assert sent.site == "Lyon" and sent.n_samples == weight.sum()
    assert sent.log_likelihood == est.log_likelihood_ and sent.converged == est.converged_
    assert sent.status == est.fit_.status and sent.warnings == est.fit_.warnings != ()
    assert sent.constant == {"x1": 3.7}
    assert sent.versions["otmoe"] == otmoe.__version__
    assert sent.versions["numpy"] == np.__version__


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("labels", [["no", "yes"], ["high", "low", "mid"]])
def test_a_classifier_sends_names_and_labels(rows, labels, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, _ = rows
    X = pd.DataFrame(X, columns=["age", "dose", "time"])
    y = np.array(labels)[np.digitize(y, [0, 1][: len(labels) - 1])]
    est = MoEClassifier(2, n_init=1, gate_features=["time"], random_state=0).fit(X, y)
    est.to_message(site="Lyon", policy=Policy.off()).save(tmp_path / "lyon.moe.json")
    received = LocalModel.load(tmp_path / "lyon.moe.json")
    assert_same_model(received.model, est.model_)
    assert received.constant == {"dose": 3.7}
    again = MoEClassifier.from_model(received.model)
    assert_array_equal(again.predict(X), est.predict(X))
    assert_array_equal(again.log_density(X, y), est.log_density(X, y))


def test_an_estimator_without_a_fit_sends_nothing():
    est = MoERegressor.from_model(MODELS["gaussian"])
    refused("no_fit_to_send").by(est.to_message, site="Lyon")


@pytest.mark.parametrize(
    ("site", "problem", "facts"),
    [
        ("", "site_unnamed", {}),
        (" ", "site_unnamed", {}),
        ("a" * 201, "name_too_long", {"length": 201, "most": 200}),
        ("Ly\non", "control_character", {"character": "000A"}),
        ("Ly\x1b[31mon", "control_character", {"character": "001B"}),
        ("Ly\u2028on", "control_character", {"character": "2028"}),
        ("Ly\u202eon", "control_character", {"character": "202E"}),
        ("\ud800", "control_character", {"character": "D800"}),
        (7, "field_text", {"value": "7"}),
        (None, "field_text", {"value": "null"}),
    ],
)
def test_an_impossible_site_is_refused(site, problem, facts):
    with refused(f"{problem} site", MessageError, where=f"site {shown(site)}", **facts):
        local(MODELS["gaussian"], site=site)
    assert len(local(MODELS["gaussian"], site="é" * 200).site) == 200


def test_a_family_added_by_a_user_travels_too(monkeypatch):
    @dataclass(frozen=True)
    class ScaledExperts(PoissonExperts):
        spread: np.ndarray

        family = "scaled"

        @classmethod
        def blank(cls, n_experts, n_columns, n_classes=2):
            return cls(np.zeros((n_experts, n_columns)), np.ones(n_experts))

    monkeypatch.setitem(otmoe.model.experts.FAMILIES, "scaled", ScaledExperts)
    coef = MODELS["poisson"].experts.coef
    sent = local(replace(MODELS["poisson"], experts=ScaledExperts(coef, np.array([1.0, 2.0, 3.0]))))
    assert_same(LocalModel.from_json(sent.to_json()), sent)
    with refused("field_not_positive model.experts.spread[1]", value="-1.0"):
        local(replace(sent.model, experts=ScaledExperts(coef, np.array([1.0, -1.0, 3.0]))))


def test_a_message_stays_what_it_was_when_it_was_checked():
    model = MODELS["gaussian"]
    model = replace(model, gate=SoftmaxGate(model.gate.coef.copy()))
    sent = local(model)
    before = sent.to_json()
    model.gate.coef[1, 2] = np.nan
    assert sent.to_json() == before
    with pytest.raises(ValueError, match="read-only"):
        sent.model.gate.coef[1, 2] = np.nan


def test_a_gate_of_another_kind_has_no_file(tmp_path):
    model = replace(MODELS["gaussian"], gate=object())
    with refused("gate_without_file", kind="object", where="model"):
        save_model(model, tmp_path / "model.moe.json")


# -- from other languages ----------------------------------------------------------------------


def by_hand(family="gaussian"):
    """Return a message as another language might write it: little more than what is needed."""
    about = {"otmoe": "local model", "schema_version": 1.0, "site": "Nantes", "n_samples": 300}
    fit = {"log_likelihood": -421, "fit": {"converged": True, "status": "converged"}}
    model = {
        "family": family,
        "gate": {"coef": [[0.5, 0, 2], [0, 0, 0]], "columns": [2.0, 0.0]},
        "experts": {"coef": [[1, 2, 3], [4, 5, 6.5]]},
    }
    message = about | fit | {"model": model}
    if family == "gaussian":
        message["model"]["experts"]["var"] = [1, 0.25]
    elif family in ("negative_binomial", "gamma", "student_t"):
        message["model"]["experts"]["phi"] = [1, 0.25]
    elif family == "binomial":
        message["model"]["experts"]["trials"] = [12, 12]
    elif family == "logistic":
        message["model"]["classes"] = ["no", "yes"]
    elif family == "multinomial":
        message["model"]["classes"] = [0, 1, 2.5]
        message["model"]["experts"]["coef"] = [[[1, 2, 3], [4, 5, 6], [0, 0, 0]]] * 2
    return message


def test_a_message_written_by_hand_is_read(family):
    found = LocalModel.from_json(json.dumps(by_hand(family)))
    assert found.site == "Nantes" and found.n_samples == 300.0 and found.log_likelihood == -421.0
    assert type(found.n_samples) is float and found.model.experts.coef.dtype == np.float64
    assert found.warnings == () and found.constant == {} and found.versions == {}
    gate = SoftmaxGate(np.array([[0.5, 0, 2], [0, 0, 0]]), (0, 2))
    assert_array_equal(found.model.gate.coef, gate.coef, strict=True)
    assert found.model.gate.columns == gate.columns
    assert all(type(column) is int for column in found.model.gate.columns)
    assert_same(LocalModel.from_json(found.to_json()), found)


def blocks(language):
    """Return the pieces of code of a language on the page that describes messages."""
    text = DOCS.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def assert_the_example(found):
    """Compare a message with the one that the documentation shows, but for how it was made."""
    (example,) = blocks("json")
    expected = LocalModel.from_json(example)
    assert_same(replace(found, status=expected.status, versions=expected.versions), expected)


def test_r_writes_the_example(tmp_path):
    if shutil.which("Rscript") is None or subprocess.call(["Rscript", "-e", "library(jsonlite)"]):
        pytest.skip("needs R with the package jsonlite")
    (code,) = blocks("r")
    subprocess.run(["Rscript", "-e", code], cwd=tmp_path, check=True)
    written = (tmp_path / "lyon.moe.json").read_text()
    assert_the_example(LocalModel.from_json(written))
    assert re.sub('"R": ".*"', '"R": "4.2.2"', written) == FROM_R.read_text()


# As R prints it with always_decimal = TRUE, with jsonlite's own 15 digits and without line breaks.
DECIMAL = (
    '{"otmoe":"local model","schema_version":1.0,"site":"Lyon","n_samples":812.0,'
    '"log_likelihood":-1387.25,"fit":{"converged":true,"status":"converged after 9 iterations"},'
    '"model":{"family":"gaussian","feature_names":["age","dose"],"gate":{"coef":[[3.5,-0.05,0.0],'
    '[0.0,0.0,0.0]],"columns":[0.0,1.0]},"experts":{"coef":[[10.0,0.2,1.5],[25.0,-0.1,0.25]],'
    '"var":[4.0,2.25]}},"versions":{"R":"4.2.2"}} \n'
)


def test_what_r_wrote_is_the_example_and_whole_numbers_may_have_decimals():
    assert_the_example(LocalModel.load(FROM_R))
    assert_the_example(LocalModel.from_json(DECIMAL))


@pytest.mark.parametrize(
    ("vector", "unboxed", "problem"),
    [
        ('["age","dose"]', '"age"', "field_list model.feature_names"),
        ("[0.0,1.0]", "0", "field_list model.gate.columns"),
        ("[4.0,2.25]", "4", "field_list model.experts.var"),
        ('{"R":"4.2.2"}', "[]", "field_object versions"),
        ("[4.0,2.25]", '[4,"NA"]', "field_number model.experts.var[1]"),
    ],
)
def test_the_traps_of_r_are_named(vector, unboxed, problem):
    document = json.loads(DECIMAL.replace(vector, unboxed))
    refused_document(LocalModel, document, "message", problem, {})


def test_spaces_and_a_byte_order_mark_do_no_harm():
    text = f"\n {json.dumps(by_hand(), indent=1)}\r\n\n"
    assert LocalModel.from_json(text).site == "Nantes"
    assert LocalModel.from_json(text.strip().encode("utf-8-sig")).site == "Nantes"


# -- other versions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", ["", "fit.", "model.", "model.gate.", "model.experts.", "features."]
)
@pytest.mark.parametrize("value", [None, 1e308, "\x1b", [[{"a": 1}]]])
def test_fields_that_begin_with_x_are_ignored(place, value):
    features = FeatureSpec.of_names(["a", "b"])
    message = by_hand() | {"features": json.loads(features.to_json())}
    del message["features"]["otmoe"], message["features"]["schema_version"]
    sent = LocalModel.from_json(json.dumps(message))
    more = put(put(message, f"{place}x-ours", value), f"{place}x-\ud800", value)
    received = LocalModel.from_json(json.dumps(more))
    assert_same(received, sent)
    assert "x-" not in received.to_json()


def test_fields_that_begin_with_x_are_ignored_in_other_files(tmp_path):
    spec = FeatureSpec.of_names(["a", "b"])
    document = json.loads(spec.to_json()) | {"x-ours": 1}
    document["columns"][0]["x-ours"] = 1
    assert FeatureSpec.from_json(json.dumps(document)) == spec
    save_model(MODELS["poisson"], tmp_path / "model.moe.json")
    text = (tmp_path / "model.moe.json").read_text().replace("{", '{"x-ours": {},', 1)
    (tmp_path / "model.moe.json").write_text(text)
    assert_same_model(load_model(tmp_path / "model.moe.json"), MODELS["poisson"])


def test_names_that_are_data_may_begin_with_x():
    named = put(by_hand(), "model.feature_names", ["x-ray", "dose"])
    named |= {"constant_features": {"x-ray": 2.5}, "versions": {"x-ours": "1"}}
    found = LocalModel.from_json(json.dumps(named))
    assert found.constant == {"x-ray": 2.5} and found.versions == {"x-ours": "1"}


@pytest.mark.parametrize("key", ["rows", "X-ours", "x_ours", "x", "[key]", "{value}", "\ud800"])
@pytest.mark.parametrize("place", ["", "fit.", "model.", "model.gate.", "model.experts."])
def test_a_field_that_is_not_known_is_refused(place, key):
    text = json.dumps(put(by_hand(), place + key, 1))
    error = refused("field_unknown", version=1).by(LocalModel.from_json, text)
    assert str(error).isprintable()


# -- broken ------------------------------------------------------------------------------------

TEXT = json.dumps(by_hand())
NINES = "9" * 40 + "..."
DEEP = "[" * 9 + "]" * 9

CUT = [
    ("", "json_empty"),
    (b" \n", "json_empty"),
    (TEXT[:200], "json_cut", {"length": 200}),
    (TEXT[:-1], "json_cut", {"length": len(TEXT) - 1}),
    ("site: Lyon", "json_invalid", {"reason": "Expecting value: line 1 column 1 (char 0)"}),
    (TEXT + "}", "json_invalid"),
    (TEXT.replace('"site"', "site"), "json_invalid"),
    ("[1, 2]", "not_an_object", {"value": "a list of 2"}),
    ('"text"', "not_an_object", {"value": '"text"'}),
    ("null", "not_an_object", {"value": "null"}),
    (TEXT.encode("utf-16"), "not_utf8", {"byte": 0}),
    (TEXT.replace("Nantes", "Besançon").encode("latin-1"), "not_utf8"),
    (b"\x80\x04K\x01.", "not_utf8", {"byte": 0}),
    (TEXT.replace("{", '{"site": "Lyon", ', 1), "key_twice site"),
    (TEXT.replace("0.25]", '0.25], "var": [1, 1]'), "key_twice model.experts.var"),
    (TEXT.replace('"coef"', '"coef": 1, "coef"', 1), "key_twice model.gate.coef"),
    (TEXT.replace("{", '{"": 1, "": 2, ', 1), 'key_twice [""]'),
    (TEXT.replace("-421", "NaN"), "field_nan log_likelihood", {"value": "NaN"}),
    (TEXT.replace("-421", "1e999"), "field_infinite log_likelihood"),
    (TEXT.replace("6.5", "-Infinity"), "field_infinite model.experts.coef[1][2]"),
    (TEXT.replace("6.5", "9" * 5000), "field_infinite model.experts.coef[1][2]"),
    (TEXT.replace("6.5", "9" * 299), "field_too_large model.experts.coef[1][2]", {"value": NINES}),
    (TEXT.replace("Nantes", r"\ud800"), "control_character site", {"character": "D800"}),
    ("[" * 100_000, "limit", {"limit": "depth", "most": 16}),
    ('{"a":' * 100_000, "limit", {"limit": "depth", "most": 16}),
    (TEXT.replace("-421", DEEP), "field_number log_likelihood", {"value": "a list of 1"}),
]


@pytest.mark.parametrize(("text", "problem", "facts"), cases(CUT))
def test_broken_text_is_refused(text, problem, facts):
    wrong = refused(problem, MessageError, where="upload 7", **facts)
    said = str(wrong.by(LocalModel.from_json, text, source="upload 7"))
    assert len(said) < 300 and "\n" not in said


def test_a_path_is_no_text(tmp_path):
    wrong = refused("not_text", TypeError, where="message", kind=type(tmp_path).__name__)
    wrong.by(LocalModel.from_json, tmp_path / "lyon.moe.json")


M, E = "model.", "model.experts."

BROKEN = [
    # fields and types
    ("poisson", "otmoe", NOTHING, "kind_missing otmoe"),
    ("poisson", "otmoe", "pickle", "other_document otmoe", {"wanted": '"local model"'}),
    ("poisson", "otmoe", ["model"], "kind_missing otmoe"),
    ("poisson", "schema_version", NOTHING, "schema_version schema_version", {"version": "null"}),
    ("poisson", "schema_version", 2, "schema_version schema_version", {"known": 1}),
    ("poisson", "schema_version", True, "schema_version schema_version"),
    ("poisson", "schema_version", "1", "schema_version schema_version"),
    ("poisson", "site", NOTHING, "field_missing site"),
    ("poisson", "site", "", "site_unnamed site"),
    ("poisson", "n_samples", 0, "field_not_positive n_samples"),
    ("poisson", "n_samples", -3.5, "field_not_positive n_samples"),
    ("poisson", "n_samples", "300", "field_number n_samples"),
    ("poisson", "n_samples", True, "field_number n_samples"),
    ("poisson", "log_likelihood", None, "field_number log_likelihood"),
    ("poisson", "fit", "converged", "field_object fit"),
    ("poisson", "fit.converged", 1, "field_boolean fit.converged"),
    ("poisson", "fit.status", "a\nb", "control_character fit.status", {"character": "000A"}),
    ("poisson", "fit.status", {"code": "a"}, "field_missing fit.status.text"),
    ("poisson", "fit.warnings", ["a", 1], "field_object fit.warnings[1]"),
    ("poisson", "rows", [1, 2], "field_unknown rows", {"version": 1}),
    ("poisson", "model.x y", 1, 'field_unknown model["x y"]'),
    ("poisson", "fit.warning", [], "field_unknown fit.warning", {"version": 1}),
    ("poisson", "versions", {"otmoe": 1}, "field_text versions.otmoe"),
    ("poisson", "versions", {"a\x00": "1"}, r'control_character versions["a\u0000"]'),
    ("poisson", "model", [], "field_object model"),
    ("poisson", M + "family", "cauchy", "family_unknown model.family"),
    ("poisson", M + "family", NOTHING, "field_missing model.family"),
    ("poisson", M + "gate", NOTHING, "field_missing model.gate"),
    ("poisson", M + "gate.coef.0.1", "0", "field_number model.gate.coef[0][1]"),
    ("poisson", M + "gate.columns", [0, 1.5], "field_whole model.gate.columns[1]"),
    ("poisson", E + "coef", NOTHING, "field_missing model.experts.coef"),
    ("poisson", E + "coef", 3, "field_list model.experts.coef"),
    ("poisson", E + "coef.0.2", None, "field_number model.experts.coef[0][2]"),
    ("poisson", E + "coef.0.2", [1.0], "field_number model.experts.coef[0][2]"),
    ("poisson", E + "var", [1, 1], "field_unknown model.experts.var"),
    ("gaussian", E + "var", NOTHING, "field_missing model.experts.var"),
    ("gaussian", E + "var.1", 0, "field_not_positive model.experts.var[1]"),
    ("multinomial", E + "coef", [[1, 2]], "field_list model.experts.coef[0][0]"),
    # magnitudes
    ("poisson", E + "coef.0.2", 1e308, "field_too_large model.experts.coef[0][2]"),
    ("poisson", M + "gate.coef.0.2", -1e31, "field_too_small model.gate.coef[0][2]"),
    ("poisson", "log_likelihood", -1e31, "field_too_small log_likelihood"),
    ("poisson", "n_samples", 1e61, "field_too_large n_samples", {"most": 1e60}),
    ("gaussian", E + "var.0", 1e-61, "field_too_small model.experts.var[0]"),
    ("poisson", "constant_features", {"x1": 1e31}, "field_too_large constant_features.x1"),
    # shapes
    ("poisson", E + "coef", [], "empty model.experts.coef"),
    ("poisson", E + "coef", [[], []], "empty model.experts.coef[0]"),
    ("poisson", E + "coef", [[1, 2, 3]], "length_of_model model.gate.coef", {"wanted": 1}),
    ("poisson", E + "coef.1", [1, 2], "length_of_model model.experts.coef[1]", {"wanted": 3}),
    ("poisson", M + "gate.coef.0", [1, 2], "length_of_model model.gate.coef[0]", {"wanted": 3}),
    ("poisson", M + "gate.coef.0", [0] * 10**6, "length_of_model model.gate.coef[0]"),
    ("gaussian", E + "var", [1], "length_of_model model.experts.var", {"wanted": 2}),
    ("gaussian", E + "var", ["a"] * 10**6, "field_number model.experts.var[0]"),
    ("multinomial", E + "coef.1", [[1, 2, 3]], "length_of_model model.experts.coef[1]"),
    ("multinomial", E + "coef", [[[0, 0, 0]]] * 2, "one_class model.experts.coef[0]"),
    # zeros of the reference and of what the gate leaves out
    ("poisson", M + "gate.coef.1.2", 1e-300, "not_zero model.gate.coef[1][2]"),
    ("poisson", M + "gate.coef.0.1", 2.0, "not_zero model.gate.coef[0][1]"),
    ("multinomial", E + "coef.0.2.1", 3.0, "not_zero model.experts.coef[0][2][1]"),
    # names, columns, classes
    ("poisson", M + "gate.columns", [2], "gate_without_intercept model.gate.columns"),
    ("poisson", M + "gate.columns", [0, 3], "gate_column model.gate.columns[1]", {"last": 2}),
    ("poisson", M + "gate.columns", [0, -1], "gate_column model.gate.columns[1]", {"last": 2}),
    ("poisson", M + "gate.columns", [0, 2, 2], "second_time model.gate.columns[2]"),
    ("poisson", M + "feature_names", ["a"], "length_of_names model.feature_names", {"wanted": 2}),
    ("poisson", M + "feature_names", ["a", "a"], "second_time model.feature_names[1]"),
    ("poisson", M + "feature_names", ["a", 7], "field_text model.feature_names[1]"),
    ("poisson", M + "feature_names", ["a", "\x1b"], "control_character model.feature_names[1]"),
    ("poisson", M + "classes", ["a", "b"], "no_classes_here model.classes"),
    ("logistic", M + "classes", ["a", "b", "c"], "length_of_classes model.classes", {"wanted": 2}),
    ("logistic", M + "classes", ["a", "a"], "second_time model.classes[1]"),
    ("logistic", M + "classes", ["a", None], "label_kind model.classes[1]"),
    ("logistic", M + "classes", ["a", ["b"]], "label_kind model.classes[1]"),
    ("logistic", M + "classes", ["a", "b" * 201], "label_too_long model.classes[1]"),
    ("logistic", M + "classes", ["a", "\ud800"], "control_character model.classes[1]"),
    ("logistic", M + "classes", ["a", 1], "classes_mixed model.classes"),
    ("logistic", M + "classes", [False, 2], "classes_mixed model.classes"),
    ("logistic", M + "classes", [1, 10**30], "classes_mixed model.classes"),
    ("logistic", M + "classes", [0.5, 2**60 + 1], "classes_mixed model.classes"),
    ("multinomial", M + "classes", ["a", "b"], "length_of_classes model.classes", {"wanted": 3}),
    # constant features
    ("poisson", "constant_features", {"x2": 1}, "not_a_feature constant_features.x2"),
    ("poisson", "constant_features", {"x1": "1"}, "field_number constant_features.x1"),
    ("poisson", "constant_features", [0], "field_object constant_features"),
]


@pytest.mark.parametrize(("family", "path", "value", "problem", "facts"), cases(BROKEN))
def test_a_broken_message_is_refused_by_name(family, path, value, problem, facts):
    refused_document(LocalModel, put(by_hand(family), path, value), "Nantes", problem, facts)


def test_a_long_offender_is_cut_short():
    text = json.dumps(put(by_hand(), "n" * 10**4, "v" * 10**4))
    error = refused("field_unknown", where="message").by(LocalModel.from_json, text)
    assert error.at.startswith('["nnn') and error.at.endswith("...]") and len(str(error)) < 300


def test_names_in_constant_features_are_those_of_the_model():
    text = json.dumps(by_hand() | {"constant_features": {"dose": 1}})
    refused("not_a_feature constant_features.dose").by(LocalModel.from_json, text)
    named = put(json.loads(text), "model.feature_names", ["age", "dose"])
    assert LocalModel.from_json(json.dumps(named)).constant == {"dose": 1.0}


@pytest.mark.parametrize(
    ("about", "problem", "value"),
    [
        ({"runs": [1]}, "label_kind about.runs", "a list of 1"),
        ({"runs": float("nan")}, "label_kind about.runs", "NaN"),
        ({3: "a"}, "field_text about[3]", "3"),
    ],
)
def test_what_is_said_about_a_model_is_plain(about, problem, value, tmp_path):
    with refused(problem, where="model", value=value):
        save_model(MODELS["poisson"], tmp_path / "model.moe.json", about)
    assert os.listdir(tmp_path) == []


def test_parameters_that_do_not_fit_together_are_not_sent():
    gate = SoftmaxGate(np.array([[1.0, 0.0], [0.0, 1.0]]))
    experts = MultinomialExperts.blank(2, 2, 3)
    with refused("not_zero model.gate.coef[1][1]", value="1.0", where='site "Lyon"'):
        local(MoE(gate, experts))
    with refused("length_of_model model.gate.coef[0]", length=2, wanted=4):
        local(MoE(gate, MultinomialExperts.blank(2, 4, 3)))


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "lyon.moe.json"
    path.write_text(TEXT[:300])
    for read in (LocalModel.load, load_model):
        refused("json_cut", where=str(path), length=300).by(read, path)


# -- whole or not at all -----------------------------------------------------------------------


def full(*args):
    raise OSError("the disk is full")


@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_save_that_fails_leaves_things_as_they_were(step, old, tmp_path, monkeypatch):
    path = tmp_path / "lyon.moe.json"
    if old:
        path.write_text(old)
    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="the disk is full"):
        local(MODELS["gaussian"]).save(path)
    left = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert left == ({path.name: old} if old else {})


def test_a_file_is_replaced_only_when_its_text_is_on_the_disk(tmp_path, monkeypatch):
    sizes, sent, sync = [], local(MODELS["gaussian"]), os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: sizes.append(os.fstat(file).st_size) or sync(file)
    )
    (tmp_path / "lyon.moe.json").write_text("old")
    sent.save(tmp_path / "lyon.moe.json")
    assert sizes == [len(sent.to_json().encode())]
    assert_same(LocalModel.load(tmp_path / "lyon.moe.json"), sent)


def test_a_missing_folder_is_named(tmp_path):
    with refused("no_folder_to_write", FileNotFoundError, file="lyon.moe.json"):
        local(MODELS["gaussian"]).save(tmp_path / "nowhere" / "lyon.moe.json")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    local(MODELS["gaussian"]).save(tmp_path / "lyon.moe.json")
    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert len(modes) == 1


# -- the page that describes it ----------------------------------------------------------------


def test_the_example_in_the_documentation_is_a_message():
    (example,), (code,) = blocks("json"), blocks("python")
    assert LocalModel.from_json(example).to_json() == example
    exec(code, scope := {"text": example})
    assert scope["prediction"] == pytest.approx(scope["by_hand"], rel=1e-12)


def test_the_documentation_has_every_field():
    text = re.sub(r"^## Limits\n.*?^## ", "", DOCS.read_text(encoding="utf-8"), flags=re.S | re.M)
    text = text.partition("## Files of refine rounds")[0]  # test_json_schema.py has an eye on these
    documented = set(re.findall(r"^\| `([\w.]+)`", text, flags=re.MULTILINE))
    features = replace(FeatureSpec.of_names(["a", "b"]), terms=(Interaction(("a", "b")),))
    rows = np.random.default_rng(0).normal(size=(20, 3))
    sketch = Sketch.fit(rows, features=features)
    brought = {"sketch": sketch, "support": rows[:2], "key": "ab" * 32}
    brought |= {"overrides": {"rows": "agreed"}, "constant": {}}
    document = json.loads(local(MODELS["gaussian"], features=features, **brought).to_json())

    def paths(value, prefix=""):
        for key, inner in value.items():
            objects = ("constant_features", "overrides", "versions", "constant", "units", "status")
            nested = isinstance(inner, dict) and key not in objects
            yield from paths(inner, f"{prefix}{key}.") if nested else [prefix + key]

    merging = {f"aggregation.{name}" for name in AggregationRecord.model_fields}
    differing = {f"between.{name}" for name in BetweenRecord.model_fields}
    grams = {f"grams.{name}" for name in GramsRecord.model_fields}
    within = {f"model.structure.{name}" for name in StructureRecord.model_fields}
    other = {f"model.experts.{name}" for name in ("phi", "trials", "scales")}  # as "var" there
    other |= {"model.expert_per", "model.response_names"}  # of grouped rows, several responses
    fields = {*paths(document), "about", *grams, *merging, *differing, *within, *other}
    assert documented == fields
