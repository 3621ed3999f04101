"""What is read of a file from elsewhere, and what that may cost."""

import json
import os
import re
import threading
import time
import tracemalloc
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import random_model
from refusals import refused

from otmoe import FeatureSpec, Limits, LocalModel, load_features, load_model
from otmoe.documents.request import RefineRequest
from otmoe.likelihood.rows import Scaling
from otmoe.text.errors import MessageError
from otmoe.text.records import Record
from otmoe.text.sentences import Error
from otmoe.text.strict_json import parse

READERS = [LocalModel.load, load_model, load_features, FeatureSpec.load]
NO_LIMITS = Limits(**{limit.name: 10**9 for limit in fields(Limits)})


def message(K=2, p=3, C=None, number=1.5):
    """Return the text of a message with K experts and p columns, of C classes."""
    row = [number] * p
    experts = [row] * K if C is None else [[row] * (C - 1) + [[0] * p]] * K
    model = {
        "family": "poisson" if C is None else "multinomial",
        "gate": {"coef": [row] * (K - 1) + [[0] * p]},
        "experts": {"coef": experts},
    }
    about = {"otmoe": "local model", "schema_version": 1, "site": "Nantes", "n_samples": 300}
    fit = {"log_likelihood": -421, "fit": {"converged": True, "status": "converged"}}
    return json.dumps(about | fit | {"model": model})


TEXT = message()
ROW = "[1.5, 1.5, 1.5]"

# -- what is counted ---------------------------------------------------------------------------

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(width=16) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5)
    ),
    max_leaves=30,
)


def counted(value):
    """Return the depth, the number of values and the longest text of a document, by recursion."""
    if isinstance(value, str):
        return 0, 0, len(json.dumps(value)) - 2
    if not isinstance(value, dict | list):
        return 0, 0, 0
    parts = list(value.values()) + list(value) if isinstance(value, dict) else value
    inside = [counted(part) for part in parts]
    depth, values, text = zip(*inside, strict=True) if inside else ((0,), (0,), (0,))
    return 1 + max(depth), max(len(value), 1) + sum(values), max(text)


@given(document=st.dictionaries(st.text(max_size=6), documents, max_size=5))
def test_limits_are_exact(document):
    text = json.dumps(document, indent=1)
    found = dict(zip(("depth", "values", "text"), counted(document), strict=True))
    exact = {name: max(count, 1) for name, count in found.items()}
    parse(text, "upload", Limits(**exact, bytes=len(text)))
    for name, count in {**found, "bytes": len(text)}.items():
        if count > 1:
            with refused("limit", limit=name, most=count - 1):
                parse(text, "upload", Limits(**{name: count - 1}))


@pytest.mark.parametrize(
    ("name", "most", "text"),
    [
        ("bytes", 100, TEXT),
        ("depth", 4, TEXT),
        ("values", 20, TEXT),
        ("text", 12, TEXT.replace("Nantes", "Saint-Nazaire")),
        ("experts", 2, message(K=3)),
        ("features", 1, TEXT),
        ("classes", 3, message(C=4)),
    ],
)
def test_a_limit_is_named_and_can_be_raised(name, most, text, tmp_path):
    path = tmp_path / "nantes.moe.json"
    path.write_text(text)
    for read in (LocalModel.load, load_model, load_features):
        with refused("limit", where=str(path), limit=name, most=most) as caught:
            read(path, limits=Limits(**{name: most}))
        assert f"limits=otmoe.Limits({name}=...)" in str(caught.value)
    assert LocalModel.from_json(text).model.n_experts >= 2


def test_features_of_a_file_of_their_own_are_limited(tmp_path):
    spec = FeatureSpec.of_names(["a", "b", "c"])
    spec.save(path := tmp_path / "features.json")
    for read in (FeatureSpec.load, load_features):
        assert read(path, limits=Limits(features=3)) == spec
        with refused("limit", where=str(path), limit="features", most=2):
            read(path, limits=Limits(features=2))


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "100", None])
def test_an_impossible_limit_is_refused(wrong):
    refused("not_whole", name="limits.values", value=wrong).by(Limits, values=wrong)


def test_what_is_made_here_is_not_limited():
    model = random_model(np.random.default_rng(0), 101, 1)
    sent = LocalModel("Lyon", model, 10.0, -1.0, True, "converged")
    refused("limit", limit="experts", most=100).by(LocalModel.from_json, sent.to_json())
    assert LocalModel.from_json(sent.to_json(), limits=Limits(experts=101)).model.n_experts == 101


def test_64_experts_of_2000_features_are_read():
    text = message(64, 2001, number=-1 / 3)
    assert len(text) > 5_000_000
    assert LocalModel.from_json(text, "upload")


