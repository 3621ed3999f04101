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

import otmoe
from otmoe import (
    FeatureSpec,
    LocalModel,
    MoE,
    MoEClassifier,
    MoERegressor,
    Sketch,
    load_model,
    save_model,
)
from otmoe.documents.aggregation import AggregationRecord
from otmoe.documents.message import MessageError
from otmoe.model.experts import GaussianExperts, MultinomialExperts, PoissonExperts
from otmoe.model.gate import SoftmaxGate

DOCS = Path(__file__).parents[2] / "docs" / "message.md"
FROM_R = Path(__file__).parent / "from_r.moe.json"

LABELS = {
    "text": ["high", "low", "é\n中"],
    "whole numbers": [-1, 0, 2**62],
    "numbers": [0.1, 1.0, 2.0],
}


def local(model, **changes):
    """Return a message about a model."""
    known = {
        "site": "Lyon",
        "n_samples": 812.5,
        "log_likelihood": -1234.5678901234567,
        "converged": True,
        "status": "converged after 12 iterations",
        "warnings": ("two columns are collinear.",),
        "constant": {model.terms[-1]: 0.1},
    }
    return LocalModel(model=model, **known | changes)


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
    assert os.listdir(tmp_path) == ["lyon.moe.json"]


def test_a_model_file_comes_back_the_same(model, tmp_path):
    path = tmp_path / "model.moe.json"
    save_model(model, path, about={"made by": "Åsa", "runs": 3, "checked": True, "share": 0.5})
    assert_same_model(load_model(path), model)
    about = json.loads(path.read_text(encoding="utf-8"))["about"]
    assert about == {"made by": "Åsa", "runs": 3, "checked": True, "share": 0.5}


def test_the_model_of_a_message_can_be_read_alone(model, tmp_path):
    local(model, constant={}).save(tmp_path / "lyon.moe.json")
    assert_same_model(load_model(tmp_path / "lyon.moe.json"), model)


def test_a_model_without_rows_is_no_message(tmp_path):
    save_model(MODELS["poisson"], tmp_path / "model.moe.json")
    with pytest.raises(MessageError, match=r'model\.moe\.json: `otmoe` is "model".*load_model'):
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


@given(model=any_model(), n_samples=positive, log_likelihood=numbers)
def test_every_float_survives(model, n_samples, log_likelihood):
    sent = local(model, n_samples=n_samples, log_likelihood=log_likelihood, constant={})
    found = LocalModel.from_json(sent.to_json())
    assert_same(found, sent)
    assert bits(found.log_likelihood) == bits(log_likelihood)


def test_object_labels_become_text():
    sent = local(replace(MODELS["logistic"], classes=np.array(["no", "yes"], dtype=object)))
    assert_array_equal(
        LocalModel.from_json(sent.to_json()).model.classes, np.array(["no", "yes"]), strict=True
    )


def test_the_text_is_for_people():
    lines = local(MODELS["gaussian"]).to_json().splitlines()
    assert lines[:4] == [
        "{",
        '  "otmoe": "local model",',
        '  "schema_version": 1,',
        '  "site": "Lyon",',
    ]
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
    sent = est.to_message(site="Lyon")
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
    est.to_message(site="Lyon").save(tmp_path / "lyon.moe.json")
    received = LocalModel.load(tmp_path / "lyon.moe.json")
    assert_same_model(received.model, est.model_)
    assert received.constant == {"dose": 3.7}
    again = MoEClassifier.from_model(received.model)
    assert_array_equal(again.predict(X), est.predict(X))
    assert_array_equal(again.log_density(X, y), est.log_density(X, y))


def test_an_estimator_without_a_fit_sends_nothing():
    est = MoERegressor.from_model(MODELS["gaussian"])
    with pytest.raises(ValueError, match="has seen no rows.*save_model"):
        est.to_message(site="Lyon")


