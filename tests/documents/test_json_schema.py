import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from oracles import random_model, random_rows
from refusals import NOTHING, put

from otmoe import FeatureSpec, LocalModel, save_model
from otmoe.data.columns import Column
from otmoe.documents.json_schema import KINDS, file_name, json_schema
from otmoe.federation.rounds import begin, reply_to, request_of, step
from otmoe.likelihood.rows import Rows, Scaling
from otmoe.text.errors import MessageError

DOCS = Path(__file__).parents[2] / "docs"
VALIDATORS = {kind: Draft202012Validator(json_schema(kind)) for kind in KINDS}
SPEC = FeatureSpec(
    (Column("age", center=40.0, scale=10.0), Column("sex", "category", levels=("f", "m")))
)


def message(family="gaussian", **changes):
    """Return a message with every field, as a document."""
    model = random_model(np.random.default_rng(0), 2, 2, columns=(0, 1), family=family)
    labels = {"logistic": ["no", "yes"], "multinomial": ["no", "yes", "perhaps"]}.get(family)
    classes = None if labels is None else np.array(labels)
    model = replace(model, feature_names=SPEC.feature_names, classes=classes)
    sent = LocalModel(
        "Lyon", model, 300.0, -421.5, True, "converged", ("a.",), {"age": 1.0}, features=SPEC
    )
    return json.loads(sent.to_json())


def test_every_schema_is_one():
    for validator in VALIDATORS.values():
        Draft202012Validator.check_schema(validator.schema)


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_schema_is_up_to_date(kind):
    path = DOCS / "schema" / file_name(kind)
    assert json.loads(path.read_text()) == json_schema(kind), (
        "run: .venv/bin/python -m otmoe.documents.json_schema docs/schema"
    )
    assert f"<schema/{path.name}>" in (DOCS / "message.md").read_text()


def names_in(schema):
    """Yield the names of all fields of a schema."""
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, dict | list):
            yield from names_in(part)
    yield from schema.get("properties", {}) if isinstance(schema, dict) else ()


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_names_every_field(kind):
    page = "".join((DOCS / name).read_text() for name in ("message.md", "shards.md"))
    code = " ".join(re.findall(r"`[^`\n]+`", page))
    named = set(re.findall(r"\w+", code))
    assert set(names_in(json_schema(kind))) - named == set()


def test_what_is_written_is_valid(family, tmp_path):
    document = message(family)
    VALIDATORS["local model"].validate(document)
    save_model(LocalModel.from_json(json.dumps(document)).model, tmp_path / "m", {"runs": 3}, SPEC)
    VALIDATORS["model"].validate(json.loads((tmp_path / "m").read_text()))
    VALIDATORS["features"].validate(json.loads(SPEC.to_json()))
    bare = random_model(np.random.default_rng(0), 3, 2, family=family)
    sent = LocalModel("Lyon", bare, 1.0, 0.0, False, "stopped", versions={})
    VALIDATORS["local model"].validate(json.loads(sent.to_json()))


def test_what_is_written_in_refine_rounds_is_valid(family):
    rng = np.random.default_rng(0)
    model = random_model(rng, 2, 2, columns=(0, 1), family=family)
    X, y = random_rows(rng, model, 300)
    state = begin(model, {"Lyon": 300}, Scaling.of(X), sandwich=True)
    reply = reply_to(request_of(state), Rows(X, y), "Lyon", groups=np.arange(300) // 4)
    after = step(state, [reply])
    for kind, written in [
        ("refine request", request_of(state)),
        ("refine reply", reply),
        ("refine state", state),
        ("refine state", after),
    ]:
        VALIDATORS[kind].validate(json.loads(written.to_json()))
    written = json.loads(reply.to_json())
    assert not VALIDATORS["refine reply"].is_valid(written | {"score": [1.0, "2"]})
    text = {"scatter": {**written["scatter"], "n_groups": "75"}}
    assert not VALIDATORS["refine reply"].is_valid(written | text)


def test_what_other_languages_write_is_valid():
    written = json.loads((Path(__file__).parent / "from_r.moe.json").read_text())
    VALIDATORS["local model"].validate(written)
    written["schema_version"], written["model"]["gate"]["columns"] = 1.0, [0.0, 1.0]
    written["x-ours"] = written["model"]["x-ours"] = written["model"]["experts"]["x-ours"] = [{}]
    VALIDATORS["local model"].validate(written)


@pytest.mark.parametrize(
    ("family", "path", "value"),
    [
        ("gaussian", "otmoe", "model"),
        ("gaussian", "schema_version", 2),
        ("gaussian", "schema_version", True),
        ("gaussian", "site", ""),
        ("gaussian", "site", "a" * 201),
        ("gaussian", "site", "Lyon\n"),
        ("gaussian", "site", "\u202e"),
        ("gaussian", "n_samples", 0),
        ("gaussian", "n_samples", "300"),
        ("gaussian", "log_likelihood", -1e31),
        ("gaussian", "fit", NOTHING),
        ("gaussian", "fit.converged", 1),
        ("gaussian", "fit.warnings", "a."),
        ("gaussian", "rows", [[1.0, 2.0]]),
        ("gaussian", "constant_features.age", None),
        ("gaussian", "versions.R", 4.2),
        ("gaussian", "model.family", "cauchy"),
        ("gaussian", "model.feature_names", "age"),
        ("gaussian", "model.gate.columns", [0, 1.5]),
        ("gaussian", "model.gate.coef.0.0", 1e308),
        ("gaussian", "model.experts.var", NOTHING),
        ("gaussian", "model.experts.var", 4),
        ("gaussian", "model.experts.var.1", -1),
        ("gaussian", "model.experts.coef.0", 1.5),
        ("poisson", "model.experts.var", [1, 1]),
        ("logistic", "model.classes.0", None),
        ("logistic", "model.classes.0", ["no"]),
        ("logistic", "model.classes.0", "\x1b"),
        ("multinomial", "model.experts.coef.0.0", 1.5),
        ("gaussian", "features.unknown", "drop"),
        ("gaussian", "features.columns.0.kind", "text"),
        ("gaussian", "features.columns.0.scale", -1),
        ("gaussian", "features.columns.0.levels", [1]),
        ("gaussian", "features.columns.0.unit", "years"),
    ],
)
def test_what_the_schema_refuses_is_refused(family, path, value):
    document = put(message(family), path, value)
    assert not VALIDATORS["local model"].is_valid(document)
    with pytest.raises(MessageError):
        LocalModel.from_json(json.dumps(document))


def test_every_field_of_a_message_has_a_type():
    """A record whose field says nothing to other languages would be a hole in the schema."""

    def holes(schema, path=""):
        if isinstance(schema, dict):
            for name, inner in schema.get("properties", {}).items():
                if not {"type", "$ref", "anyOf", "enum", "const", "properties"} & set(inner):
                    yield f"{path}.{name}"
            for key, inner in schema.items():
                yield from holes(inner, f"{path}.{key}")
        elif isinstance(schema, list):
            for inner in schema:
                yield from holes(inner, path)

    assert [list(holes(validator.schema)) for validator in VALIDATORS.values()] == [[]] * len(KINDS)
