"""Messages that somebody has spoilt: our own error or a valid model, never anything else.

`make test` tries 500 of them, `make fuzz` 10,000; with SEED=1, 2, ... they are other ones.
"""

import json
import os
import re
import time
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from oracles import differing_sites, how_they_differ, message, random_model

from otmoe import FeatureSpec, LocalModel, Sketch, aggregate, report, save_model
from otmoe.aggregation import METHODS
from otmoe.data.columns import Column
from otmoe.documents.files import load_model_file
from otmoe.documents.json_schema import json_schema
from otmoe.documents.model_file import ModelFile
from otmoe.documents.state import RefineState
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.text.errors import MessageError

CASES = int(os.environ.get("OTMOE_FUZZ", "500"))
SEED = int(os.environ.get("OTMOE_SEED", "0"))
SCHEMA = Draft202012Validator(json_schema("local model"))
SCHEMAS = [
    Draft202012Validator(json_schema(f"refine {kind}")) for kind in ("state", "request", "reply")
]
PART = 50  # cases in a test
SECONDS = 10  # that a case may take; nearly all take a tenth of one

SPEC = FeatureSpec(
    (Column("age", center=40.0, scale=10.0), Column("sex", "category", levels=("f", "m"))), "error"
)


def local(rng, family, site):
    """Return a message that has every field."""
    model = random_model(rng, 2, 2, columns=(0, 1), family=family)
    labels = {"logistic": ["no", "yes"], "multinomial": ["no", "yes", "perhaps"]}.get(family)
    labels = None if labels is None else np.array(labels)
    model = replace(model, feature_names=SPEC.feature_names, classes=labels)
    blind = site == "Lyon" and family == "poisson"  # one level of the category alone
    X = np.column_stack([rng.normal(size=60), np.full(60, 1) if blind else np.arange(60) % 2])
    fit = {"log_likelihood": -421.5, "warnings": ("two columns are collinear.",)}
    constant = {"sex=m": 1.0} if blind else {}
    brought = {"features": SPEC, "sketch": Sketch.fit(X, features=SPEC), "support": X[:5]}
    return message(model, site, 300.0, **fit, constant=constant, **brought)


rng = np.random.default_rng(0)
MESSAGES = {family: local(rng, family, "Lyon") for family in FAMILIES}
OTHERS = {family: local(rng, family, "Nantes") for family in FAMILIES}
SUPPORT = rng.normal(size=(40, 2))
SUPPORT[:20, 1] = 1.0

# -- how to spoil a text -----------------------------------------------------------------------

NUMBER = re.compile(r"-?\d[\d.eE+-]*")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[][{}:,]')
NUMBERS = """
    0 -0.0 1 -1 3.0 2.5 1e1 1E5 -700 710 1e10 -1e20 1e30 -1e30 1.1e30 1e-30 1e60 1e-60 1e61 1e-61
    1e308 -1e308 1e309 5e-324 1e-320 NaN Infinity -Infinity 00 1. +1 0x10 1e ١ true null "1" [] {}
    [1] [[1]]
""".split()
NUMBERS += ["9" * 299, "9" * 400, "9" * 5000, "0." + "1" * 5000]
TOKENS = [*NUMBERS, '""', r'"\ud800"', '"\x1b[31m"', r'"\u0000"', r'"\u202e"', '"\x7f"', '"😀"']
TOKENS += ['"' + "a" * 300 + '"', '"' + "a" * 20_000 + '"', "[" * 50, "[" * 20 + "]" * 20]
TOKENS += ['{"a":' * 20, "//", "'", "\ufeff", ",", ":", "]", "}", '"x-a": 1,', '"a": 1, "a": 2']
VALUES = [None, True, 0, 1.5, -3, "a", [], {}, [[1.0, 2.0, 3.0]], 2.0**60, 1e30, 10**40]


def one_of(rng, things):
    return things[int(rng.integers(len(things)))]


def flipped(text, rng):
    """Flip a bit or a few."""
    spoilt = bytearray(text)
    for _ in range(one_of(rng, [1, 1, 2, 8])):
        spoilt[rng.integers(len(spoilt))] ^= 1 << int(rng.integers(8))
    return bytes(spoilt)


def cut(text, rng):
    return text[: rng.integers(len(text))]