@pytest.mark.parametrize(
    ("site", "problem"),
    [
        ("", "is empty"),
        (" ", "is empty"),
        ("a" * 201, "has 201 characters; give a name of at most 200"),
        ("Ly\non", r"holds the control character U\+000A; remove it"),
        ("Ly\x1b[31mon", r"holds the control character U\+001B"),
        ("Ly\u2028on", r"holds the control character U\+2028"),
        ("Ly\u202eon", r"holds the control character U\+202E"),
        ("\ud800", r"holds the control character U\+D800"),
        (7, "is 7; give text"),
        (None, "is null; give text"),
    ],
)
def test_an_impossible_site_is_refused(site, problem):
    with pytest.raises(MessageError, match=f"^site .*: `site` {problem}"):
        local(MODELS["gaussian"], site=site)


def test_a_site_may_have_200_characters():
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
    with pytest.raises(MessageError, match=r"`model\.experts\.spread\[1\]` is -1"):
        local(replace(sent.model, experts=ScaledExperts(coef, np.array([1.0, -1.0, 3.0]))))


def test_a_message_is_checked_before_it_leaves():
    sent = local(MODELS["gaussian"])
    spoiled = replace(sent.model, gate=SoftmaxGate(sent.model.gate.coef.copy()))
    sent = replace(sent, model=spoiled)
    spoiled.gate.coef[1, 2] = np.nan
    with pytest.raises(MessageError, match=r'^site "Lyon": `model\.gate\.coef\[1\]\[2\]` is NaN'):
        sent.to_json()


def test_a_gate_of_another_kind_has_no_file(tmp_path):
    model = replace(MODELS["gaussian"], gate=object())
    with pytest.raises(MessageError, match="the gate is a object; only models with a SoftmaxGate"):
        save_model(model, tmp_path / "model.moe.json")


# -- from other languages ----------------------------------------------------------------------


def by_hand(family="gaussian"):
    """Return a message as another language might write it: little more than what is needed."""
    message = {
        "otmoe": "local model",
        "schema_version": 1.0,
        "site": "Nantes",
        "n_samples": 300,
        "log_likelihood": -421,
        "fit": {"converged": True, "status": "converged"},
        "model": {
            "family": family,
            "gate": {"coef": [[0.5, 0, 2], [0, 0, 0]], "columns": [2.0, 0.0]},
            "experts": {"coef": [[1, 2, 3], [4, 5, 6.5]]},
        },
    }
    if family == "gaussian":
        message["model"]["experts"]["var"] = [1, 0.25]
    elif family == "logistic":
        message["model"]["classes"] = ["no", "yes"]
    elif family == "multinomial":
        message["model"]["classes"] = [0, 1, 2.5]
        message["model"]["experts"]["coef"] = [[[1, 2, 3], [4, 5, 6], [0, 0, 0]]] * 2
    return message


@pytest.mark.parametrize("family", FAMILIES)
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


def test_what_r_wrote_is_the_example():
    assert_the_example(LocalModel.load(FROM_R))


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


def test_whole_numbers_may_have_decimals():
    assert_the_example(LocalModel.from_json(DECIMAL))


@pytest.mark.parametrize(
    ("vector", "unboxed", "sentence"),
    [
        ('["age","dose"]', '"age"', '`model.feature_names` is "age"; give a list.'),
        ("[0.0,1.0]", "0", "`model.gate.columns` is 0; give a list."),
        ("[4.0,2.25]", "4", "`model.experts.var` is 4; give a list."),
        ('{"R":"4.2.2"}', "[]", "`versions` is a list of 0; give an object."),
        ("[4.0,2.25]", '[4,"NA"]', '`model.experts.var[1]` is "NA"; give a number.'),
    ],
)
def test_the_traps_of_r_are_named(vector, unboxed, sentence):
    with pytest.raises(MessageError, match=f"^message: {re.escape(sentence)}$"):
        LocalModel.from_json(DECIMAL.replace(vector, unboxed))


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
    more = changed(changed(message, f"{place}x-ours", value), f"{place}x-\ud800", value)
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
    named = changed(by_hand(), "model.feature_names", ["x-ray", "dose"])
    named |= {"constant_features": {"x-ray": 2.5}, "versions": {"x-ours": "1"}}
    found = LocalModel.from_json(json.dumps(named))
    assert found.constant == {"x-ray": 2.5} and found.versions == {"x-ours": "1"}


