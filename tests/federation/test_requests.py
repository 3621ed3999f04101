"""What a server asks, what a site allows, and what leaves it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from commandline import fine
from refusals import refused

from otmoe import FeatureSpec, LocalModel, shards_from, simulate
from otmoe.distributed.task import Task, fit_local
from otmoe.documents.request import RefineRequest
from otmoe.federation.offers import Offer
from otmoe.federation.policy.rules import Policy
from otmoe.federation.requests import Request, configured, message_for, reply_for
from otmoe.likelihood.rows import Scaling
from otmoe.text.errors import MessageError

SPEC = FeatureSpec.of_names(["age", "dose"])


def request(**fields):
    document = {"target": "y", "experts": 2, "features": SPEC.body(), "n_init": 3} | fields
    return Request.from_json(json.dumps(document))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lyon")
    data = simulate(600, 2, 2, softness=0.5, random_state=1)
    frame = pd.DataFrame(data.X, columns=["age", "dose"]).assign(y=data.y)
    frame["sick"] = np.where(data.y > 0, "yes", "no")
    frame["count"] = np.arange(600) % 7
    frame["trials"] = 6
    frame[:400].to_parquet(folder / "2023.parquet")
    frame[400:].to_parquet(folder / "2024.parquet")
    frame[:30].to_parquet(folder.parent / "few.parquet")
    return folder


def offer(folder, **fields):
    return Offer.from_config({"site": "Lyon", "data": str(folder), **fields}, "node config")


def written(folder, **rules):
    """Return a file with a policy."""
    path = folder.parent / f"{len(list(folder.parent.iterdir()))}.json"
    path.write_text(json.dumps(rules))
    return str(path)


def test_the_answer_is_what_a_local_fit_of_all_files_writes(folder):
    one, two = shards_from(folder, target="y", features=SPEC)
    shard = replace(one, name="Lyon", pieces=one.pieces + two.pieces)
    fit = fit_local(Task(shard, 0, 2, options={"n_init": 3}))
    assert fit.n_rows == 600
    everything = offer(folder, policy=written(folder, **Policy.off().model_dump()))
    assert message_for(request(), everything).to_json() == fit.message.to_json()


def test_the_answer_is_what_the_command_line_writes(folder, tmp_path):
    SPEC.save(tmp_path / "features.json")
    how = "--target y --experts 2 --site Lyon --grams --n-init 3 --sketch".split()
    out = ["--features", tmp_path / "features.json", "-o", tmp_path / "lyon.moe.json"]
    fine("fit", folder, *how, *out)
    both = {"sketch": True, "grams": True}
    text = message_for(request(**both), offer(folder, **both)).to_json()
    assert tmp_path.joinpath("lyon.moe.json").read_text() == text


def test_successes_in_trials_are_asked_for_by_two_columns(folder):
    asked = request(target="count/trials", family="binomial", experts=1)
    sent = message_for(asked, offer(folder))
    assert sent.model.experts.family == "binomial"
    np.testing.assert_array_equal(sent.model.experts.trials, [6.0])
    X = np.zeros((1, 2))
    count = np.arange(600) % 7
    assert abs(sent.model.predict(X)[0] - count.mean() / 6) < 0.02


def test_a_request_and_its_text_are_one(folder):
    asked = request(classes=["no", "yes"], share=10, weight="w")
    assert Request.from_json(asked.model_dump_json()) == asked
    assert asked.spec == SPEC


@pytest.mark.parametrize(
    ("classes", "family"), [(["yes", "no"], "logistic"), (["yes", "no", "maybe"], "multinomial")]
)
def test_classes_are_those_that_the_server_declares(folder, classes, family):
    message = message_for(request(target="sick", family="classes", classes=classes), offer(folder))
    assert message.model.experts.family == family
    assert message.model.classes.tolist() == sorted(classes)


def test_classes_are_declared_and_may_be_numbers(folder):
    numbers = [str(n) for n in range(7)]
    asked = request(target="count", family="classes", classes=numbers, experts=1)
    assert message_for(asked, offer(folder)).model.classes.tolist() == list(range(7))
    asked = request(target="count", family="classes", classes=["no", "yes"])
    refused("classes_are_numbers").by(message_for, asked, offer(folder))
    asked = request(target="sick", family="classes")
    refused("few_classes_asked").by(message_for, asked, offer(folder))


def test_several_responses_are_asked_for_by_name(folder):
    asked = request(target="y,count", family="gaussian,poisson", experts=1)
    assert asked.family == "gaussian+poisson"
    found = message_for(asked, offer(folder)).model
    assert found.experts.responses == ["y", "count"]
    denied = offer(folder, policy=written(folder, deny=["count"]))
    refused("policy_refuses").by(message_for, asked, denied)
    wrong = request(target="y,count", family="gaussian,poisson,gamma", experts=1)
    refused("families_count").by(message_for, wrong, offer(folder))
    refused("family_unknown family").by(request, target="y,count", family="gaussian,classes")


def test_a_site_with_too_few_rows_for_the_parameters_sends_nothing(folder):
    few = folder.parent / "few.parquet"
    refused("policy_refuses", rules=["parameters"]).by(message_for, request(), offer(few))
    lenient = {"policy": written(folder, parameters=0.5)}
    assert message_for(request(experts=1), offer(few, **lenient)).n_samples == 30


def test_a_refine_request_is_answered_if_the_site_agrees_and_it_is_about_the_same(folder):
    model = message_for(request(), offer(folder)).model
    asked = RefineRequest(1, model, Scaling.of(np.eye(2)), FeatureSpec.of_names(["age", "size"]))
    refused("no_refining_here").by(reply_for, request(), asked, offer(folder))
    refused("requests_disagree").by(reply_for, request(), asked, offer(folder, refine=True))


def parts(message):
    shared = 0 if message.support is None else len(message.support)
    return message.sketch is not None, message.grams is not None, shared


def test_what_leaves_is_what_both_sides_want(folder):
    everything = {"sketch": True, "grams": True, "share": 7}
    agreed = {"policy": written(folder, share=7, messages=None)}
    assert parts(message_for(request(), offer(folder, **everything, **agreed))) == (False, False, 0)
    assert parts(message_for(request(**everything), offer(folder, **agreed))) == (False, False, 0)
    assert parts(message_for(request(**everything), offer(folder, **everything, **agreed))) == (
        True,
        True,
        7,
    )
    some = {"grams": True, "share": 3}
    assert parts(message_for(request(**everything), offer(folder, **some, **agreed))) == (
        False,
        True,
        3,
    )


@pytest.mark.parametrize(
    ("field", "value", "code", "facts"),
    [
        ("experts", 0, "field_not_positive", {"value": "0"}),
        ("experts", "2", "field_whole", {"value": '"2"'}),
        ("run", "rm -r", "field_unknown", {}),
        ("family", "cauchy", "family_unknown", {"name": '"cauchy"'}),
        ("target", "y\u001b[2J", "control_character", {"character": "001B"}),
    ],
)
def test_a_request_is_read_with_suspicion(field, value, code, facts):
    refused(f"{code} {field}", MessageError, **facts).by(request, **{field: value})


def test_features_of_a_request_are_checked(folder):
    twice = {"columns": SPEC.body()["columns"] * 2, "unknown": "error"}
    with refused("second_time features.columns[2]", value='"age"'):
        message_for(request(features=twice), offer(folder))


def test_an_offer_needs_a_site_and_says_no_to_all_else_by_default():
    with refused("field_missing site", where="node config"):
        Offer.from_config({"data": "x"}, "node config")
    with refused("field_whole share", value='"all"'):
        Offer.from_config({"site": "Lyon", "data": "x", "share": "all"}, "node config")
    with refused("rows_per_parameter", where="node config"):
        Offer.from_config({"site": "Lyon", "data": "x", "rows-per-parameter": 9}, "node config")
    offered = Offer.from_config({"site": "Lyon", "data": "x", "other-app": 1}, "node config")
    assert (offered.sketch, offered.grams, offered.share) == (False, False, 0)


# -- the server's configuration ------------------------------------------------------------------


@pytest.fixture
def config(tmp_path):
    SPEC.save(tmp_path / "features.json")
    files = {"features": str(tmp_path / "features.json"), "output": str(tmp_path / "out")}
    empty = dict.fromkeys(("n-init", "weight", "support"), "")
    asked = {"target": "y", "experts": 2, "classes": "no, yes", "on-error": "skip", "wait": 5}
    return files | empty | asked


def test_one_flat_configuration_is_a_request_and_a_plan(config):
    asked, plan = configured(config)
    assert asked.spec == SPEC
    assert (asked.n_init, asked.weight, asked.classes) == (None, None, ["no", "yes"])
    assert (plan.on_error, plan.wait, plan.support, plan.method) == ("skip", 5, None, "auto")


@pytest.mark.parametrize(
    ("changed", "problem", "facts"),
    [
        ({"features": ""}, "features_file", {}),
        ({"output": ""}, "field_missing output", {}),
        ({"method": "ensemble"}, "method_unknown", {"value": '"ensemble"'}),
        ({"on-error": "retry"}, "field_choice on_error", {"value": '"retry"'}),
        ({"experst": 3}, "no_option", {"option": '"experst"'}),
        ({"timeout": 0}, "field_not_positive timeout", {"value": "0"}),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(config, changed, problem, facts):
    refused(problem, ValueError, where="run config", **facts).by(configured, config | changed)


def test_the_answer_can_be_read_where_it_arrives(folder):
    text = message_for(request(), offer(folder)).to_json().encode()
    assert LocalModel.from_json(text, "node 7").site == "Lyon"