def spliced(text, rng):
    """Put a piece of this or another message somewhere, between or over what is there."""
    source = one_of(rng, [text, one_of(rng, list(MESSAGES.values())).to_json().encode()])
    begin, end = np.sort(rng.integers(len(source), size=2))
    place = int(rng.integers(len(text)))
    return text[:place] + source[begin:end] + text[place + one_of(rng, [0, end - begin]) :]


def exchanged(text, rng, pattern=TOKEN, choices=TOKENS):
    """Put other tokens in the places of one to three."""
    spoilt = text.decode()
    for _ in range(rng.integers(1, 4)):
        found = one_of(rng, list(pattern.finditer(spoilt)))
        spoilt = spoilt[: found.start()] + one_of(rng, choices) + spoilt[found.end() :]
    return spoilt.encode()


def renumbered(text, rng):
    return exchanged(text, rng, NUMBER, NUMBERS)


def doubled(text, rng):
    """Give a key twice."""
    spoilt = text.decode()
    key = one_of(rng, list(re.finditer(r'"\w+": ', spoilt)))
    twice = f"{key[0]}{one_of(rng, TOKENS)}, "
    return (spoilt[: key.start()] + twice + spoilt[key.start() :]).encode()


def places(value):
    """Yield every place in a document, as what holds it and its key there, however deep."""
    left = [value]
    while left:
        holder = left.pop()
        for key in list(holder if isinstance(holder, dict) else range(len(holder))):
            yield holder, key
            if isinstance(holder[key], dict | list):
                left.append(holder[key])


def rearranged(text, rng):
    """Drop, repeat, exchange or replace one or two values, so that the text stays JSON."""
    document = json.loads(text)
    for _ in range(rng.integers(1, 3)):
        holder, key = one_of(rng, list(places(document)))
        other, its = one_of(rng, list(places(document)))
        way = rng.integers(4)
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder, list):
            holder.insert(key, holder[key])
        elif way == 2:
            holder[key] = json.loads(json.dumps(other[its]))
        else:
            holder[key] = one_of(rng, VALUES)
    return json.dumps(document).encode()


def extreme(text, rng):
    """Make parameters huge or tiny, but none that is refused for its size."""
    document = json.loads(text)
    model = document["model"]
    share, decades = one_of(rng, [0.05, 0.3, 1.0]), one_of(rng, [2, 5, 20, 30])

    def other(value):
        if isinstance(value, list):
            return [other(part) for part in value]
        if rng.random() > share or value == 0:  # zeros may have to be zeros
            return value
        sizes = [1e30, 1e15, 800.0, 30.0, 1e-30, 0.0, 10 ** rng.uniform(-decades, decades)]
        size = one_of(rng, sizes)
        return one_of(rng, [-1, 1]) * float(size)

    for part in (model["experts"], model["gate"]):
        part["coef"] = other(part["coef"]) if rng.random() < 0.7 else part["coef"]
    if "var" in model["experts"]:
        model["experts"]["var"] = (10 ** rng.uniform(-2 * decades, 2 * decades, 2)).tolist()
    if rng.random() < 0.5:
        document["n_samples"] = float(10 ** rng.uniform(-60, 60))
    if rng.random() < 0.3:
        document["constant_features"] = {"age": one_of(rng, [1e30, SUPPORT[0, 0], -1e-30])}
    if rng.random() < 0.2:  # another number of experts
        for part in (model["gate"], model["experts"]):
            part.update({name: [v[0], *v] for name, v in part.items() if name != "columns"})
    return json.dumps(document).encode()


def wilder(text, rng):
    """Make numbers of a refine round huge, tiny, or of the other sign."""
    document = json.loads(text)
    share = one_of(rng, [0.02, 0.3, 1.0])

    def other(value):
        if isinstance(value, list):
            return [other(part) for part in value]
        if not isinstance(value, float) or rng.random() > share:
            return value
        return float(one_of(rng, [-value, 0.0, 1e30, -1e30, value * 10 ** rng.uniform(-9, 9)]))

    for part in (document, document.get("best") or {}):
        for name in ("score", "information", "x_mean", "theta"):
            if name in part and rng.random() < 0.7:
                part[name] = other(part[name])
        if "scatter" in part and rng.random() < 0.3:
            part["scatter"]["matrix"] = other(part["scatter"]["matrix"])
    if "x_var" in document:
        document["x_var"] = [abs(value) for value in other(document["x_var"])]
    if rng.random() < 0.3 and "log_likelihood" in document:
        document["log_likelihood"] = other(document["log_likelihood"])
    return json.dumps(document).encode()