@pytest.mark.parametrize("key", ["rows", "X-ours", "x_ours", "x", "[key]", "{value}", "\ud800"])
@pytest.mark.parametrize("place", ["", "fit.", "model.", "model.gate.", "model.experts."])
def test_a_field_that_is_not_known_is_refused(place, key):
    text = json.dumps(changed(by_hand(), place + key, 1))
    with pytest.raises(
        MessageError, match="is not a field of schema version 1; remove it"
    ) as caught:
        LocalModel.from_json(text)
    assert str(caught.value).isprintable()


# -- broken ------------------------------------------------------------------------------------

TEXT = json.dumps(by_hand())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        (b" \n", "is empty"),
        (TEXT[:200], "ends too early, after 200 characters; ask for it again"),
        (TEXT[:-1], r"ends too early, after \d+ characters"),
        ("site: Lyon", r"is not valid JSON \(Expecting value: line 1 column 1"),
        (TEXT + "}", r"is not valid JSON \(Extra data"),
        (TEXT.replace('"site"', "site"), "is not valid JSON"),
        ("[1, 2]", "holds a list of 2; an otmoe file is one JSON object"),
        ('"text"', 'holds "text"; an otmoe file is one JSON object'),
        ("null", "holds null; an otmoe file is one JSON object"),
        (TEXT.encode("utf-16"), "byte 0 is not UTF-8 text; save the file as UTF-8"),
        (TEXT.replace("Nantes", "Besançon").encode("latin-1"), r"byte \d+ is not UTF-8 text"),
        (b"\x80\x04K\x01.", "byte 0 is not UTF-8 text"),
        (TEXT.replace("{", '{"site": "Lyon", ', 1), "`site` occurs twice; keep one of the two"),
        (TEXT.replace("0.25]", '0.25], "var": [1, 1]'), r"`model\.experts\.var` occurs twice"),
        (TEXT.replace('"coef"', '"coef": 1, "coef"', 1), r"`model\.gate\.coef` occurs twice"),
        (TEXT.replace("{", '{"": 1, "": 2, ', 1), r'`\[""\]` occurs twice'),
        (TEXT.replace("-421", "NaN"), "`log_likelihood` is NaN; give a finite number"),
        (TEXT.replace("-421", "1e999"), "`log_likelihood` is infinite or too large; give a finite"),
        (
            TEXT.replace("6.5", "-Infinity"),
            r"`model\.experts\.coef\[1\]\[2\]` is infinite or too l",
        ),
        (
            TEXT.replace("6.5", "9" * 5000),
            r"`model\.experts\.coef\[1\]\[2\]` is infinite or too la",
        ),
        (
            TEXT.replace("6.5", "9" * 299),
            r"`model\.experts\.coef\[1\]\[2\]` is 99.*9\.\.\.; give a",
        ),
        (TEXT.replace("Nantes", r"\ud800"), r"`site` holds the control character U\+D800"),
        ("[" * 100_000, "has more than 16 levels of lists and objects; if it should, read it with"),
        ('{"a":' * 100_000, "has more than 16 levels of lists and objects"),
        (TEXT.replace("-421", "[" * 9 + "]" * 9), "`log_likelihood` is a list of 1; give a num"),
    ],
)
def test_broken_text_is_refused(text, sentence):
    with pytest.raises(MessageError, match=f"^upload 7: {sentence}") as caught:
        LocalModel.from_json(text, source="upload 7")
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_a_path_is_no_text(tmp_path):
    with pytest.raises(TypeError, match="^message: the text is a .*Path; give str or bytes"):
        LocalModel.from_json(tmp_path / "lyon.moe.json")


NOTHING = object()


def changed(message, path, value):
    """Change one place of a message, such as "model.experts.var.1"."""
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = message
    for part in parents:
        place = place[part]
    if value is NOTHING:
        del place[last]
    else:
        place[last] = value
    return message


M = "model."
E = "model.experts."