def test_the_documentation_has_every_limit():
    text = (Path(__file__).parents[2] / "docs" / "message.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Limits\n(.*?)^## ", text, flags=re.DOTALL | re.MULTILINE)
    documented = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", section, flags=re.MULTILINE))
    found = {name: int(most.replace(",", "")) for name, most in documented.items()}
    assert found == {limit.name: getattr(Limits(), limit.name) for limit in fields(Limits)}


# -- files that are too large, or no files -----------------------------------------------------


def cost(function, *args):
    """Return the error of a call, the most memory it took in bytes, and its processor time."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        with pytest.raises(MessageError) as caught:
            function(*args)
        return caught.value, tracemalloc.get_traced_memory()[1], time.process_time() - begin
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("read", READERS)
def test_a_gigabyte_of_zeros_is_not_read(read, tmp_path):
    path = tmp_path / "zeros.moe.json"
    with path.open("wb") as file:
        file.truncate(2**30)  # a hole: it takes no room on the disk
    error, memory, seconds = cost(read, path)
    assert error.where == str(path) and error.facts["limit"] == "bytes"
    assert memory < 100_000 and seconds < 1


def test_ten_million_zeros_are_counted_before_they_are_parsed():
    text = b'{"a": [' + b"0," * 10**7 + b"0]}"
    error, memory, seconds = cost(parse, text, "upload", Limits(bytes=10**8))
    assert error.where == "upload" and error.facts["limit"] == "values"
    assert memory < 3 * len(text) and seconds < 5


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no /dev/zero")
@pytest.mark.parametrize("read", READERS)
def test_a_device_is_refused(read):
    refused("no_plain_file", MessageError, where="/dev/zero").by(read, "/dev/zero")


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="there is no /dev/fd")
def test_a_stream_without_end_is_read_up_to_the_limit():
    with open("/dev/zero", "rb") as zeros:
        path = f"/dev/fd/{zeros.fileno()}"
        error, memory, _ = cost(LocalModel.load, path, Limits(bytes=3_000_000))
    assert error.where == path and error.facts["most"] == 3_000_000
    assert memory < 7_000_000


def test_a_file_that_grows_is_read_up_to_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "nantes.moe.json"
    path.write_text(TEXT)
    size = path.stat()
    path.write_text(TEXT + " " * 10**6)
    monkeypatch.setattr(os, "fstat", lambda file: size)
    with refused("limit", where=str(path), limit="bytes", most=1000):
        LocalModel.load(path, Limits(bytes=1000))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_nobody_waits_for_a_named_pipe(tmp_path):
    os.mkfifo(path := tmp_path / "pipe.json")
    begin = time.monotonic()
    refused("no_plain_file", MessageError, where=str(path)).by(LocalModel.load, path)
    assert time.monotonic() - begin < 5


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="there is no /dev/fd")
def test_what_a_shell_hands_over_is_read():
    here, there = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(there, TEXT.encode()), os.close(there)))
    writer.start()
    assert LocalModel.load(f"/dev/fd/{here}").site == "Nantes"
    writer.join()
    os.close(here)


def test_a_file_cannot_forge_lines_by_its_name(tmp_path):
    (tmp_path / "a\n\x1b[31mb").write_text("{")
    with refused("json_cut", length=1, where=str(tmp_path / "a??[31mb")):
        LocalModel.load(tmp_path / "a\n\x1b[31mb")


# -- bounded memory and time -------------------------------------------------------------------

SIZE = 30_000


def listed(unit):
    """Return a list of equal things."""
    return "[" + ",".join([unit] * (SIZE // (len(unit) + 1))) + "]"


def texts(size=SIZE // 12, text="{:06}"):
    """Return a list of different texts."""
    return json.dumps([text.format(i) for i in range(size)])


def fields_of(value, name="k{:06}"):
    """Return an object with different fields of one value."""
    return json.dumps({name.format(i): value for i in range(SIZE // 12)})


def named(name, value):
    """Put a field before the first of a message."""
    return TEXT.replace("{", f'{{"{name}": {value}, ', 1)


def within(place, name, value):
    """Put a field into an object of a message."""
    return TEXT.replace(f'"{place}": {{', f'"{place}": {{"{name}": {value}, ')


COLUMN = '{"name":"a","kind":"number"}'
COLUMNS = json.dumps([{"name": f"a{i}", "kind": "number"} for i in range(SIZE // 30)])
NASTY = {
    "zeros": TEXT.replace(ROW, listed("0"), 1),
    "numbers": TEXT.replace(ROW, listed("1.5"), 1),
    "rows": TEXT.replace(f"[{ROW}, {ROW}]", listed("[0]")),
    "experts": message(SIZE // 10, 1),
    "empty lists": TEXT.replace(ROW, listed("[]"), 1),
    "empty objects": TEXT.replace(ROW, listed("{}"), 1),
    "unknown fields": TEXT[:-1] + ", " + fields_of(0)[1:],
    "ignored fields": TEXT[:-1] + ", " + fields_of(0, "x-{}")[1:],
    "ignored objects": named("x-", listed("{}")),
    "wrong constants": named("constant_features", fields_of("a")),
    "unknown constants": named("constant_features", fields_of(0)),
    "versions": named("versions", fields_of("a")),
    "wrong versions": named("versions", fields_of(0)),
    "warnings": within("fit", "warnings", listed('""')),
    "wrong warnings": within("fit", "warnings", listed("0")),
    "names": within("model", "feature_names", texts()),
    "columns": within("gate", "columns", listed("0")),
    "features": named("features", f'{{"columns": {COLUMNS}}}'),
    "same features": named("features", f'{{"columns": {listed(COLUMN)}}}'),
    "deep lists": TEXT.replace(ROW, "[" * SIZE + "]" * SIZE, 1),
    "deep objects": TEXT.replace(ROW, '{"a":' * SIZE, 1),
    "a long text": TEXT.replace("Nantes", "a" * SIZE),
    "a long name": named("a" * SIZE, 0),
    "escapes": TEXT.replace("Nantes", r"\u0000" * (SIZE // 6)),
    "wide characters": TEXT.replace("Nantes", "😀" * (SIZE // 4)),
    "digits": TEXT.replace("300", "9" * SIZE),
    "decimals": TEXT.replace("300", "0." + "9" * SIZE),
    "open quotes": TEXT.replace('"Nantes"', '"\\' * (SIZE // 2)),
    "closed quotes": TEXT.replace('"Nantes"', '"' * SIZE),
    "spaces": TEXT + " " * SIZE + "0",
    "nothing": "\0" * SIZE,
    "one key": TEXT[:-1] + ', "a":0' * (SIZE // 7) + "}",
    "commas": TEXT + "," * SIZE,
    "brackets": TEXT + "]" * SIZE,
    "no end": '{"a": ' + listed("0")[:-1],
    "classes": message(1, 1, SIZE // 10).replace(
        '"gate"', f'"classes": {texts(SIZE // 10 - 1)[:-1]}, "{"a" * 200}"], "gate"'
    ),
}


@pytest.mark.parametrize("limits", [Limits(), NO_LIMITS], ids=["limited", "unlimited"])
@pytest.mark.parametrize("name", NASTY)
def test_memory_and_time_are_in_proportion_to_the_text(name, limits):
    text = NASTY[name].encode()

    def read():
        LocalModel.from_json(text, limits=limits)
        raise MessageError(Error.NO_ROWS)  # some are valid without limits

    error, memory, seconds = cost(read)
    assert len(str(error)) < 300 and str(error).isprintable()
    assert memory < 100 * len(text) + 10**6
    assert seconds < 10 * len(text) / SIZE


# -- bounds on every part ----------------------------------------------------------------------


def records(kind=Record):
    for sub in kind.__subclasses__():
        yield sub
        yield from records(sub)


def test_the_entries_of_every_object_are_checked_some_at_a_time():
    """Else a million wrong ones are gathered as a million errors."""
    found = {
        f"{record.__name__}.{name}"
        for record in records()
        if record.__module__.startswith("otmoe.")
        for name, field in record.model_fields.items()
        if str(field.annotation).startswith("dict[") and not field.metadata
    }
    assert found <= {"ModelRecord.experts"}  # whose fields are those of a record, checked later


def test_many_wrong_units_of_a_sketch_take_little_room():
    document = json.loads(TEXT)
    wrong = ",".join(f'"{i}":0' for i in range(60_000))
    document["sketch"] = {"weight": [1.0], "mean": [[]], "cov": [[]], "units": "HERE"}
    text = json.dumps(document).replace('"HERE"', f"{{{wrong}}}")
    error, memory, _ = cost(LocalModel.from_json, text, "upload")
    assert error.at.startswith("sketch.units") and memory < 25e6


def test_a_request_whose_reply_nobody_could_read_is_refused(monkeypatch):
    """A request of 90 kB may ask for a matrix of a gigabyte."""
    model = random_model(np.random.default_rng(0), 40, 60)
    asked = RefineRequest(1, model, Scaling())
    text = asked.to_json()
    error, memory, seconds = cost(RefineRequest.from_json, text, "request")
    assert error.code == "reply_too_large" and error.facts["parameters"] == model.n_parameters
    assert memory < 20e6 and seconds < 5