WAYS = [flipped, cut, spliced, exchanged, renumbered, doubled, rearranged, extreme, extreme]

# -- what may come of it -----------------------------------------------------------------------


def assert_sentence(error):
    assert len(str(error)) < 600 and str(error).isprintable(), str(error)


def outcome(text, family, method="reduction", support=None):
    """Read a text, and merge what it holds with a valid model; return how far it came."""
    support = SUPPORT if support is None else support
    try:
        found = LocalModel.from_json(text, source="upload")
    except MessageError as error:
        assert error.where == "upload"
        assert_sentence(error)
        return "refused"
    again = found.to_json()
    assert LocalModel.from_json(again).to_json() == again
    SCHEMA.validate(json.loads(text))  # what the schema refuses, we do
    assert np.all(np.isfinite(found.model.predict(np.zeros((3, found.model.n_features)))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what aggregate has to say
        try:
            merged = aggregate([OTHERS[family], found], support, 2, method=method)
        except ValueError as error:
            assert_sentence(error)
            assert repr(found.site) in str(error)
            return "turned away"
    assert np.all(np.isfinite(merged.model.predict(SUPPORT)))
    assert np.isfinite(merged.cost) and np.all(np.isfinite(merged.trace))
    if method != "ensemble":
        assert np.all(np.isfinite(merged.model.to_vector()))
    return "merged"


@pytest.mark.parametrize("part", range(max(CASES * 3 // 5 // PART, 1)))
def test_a_spoilt_message_is_refused_or_valid(part):
    seen = set()
    for case in range(part * PART, (part + 1) * PART):
        rng = np.random.default_rng([SEED, case])
        family = one_of(rng, list(FAMILIES))
        text = one_of(rng, WAYS)(MESSAGES[family].to_json().encode(), rng)
        method = one_of(rng, ["reduction"] * 5 + list(METHODS))
        support = one_of(rng, [SUPPORT, 40])  # given, or drawn from what the messages bring
        begin = time.process_time()
        try:
            seen.add(outcome(text, family, method, support))
        except Exception as error:
            error.add_note(f"case {case} of seed {SEED}: {family}, {method}, {text[:5000]!r}")
            raise
        assert time.process_time() - begin < SECONDS
    assert {"refused", "merged"} <= seen


def test_an_expert_whose_deviation_is_below_the_rounding_of_its_mean_is_merged():
    document = json.loads(MESSAGES["gaussian"].to_json())
    document["model"]["experts"] = {"coef": [[-1e30, 0.1, -0.5], [0.4, 1.3, 0.1]]}
    document["model"]["experts"]["var"] = [7626.0, 0.0013]
    document["model"]["gate"]["coef"] = [[0.1, -1e30, 0.0], [0.0, 0.0, 0.0]]
    assert outcome(json.dumps(document), "gaussian") in ("merged", "turned away")


@cache
def merged_file(family):
    """Return a model file that says how the model was merged."""
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder, "model.json")
        aggregate([MESSAGES[family], OTHERS[family]], SUPPORT).save(path, {"made by": "Åsa"})
        return path.read_text()


@cache
def personal_file(family):
    """Return a model file that says how sites differ."""
    rng, model = np.random.default_rng(2), MESSAGES[family].model
    between = how_they_differ(model, differing_sites(rng, model, 3))
    return ModelFile(model, SPEC, {"made by": "Åsa"}, None, between).to_json()


@pytest.mark.parametrize("part", range(max(CASES // 5 // PART, 1)))
def test_a_spoilt_file_of_a_model_or_of_features_is_refused_or_valid(part, tmp_path):
    path = tmp_path / "upload.json"
    for case in range(part * PART, (part + 1) * PART):
        rng = np.random.default_rng([SEED, case, 1])
        if case % 2:
            family = one_of(rng, list(FAMILIES))
            if case % 4 == 1:
                save_model(MESSAGES[family].model, path, {"made by": "Åsa"}, SPEC)
            elif case % 8 == 3:
                path.write_text(personal_file(family))
            else:
                path.write_text(merged_file(family))
        else:
            SPEC.save(path)
        path.write_bytes(one_of(rng, WAYS[:7])(path.read_bytes(), rng))
        try:
            if case % 2:
                file = load_model_file(path)
                model, between = file.model, getattr(file, "between", None)
                if between is not None:
                    assert type(file).from_json(file.to_json()).to_json() == file.to_json()
                    for effect in between.sites:
                        between.model_of(effect.site)
                assert np.all(np.isfinite(model.predict(np.zeros((3, model.n_features)))))
                assert report(path).count("<script") == 2
            else:
                spec = FeatureSpec.load(path)
                assert FeatureSpec.from_json(spec.to_json()) == spec
        except MessageError as error:
            assert error.where == str(path)
            assert_sentence(error)


@cache
def asked(family):
    """Return a state that waits for its second round, the request, two sites' replies and rows."""
    rng = np.random.default_rng(1)
    model = MESSAGES[family].model
    X = np.column_stack([rng.normal(size=120), np.arange(120) % 2])
    y, _ = model.sample(X, rng)
    rows = {"Lyon": Rows(X[:70], y[:70]), "Nantes": Rows(X[70:], y[70:])}
    sizes, groups = {"Lyon": 70, "Nantes": 50}, {"Lyon": np.arange(70) // 3}
    state = begin(model, sizes, Scaling.of(X), features=SPEC, sandwich=True)
    for _ in range(2):
        request = request_of(state)
        replies = [
            reply_to(request, part, site, sandwich=True, groups=groups.get(site))
            for site, part in rows.items()
        ]
        before, state = state, step(state, replies)
    return before, request, replies, rows


def refined(text, family, which):
    """Read a text as a part of a refine round, and go on with it; return how far it came."""
    state, request, replies, rows = asked(family)
    kind = type((state, request, replies[0])[which])
    try:
        found = kind.from_json(text, source="upload")
    except MessageError as error:
        assert error.where == "upload"
        assert_sentence(error)
        return "refused"
    assert kind.from_json(found.to_json()).to_json() == found.to_json()
    SCHEMAS[which].validate(json.loads(text))
    try:
        if which == 0:
            after = step(found, replies)
        elif which == 1:
            after = step(state, [reply_to(found, rows["Lyon"], "Lyon"), replies[1]])
        else:
            after = step(state, [found, replies[1]])
    except MessageError as error:
        assert_sentence(error)
        return "turned away"
    assert np.all(np.isfinite(after.model.to_vector()))
    assert RefineState.from_json(after.to_json()).to_json() == after.to_json()
    return "refined"


@pytest.mark.parametrize("part", range(max(CASES * 2 // 5 // PART, 1)))
def test_a_spoilt_part_of_a_refine_round_is_refused_or_valid(part):
    seen = set()
    for case in range(part * PART, (part + 1) * PART):
        rng = np.random.default_rng([SEED, case, 2])
        family = one_of(rng, list(FAMILIES))
        which = one_of(rng, [0, 1, 2, 2])
        state, request, replies, _ = asked(family)
        text = (state, request, replies[0])[which].to_json().encode()
        spoil = one_of(rng, [*WAYS[:7], wilder, wilder])
        started = time.process_time()
        try:
            seen.add(refined(spoil(text, rng), family, which))
        except Exception as error:
            error.add_note(f"case {case} of seed {SEED}: {family}, {which}, {spoil.__name__}")
            raise
        assert time.process_time() - started < SECONDS
    assert {"refused", "refined"} <= seen


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([1e30, -1e30, 10**400, "", "x-", "\x1b"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["coef", "var", "x-a", "name", "kind"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=max(CASES // 5, 1))
@given(data=st.data(), family=st.sampled_from(list(FAMILIES)), value=documents)
def test_any_value_in_any_place_is_refused_or_valid(data, family, value):
    document = json.loads(MESSAGES[family].to_json())
    holder, key = data.draw(st.sampled_from(list(places(document))))
    holder[key] = value
    outcome(json.dumps(document), family)


@given(st.text() | st.binary())
def test_text_that_is_no_message_is_refused(text):
    assert outcome(text, "gaussian") == "refused"