@pytest.mark.parametrize(
    ("family", "path", "value", "sentence"),
    [
        # fields and types
        ("poisson", "otmoe", NOTHING, '`otmoe` is missing; an otmoe file says "local model" or'),
        ("poisson", "otmoe", "pickle", '`otmoe` is "pickle"; give "local model" or "model"'),
        ("poisson", "otmoe", ["model"], "`otmoe` is a list of 1; give"),
        ("poisson", "schema_version", NOTHING, "`schema_version` is null; this version of otmoe"),
        ("poisson", "schema_version", 2, "`schema_version` is 2; this version of otmoe reads 1"),
        ("poisson", "schema_version", True, "`schema_version` is true; this"),
        ("poisson", "schema_version", "1", '`schema_version` is "1"; this'),
        ("poisson", "site", NOTHING, "`site` is missing; add it"),
        ("poisson", "site", "", "`site` is empty; give the site a name"),
        ("poisson", "n_samples", 0, "`n_samples` is 0; give a number above 0"),
        ("poisson", "n_samples", -3.5, "`n_samples` is -3.5; give a number above 0"),
        ("poisson", "n_samples", "300", '`n_samples` is "300"; give a number'),
        ("poisson", "n_samples", True, "`n_samples` is true; give a number"),
        ("poisson", "log_likelihood", None, "`log_likelihood` is null; give a number"),
        ("poisson", "fit", "converged", '`fit` is "converged"; give an object'),
        ("poisson", "fit.converged", 1, "`fit.converged` is 1; give true or false"),
        ("poisson", "fit.status", "a\nb", "`fit.status` holds the control character U+000A"),
        ("poisson", "fit.warnings", ["a", 1], "`fit.warnings[1]` is 1; give text"),
        ("poisson", "rows", [1, 2], "`rows` is not a field of schema version 1; remove it"),
        ("poisson", "model.x y", 1, '`model["x y"]` is not a field'),
        ("poisson", "fit.warning", [], "`fit.warning` is not a field of schema version 1; remove"),
        ("poisson", "versions", {"otmoe": 1}, "`versions.otmoe` is 1; give text"),
        ("poisson", "versions", {"a\x00": "1"}, '`versions["a\\u0000"]` holds the control'),
        ("poisson", "model", [], "`model` is a list of 0; give an object"),
        ("poisson", M + "family", "cauchy", '`model.family` is "cauchy"; this version of otmoe'),
        ("poisson", M + "family", NOTHING, "`model.family` is missing"),
        ("poisson", M + "gate", NOTHING, "`model.gate` is missing"),
        ("poisson", M + "gate.coef.0.1", "0", '`model.gate.coef[0][1]` is "0"; give a num'),
        ("poisson", M + "gate.columns", [0, 1.5], "`model.gate.columns[1]` is 1.5; give a who"),
        ("poisson", E + "coef", NOTHING, "`model.experts.coef` is missing; add it"),
        ("poisson", E + "coef", 3, "`model.experts.coef` is 3; give a list"),
        ("poisson", E + "coef.0.2", None, "`model.experts.coef[0][2]` is null; give a num"),
        ("poisson", E + "coef.0.2", [1.0], "`model.experts.coef[0][2]` is a list of 1; give"),
        ("poisson", E + "var", [1, 1], "`model.experts.var` is not a field"),
        ("gaussian", E + "var", NOTHING, "`model.experts.var` is missing; add it"),
        ("gaussian", E + "var.1", 0, "`model.experts.var[1]` is 0; give a number above 0"),
        ("multinomial", E + "coef", [[1, 2]], "`model.experts.coef[0][0]` is 1; give a list"),
        # magnitudes
        ("poisson", E + "coef.0.2", 1e308, "`model.experts.coef[0][2]` is 1e+308; give a numb"),
        ("poisson", M + "gate.coef.0.2", -1e31, "`model.gate.coef[0][2]` is -1e+31; give a number"),
        ("poisson", "log_likelihood", -1e31, "`log_likelihood` is -1e+31; give a number of at lea"),
        ("poisson", "n_samples", 1e61, "`n_samples` is 1e+61; give a number of at most 1e+60."),
        ("gaussian", E + "var.0", 1e-61, "`model.experts.var[0]` is 1e-61; give a number of at"),
        ("poisson", "constant_features", {"x1": 1e31}, "`constant_features.x1` is 1e+31; give a n"),
        # shapes
        ("poisson", E + "coef", [], "`model.experts.coef` is empty; give coefficients"),
        ("poisson", E + "coef", [[], []], "`model.experts.coef[0]` is empty"),
        ("poisson", E + "coef", [[1, 2, 3]], "`model.gate.coef` has 2 entries; give 1, to agree"),
        ("poisson", E + "coef.1", [1, 2], "`model.experts.coef[1]` has 2 entries; give 3"),
        ("poisson", M + "gate.coef.0", [1, 2], "`model.gate.coef[0]` has 2 entries; give 3"),
        ("poisson", M + "gate.coef.0", [0] * 10**6, "`model.gate.coef[0]` has 1000000 entries"),
        ("gaussian", E + "var", [1], "`model.experts.var` has 1 entries; give 2"),
        ("gaussian", E + "var", ["a"] * 10**6, '`model.experts.var[0]` is "a"; give a number'),
        ("multinomial", E + "coef.1", [[1, 2, 3]], "`model.experts.coef[1]` has 1 entries"),
        ("multinomial", E + "coef", [[[0, 0, 0]]] * 2, "`model.experts.coef[0]` has a row for o"),
        # zeros of the reference and of what the gate leaves out
        ("poisson", M + "gate.coef.1.2", 1e-300, "`model.gate.coef[1][2]` is 1e-300; give 0"),
        ("poisson", M + "gate.coef.0.1", 2, "`model.gate.coef[0][1]` is 2.0; give 0: `model.g"),
        ("multinomial", E + "coef.0.2.1", 3, "`model.experts.coef[0][2][1]` is 3.0; give 0"),
        # names, columns, classes
        ("poisson", M + "gate.columns", [2], "`model.gate.columns` lacks 0, the intercept; add"),
        ("poisson", M + "gate.columns", [0, 3], "`model.gate.columns[1]` is 3; columns go from"),
        ("poisson", M + "gate.columns", [0, -1], "`model.gate.columns[1]` is -1; columns go f"),
        ("poisson", M + "gate.columns", [0, 2, 2], "`model.gate.columns[2]` is 2 a second time"),
        ("poisson", M + "feature_names", ["a"], "`model.feature_names` has 1 names; give 2"),
        ("poisson", M + "feature_names", ["a", "a"], '`model.feature_names[1]` is "a" a second'),
        ("poisson", M + "feature_names", ["a", 7], "`model.feature_names[1]` is 7; give text"),
        ("poisson", M + "feature_names", ["a", "\x1b"], "`model.feature_names[1]` holds the con"),
        ("poisson", M + "classes", ["a", "b"], "`model.classes` is a list, but this family has no"),
        ("logistic", M + "classes", ["a", "b", "c"], "`model.classes` has 3 labels; give 2, as t"),
        ("logistic", M + "classes", ["a", "a"], '`model.classes[1]` is "a" a second time'),
        ("logistic", M + "classes", ["a", None], "`model.classes[1]` is null; give text, a num"),
        ("logistic", M + "classes", ["a", ["b"]], "`model.classes[1]` is a list of 1; give tex"),
        ("logistic", M + "classes", ["a", "b" * 201], "`model.classes[1]` has 201 characters; giv"),
        ("logistic", M + "classes", ["a", "\ud800"], "`model.classes[1]` holds the control cha"),
        ("logistic", M + "classes", ["a", 1], "`model.classes` mixes types or has too large numb"),
        ("logistic", M + "classes", [False, 2], "`model.classes` mixes types or has too large nu"),
        ("logistic", M + "classes", [1, 10**30], "`model.classes` mixes types or has too large n"),
        ("logistic", M + "classes", [0.5, 2**60 + 1], "`model.classes` mixes types or has too la"),
        ("multinomial", M + "classes", ["a", "b"], "`model.classes` has 2 labels; give 3"),
        # constant features
        ("poisson", "constant_features", {"x2": 1}, "`constant_features.x2` is no feature of the"),
        ("poisson", "constant_features", {"x1": "1"}, '`constant_features.x1` is "1"; give a num'),
        ("poisson", "constant_features", [0], "`constant_features` is a list of 1; give an object"),
    ],
)  # fmt: skip
def test_a_broken_message_is_refused_by_name(family, path, value, sentence):
    text = json.dumps(changed(by_hand(family), path, value))
    with pytest.raises(MessageError) as caught:
        LocalModel.from_json(text, source="Nantes")
    message = str(caught.value)
    assert message.startswith(f"Nantes: {sentence}")
    assert len(message) < 300 and "\n" not in message and message.endswith(".")


