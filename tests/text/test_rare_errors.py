"""Errors that are about nothing else that is tested: each is brought about once, by its code."""

from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pytest
from commandline import call, fails
from oracles import random_model
from pydantic import Field
from refusals import refused

from otmoe import FeatureSpec, MoEClassifier, observed_inference, save_model, simulate
from otmoe.evaluation.prediction import Predictor, spec_of
from otmoe.federation.rounds import begin
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Scaling
from otmoe.model import divergence
from otmoe.text.records import Record, typed
from otmoe.text.sentences import Error
from otmoe.text.strict_json import Limits, parse


def test_a_check_that_has_no_sentence_of_its_own_says_what_pydantic_says():
    class Short(Record):
        name: Annotated[str, Field(max_length=3)]

    with refused("field_invalid name", where="here", value='"Lyon"'):
        typed(Short, {"name": "Lyon"}, "here")


def test_a_text_too_deep_for_the_parser_is_refused():
    with refused("too_deep", where="upload"):
        parse("[" * 10**6, "upload", Limits(depth=10**9, bytes=10**9, values=10**9))


def test_a_linear_program_that_fails_is_named(monkeypatch):
    said = SimpleNamespace(status=4, message="numerical trouble")
    monkeypatch.setattr(divergence.optimize, "linprog", lambda *args, **options: said)
    ones = np.ones((1, 2))
    with refused("linear_program", RuntimeError, problem=0, reason="numerical trouble"):
        divergence.transport_costs_plain(np.ones((1, 2, 2)), ones, ones)


def test_a_model_of_numbers_is_no_classifier(rng):
    refused("not_a_classifier").by(MoEClassifier.from_model, random_model(rng))


def test_a_model_is_asked_for_what_it_can_predict(rng):
    model = MoEClassifier(1).fit(rng.normal(size=(30, 1)), np.arange(30) % 2).model_
    refused("quantiles_of_classes").by(Predictor, model, quantiles=(0.5,))
    refused("other_features").by(spec_of, model, FeatureSpec.of_names(["age"]))


def test_one_expert_has_no_gate_to_show():
    pytest.importorskip("matplotlib")
    from otmoe.plot import CoefficientDisplay

    data = simulate(200, 1, 2, random_state=0)
    found = observed_inference(em(data.X, data.y, 1).model, data.X, data.y)
    refused("no_gate").by(CoefficientDisplay.from_inference, found, block="gate")


# -- the shell ---------------------------------------------------------------------------------


@pytest.fixture
def folder(own_folder):
    data = simulate(60, 1, 2, random_state=0)
    save_model(data.truth, "model.json")
    begin(data.truth, {"Lyon": 60}, Scaling.of(data.X)).save("state.json")
    assert call("simulate", "-o", "rows.parquet", "--rows", 60).exit_code == 0


FIT = ["fit", "rows.parquet", "--target", "y", "--experts", 1, "--site", "Lyon", "-o", "m.json"]
RUN = ["run", "rows.parquet", "--target", "y", "--experts", 1, "-o", "m.json"]
START = ["refine", "start", "model.json", "*.moe.json", "--state", "s.json", "-o", "s.json"]
FILES = ["simulate", "-o", "new", "--rows", 3, "--files", 4]
STEP = ["refine", "step", "state.json", "*.reply.json", "-o", "state.json", "--force"]


@pytest.mark.parametrize(
    ("args", "code", "facts"),
    [
        ([*RUN, "--address", "tcp://head:8786"], "shell_address", {}),
        ([*RUN, "--site-column", "x0", "--cut", 3], "shell_site_or_cut", {}),
        ([*FIT, "--classes", "a,b"], "shell_classes_family", {}),
        ([*FIT, "--override", "rows"], "shell_override", {}),
        ([*FIT, "--features", "f.json", "--columns", "x0"], "shell_features_or_columns", {}),
        ([*FIT, "--start", "model.json"], "shell_start_or", {"option": "--experts"}),
        ([*FIT[:4], *FIT[6:]], "shell_experts", {}),
        (["features", *FIT[1:4], "--columns", "y,x0", "-o", "f.json"], "shell_roles", {}),
        (FILES, "shell_files_rows", {"files": 4, "rows": 3}),
        (START, "shell_two_files", {}),
        (STEP, "shell_three_files", {}),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(folder, args, code, facts):
    result = call(*args)
    assert result.exit_code == 2 and result.stdout == ""
    assert Error[code.upper()].value.format(**facts) in result.stderr


def test_outputs_that_are_something_else_are_refused(folder, tmp_path):
    fails("simulate", "-o", tmp_path, code="output_folder", path=tmp_path)
    path = tmp_path / "rows.parquet"
    fails("simulate", "-o", path, "--files", 2, code="shell_files_folder", path=path)


def test_a_model_file_may_say_nothing_about_columns(folder):
    fails(*FIT, "--features", "model.json", code="shell_no_columns", file="model.json")