def test_a_long_offender_is_cut_short():
    text = json.dumps(changed(by_hand(), "n" * 10**4, "v" * 10**4))
    with pytest.raises(
        MessageError, match=r'^message: `\["nnn.*\.\.\.\]` is not a field'
    ) as caught:
        LocalModel.from_json(text)
    assert len(str(caught.value)) < 300


def test_names_in_constant_features_are_those_of_the_model():
    text = json.dumps(by_hand() | {"constant_features": {"dose": 1}})
    with pytest.raises(MessageError, match=r"`constant_features\.dose` is no feature"):
        LocalModel.from_json(text)
    named = changed(json.loads(text), "model.feature_names", ["age", "dose"])
    assert LocalModel.from_json(json.dumps(named)).constant == {"dose": 1.0}


@pytest.mark.parametrize(
    ("about", "sentence"),
    [
        ({"runs": [1]}, "`about.runs` is a list of 1; give text, a number"),
        ({"runs": float("nan")}, "`about.runs` is NaN; give text, a number"),
        ({3: "a"}, r"`about\[3\]` is 3; give text"),
    ],
)
def test_what_is_said_about_a_model_is_plain(about, sentence, tmp_path):
    with pytest.raises(MessageError, match=f"^model: {sentence}"):
        save_model(MODELS["poisson"], tmp_path / "model.moe.json", about)
    assert os.listdir(tmp_path) == []


def test_parameters_that_do_not_fit_together_are_not_sent():
    gate = SoftmaxGate(np.array([[1.0, 0.0], [0.0, 1.0]]))
    experts = MultinomialExperts.blank(2, 2, 3)
    with pytest.raises(MessageError, match=r'^site "Lyon": `model\.gate\.coef\[1\]\[1\]` is 1\.0'):
        local(MoE(gate, experts))
    with pytest.raises(MessageError, match=r"`model\.gate\.coef\[0\]` has 2 entries; give 4"):
        local(MoE(gate, MultinomialExperts.blank(2, 4, 3)))


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "lyon.moe.json"
    path.write_text(TEXT[:300])
    for read in (LocalModel.load, load_model):
        with pytest.raises(MessageError, match="lyon.moe.json: ends too early"):
            read(path)


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
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == (
        {path.name: old} if old else {}
    )


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
    with pytest.raises(FileNotFoundError, match="cannot write lyon.moe.json: there is no folder"):
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
    documented = set(re.findall(r"^\| `([\w.]+)`", text, flags=re.MULTILINE))
    features = FeatureSpec.of_names(["a", "b", "c"])
    rows = np.random.default_rng(0).normal(size=(20, 3))
    brought = {"sketch": Sketch.fit(rows), "support": rows[:2]}
    document = json.loads(local(MODELS["gaussian"], features=features, **brought).to_json())

    def paths(value, prefix=""):
        for key, inner in value.items():
            objects = ("constant_features", "versions", "constant", "units")
            nested = isinstance(inner, dict) and key not in objects
            yield from paths(inner, f"{prefix}{key}.") if nested else [prefix + key]

    merging = {f"aggregation.{name}" for name in AggregationRecord.model_fields}
    assert documented == {*paths(document), "about", *merging}
