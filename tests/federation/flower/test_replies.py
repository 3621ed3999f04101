"""What the server makes of replies of any kind; a grid that calls functions stands for Flower."""

import json
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused

from otmoe import (
    FeatureSpec,
    LocalModel,
    aggregate,
    load_between,
    load_model,
    observed_inference,
    simulate,
)
from otmoe.documents.model_file import ModelFile
from otmoe.documents.reply import RefineReply
from otmoe.documents.request import RefineRequest
from otmoe.documents.state import RefineState
from otmoe.federation import requests
from otmoe.federation.flower import app as flower
from otmoe.federation.flower import merging, nodes
from otmoe.federation.offers import Offer
from otmoe.federation.policy.rules import Policy
from otmoe.federation.requests import Request, message_for
from otmoe.federation.rounds import begin, request_of, step
from otmoe.inference.between import between_sites
from otmoe.likelihood.fit import em
from otmoe.likelihood.rows import Scaling
from otmoe.text.sentences import Finding
from otmoe.workers.failures import Failure, TasksFailed

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip("run pytest tests/federation/flower by itself", allow_module_level=True)
flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")

SPEC = FeatureSpec.of_names(["age", "dose"])


def told(code, about=""):
    """Return what a server is told about an error at a site."""
    return str(Finding.NODE_TOLD(code=code, about=about))


class Grid:
    """Nodes by number: what each does with a query, and the name it was registered under."""

    def __init__(self, nodes, names=None):
        self.nodes, self.names, self.queries = nodes, names or {}, {}

    def get_nodes(self):
        # In the order of the dictionary, which is that of nobody.
        return [SimpleNamespace(node_id=n, name=self.names.get(n, "")) for n in self.nodes]

    def push_messages(self, messages):
        ids = [f"query {message.metadata.dst_node_id}" for message in messages]
        self.queries |= dict(zip(ids, messages, strict=True))
        return ids

    def pull_messages(self, ids):
        (query,) = (self.queries[i] for i in ids)
        reply = self.nodes[query.metadata.dst_node_id](query)
        return [] if reply is None else [reply]


def records(**parts):
    """Return what a node does that sends these records, whatever it is asked."""
    return lambda query: flwr.Message(flwr.RecordDict(parts), reply_to=query)


def record(**fields):
    return records(otmoe=flwr.ConfigRecord(fields))


def numbers():
    return flwr.MetricRecord({"message": 1.0})


def spoilt(old, new):
    return lambda text: record(message=text.replace(old, new).encode())


def site(folder, name, **config):
    """Return what a node with the real ClientApp does."""
    app = flower.client_app()
    rules = folder / "off.json"
    rules.write_text(Policy.off().model_dump_json())
    files = {"data": str(folder / f"{name}.parquet"), "policy": str(rules)}
    config = {"site": name} | files | config
    known = {"node_config": config, "state": flwr.RecordDict(), "run_config": {}}
    context = flwr.Context(run_id=1, node_id=1, **known)
    return lambda query: app(query, context)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    data = simulate(900, 2, 2, softness=0.5, random_state=1)
    frame = pd.DataFrame(data.X, columns=["age", "dose"]).assign(y=data.y)
    frame[:500].to_parquet(folder / "lyon.parquet")
    frame[500:].to_parquet(folder / "nantes.parquet")
    frame[["age", "dose"]][::3].to_parquet(folder / "support.parquet")
    SPEC.save(folder / "features.json")
    folder.joinpath("off.json").write_text(Policy.off().model_dump_json())
    return folder


@pytest.fixture(scope="module")
def asked():
    return Request(target="y", experts=2, features=SPEC.body(), n_init=3)


@pytest.fixture(scope="module")
def lyon(folder, asked):
    files = {"data": str(folder / "lyon.parquet"), "policy": str(folder / "off.json")}
    return message_for(asked, Offer(site="lyon", **files)).to_json()


@pytest.fixture
def config(folder, tmp_path):
    files = {"features": folder / "features.json", "support": folder / "support.parquet"}
    files = {name: str(path) for name, path in files.items()}
    return {"target": "y", "experts": 2, "n-init": 3, "output": str(tmp_path / "out")} | files


@pytest.fixture(autouse=True)
def inside_a_run():
    """Make messages possible, which Flower allows in its own processes only."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    identity.run_id, identity.node_id, identity.task_id = 1, 1, 1


DIVIDED = "<class 'ZeroDivisionError'>"


def failed(query):
    return flwr.Message(flwr.Error(code=2, reason=DIVIDED), reply_to=query)


def unpacked(query):
    raise KeyError("no such object")


NAN, PART, SAID = {"value": "NaN"}, {"part": "message"}, {"reason": "y is text"}
ONE = {"experts": 1, "wanted": 2}
BAD = {
    "truncated": (lambda text: record(message=text[:-20].encode()), "json_cut", {}),
    "not a number": (spoilt('"n_samples": 500.0', '"n_samples": NaN'), "field_nan", NAN),
    "text, no bytes": (lambda text: record(message=text), "node_part", PART),
    "no record": (lambda text: records(), "node_part", PART),
    "another record": (lambda text: records(otmoe=numbers()), "node_part", PART),
    "an error of its own": (lambda text: record(error="y is text"), "node_error", SAID),
    "words that forge lines": (lambda text: record(error=FORGED), "node_error", {}),
    "an error of Flower's": (lambda text: failed, "node_error", {"reason": DIVIDED}),
    "cannot be unpacked": (lambda text: unpacked, "node_failed", {}),
    "never": (lambda text: lambda query: None, "node_late", {"seconds": 0.3}),
    "other features": (spoilt('"age"', '"size"'), "node_features", {}),
    "one expert": (lambda text: record(message=answer_of_one(text)), "node_experts", ONE),
}
FORGED = "no\n\x1b[2J\rINFO : all is well" + "!" * 10_000
THEIR_WORDS = {
    "words that forge lines": "no [2J INFO : all is well!!!",
    "cannot be unpacked": "KeyError",
}


def answer_of_one(text):
    message = LocalModel.from_json(text)
    document = json.loads(text)
    document["model"]["gate"]["coef"] = [[0.0] * 3]
    document["model"]["experts"]["coef"] = message.model.experts.coef[:1].tolist()
    document["model"]["experts"]["var"] = message.model.experts.var[:1].tolist()
    return json.dumps(document).encode()


@pytest.mark.parametrize("kind", BAD)
def test_a_node_that_replies_anything_else_is_named_and_the_other_is_not_lost(
    kind, folder, asked, lyon
):
    make, code, facts = BAD[kind]
    grid = Grid({9: site(folder, "nantes"), 4: make(lyon)})
    replies, failures = flower.ask(grid, asked, nodes=2, timeout=0.3)
    assert [reply.message.site for reply in replies] == ["nantes"]
    (failure,) = failures
    assert failure.name == "node 4" and failure.cause.code == code
    assert facts.items() <= failure.cause.facts.items()
    assert failure.cause.text.isprintable() and len(failure.cause.text) < 600
    assert failure.cause.text.startswith(THEIR_WORDS.get(kind, ""))


def test_replies_are_the_text_that_the_site_would_have_written(folder, asked, lyon):
    replies, failures = flower.ask(Grid({1: site(folder, "lyon")}), asked)
    assert failures == [] and [reply.text for reply in replies] == [lyon.encode()]


def test_neither_the_numbers_of_nodes_nor_their_order_matter(folder, config, tmp_path):
    models = []
    for i, numbers in enumerate([(1, 2), (2, 1), (77, 3)]):
        nodes = {n: site(folder, s) for n, s in zip(numbers, ("nantes", "lyon"), strict=True)}
        out = tmp_path / str(i)
        flower.serve(Grid(nodes), config | {"output": str(out)})
        models.append(load_model(out / "model.json").to_vector())
        names = sorted(path.name for path in out.glob("messages/*"))
        assert names == ["001-lyon.moe.json", "002-nantes.moe.json"]
    assert_array_equal(models[1], models[0])
    assert_array_equal(models[2], models[0])


def test_the_model_can_be_made_of_the_files_again(folder, config, tmp_path):
    flower.serve(Grid({1: site(folder, "lyon"), 2: site(folder, "nantes")}), config)
    out = tmp_path / "out"
    messages = [LocalModel.load(path) for path in sorted(out.glob("messages/*.moe.json"))]
    support = SPEC.encode(pd.read_parquet(folder / "support.parquet"))
    again = aggregate(messages, support).model.to_vector()
    assert_array_equal(load_model(out / "model.json").to_vector(), again)


def test_two_nodes_with_one_name_are_both_named(folder, asked):
    grid = Grid({5: site(folder, "lyon"), 3: site(folder, "lyon"), 4: site(folder, "nantes")})
    replies, failures = flower.ask(grid, asked)
    assert [reply.message.site for reply in replies] == ["nantes"]
    cause = Finding.NODE_NAME_TWICE(site='"lyon"')
    assert failures == [Failure("node 3", cause), Failure("node 5", cause)]


def test_a_registered_node_cannot_take_the_name_of_another(folder, asked):
    grid = Grid({1: site(folder, "lyon"), 2: site(folder, "nantes")}, {1: "lyon", 2: "paris"})
    replies, failures = flower.ask(grid, asked)
    assert [reply.node for reply in replies] == ["node 1 (lyon)"]
    assert failures[0].name == "node 2 (paris)" and failures[0].cause.code == "node_name"
    assert failures[0].cause.facts["site"] == '"nantes"'


def test_told_to_stop_the_server_stops_but_keeps_what_came(folder, config, tmp_path):
    grid = Grid({1: site(folder, "lyon"), 2: record(error="the disk is full")})
    with refused("fits_failed", TasksFailed, failures="node 2: the disk is full."):
        flower.serve(grid, config)
    assert [path.name for path in (tmp_path / "out").rglob("*.json")] == ["001-lyon.moe.json"]


def test_told_to_go_on_the_server_goes_on_and_says_so_in_the_model(folder, config, tmp_path):
    grid = Grid({1: site(folder, "lyon"), 2: record(error="the disk is full")})
    result = flower.serve(grid, config | {"on-error": "skip", "nodes": 3, "wait": 0.1})
    assert [record.site for record in result.sites] == ["lyon"]
    about = json.loads((tmp_path / "out" / "model.json").read_text())["about"]
    assert about["sites"] == "lyon"
    absent = Finding.NODES_ABSENT(found=2, wanted=3, seconds=0.1)
    assert about["failed"] == f"nodes: {absent}; node 2: the disk is full"


def test_a_model_of_other_classes_is_not_what_was_asked_for(tmp_path):
    data = simulate(300, 1, 2, random_state=1)
    frame = pd.DataFrame(data.X, columns=["age", "dose"])
    for name, labels in {"lyon": ["no", "yes"], "nantes": ["non", "oui"]}.items():
        frame.assign(y=np.take(labels, data.y > 0)).to_parquet(tmp_path / f"{name}.parquet")
    base = {"target": "y", "experts": 1, "features": SPEC.body(), "family": "classes"}
    asked = Request(**base, classes=["no", "yes"])
    other = Request(**base, classes=["non", "oui"])
    text = message_for(other, Offer(site="nantes", data=str(tmp_path / "nantes.parquet"))).to_json()
    grid = Grid({1: site(tmp_path, "lyon"), 2: record(message=text.encode())})
    replies, failures = flower.ask(grid, asked)
    assert [reply.message.site for reply in replies] == ["lyon"]
    assert [(f.name, f.cause.code) for f in failures] == [("node 2", "node_classes")]


def test_a_model_can_be_read_whatever_many_nodes_had_to_say(folder, config, tmp_path):
    nodes = {n: record(error="no " * 200) for n in range(2, 60)}
    flower.serve(Grid({1: site(folder, "lyon"), **nodes}), config | {"on-error": "skip"})
    assert load_model(tmp_path / "out" / "model.json").n_experts == 2


def test_without_any_reply_there_is_no_model_whatever_was_said(folder, config):
    with pytest.raises(TasksFailed) as caught:
        flower.serve(Grid({}), config | {"on-error": "skip", "wait": 0})
    absent = Finding.NODES_ABSENT(found=0, wanted=1, seconds=0)
    assert caught.value.failures == (Failure("nodes", absent),)


def test_a_folder_with_something_in_it_is_left_alone(folder, config, tmp_path):
    tmp_path.joinpath("out").mkdir()
    tmp_path.joinpath("out", "model.json").write_text("dear to me")
    with refused("folder_not_empty", ValueError, where="run config", folder=tmp_path / "out"):
        flower.serve(Grid({}), config)
    assert tmp_path.joinpath("out", "model.json").read_text() == "dear to me"


def test_a_site_name_is_no_path(folder, config, tmp_path):
    name = "../../\u00e9tage/.x"
    offered = {"data": str(folder / "lyon.parquet"), "site": name}
    flower.serve(Grid({1: site(folder, name, **offered)}), config)
    names = sorted(path.name for path in tmp_path.rglob("*.json"))
    assert names == ["001-_\u00e9tage_x.moe.json", "model.json"]


# -- one node costs one node ---------------------------------------------------------------------


def test_a_reply_that_takes_long_to_unpack_costs_its_node_alone(folder, asked, monkeypatch):
    monkeypatch.setattr(nodes, "UNPACK", 3.0)

    def slow(query):
        time.sleep(20)  # 20,000 records take longer

    begin = time.monotonic()
    grid = Grid({1: slow, 2: site(folder, "nantes"), 3: slow, 4: site(folder, "lyon")})
    replies, failures = flower.ask(grid, asked, nodes=4, timeout=60)
    assert time.monotonic() - begin < 15
    assert [reply.message.site for reply in replies] == ["lyon", "nantes"]
    assert [(f.name, f.cause.code) for f in failures] == [
        ("node 1", "node_slow"),
        ("node 3", "node_slow"),
    ]


def test_many_nodes_are_pulled_some_at_a_time(asked, lyon):
    running, most = [], []

    def honest(query):
        running.append(1)
        most.append(len(running))
        time.sleep(0.05)
        running.pop()
        return record(message=lyon.encode())(query)

    grid = Grid({n: honest for n in range(2 * nodes.PARALLEL + 3)})
    _, failures = flower.ask(grid, asked, timeout=20)
    assert {f.cause.code for f in failures} == {"node_name_twice"}
    assert len(failures) == 2 * nodes.PARALLEL + 3 and 1 < max(most) <= nodes.PARALLEL


LONG = "\U00020000" * 60


def test_a_name_of_many_bytes_is_no_name_of_a_file(folder, config, tmp_path):
    offered = {"data": str(folder / "lyon.parquet"), "refine": True}
    others = {2: site(folder, "nantes", refine=True)}
    grid = Grid({1: site(folder, LONG, **offered), **others})
    result = flower.serve(grid, config | {"on-error": "skip", "refine": 1})
    assert len(result.sites) == 2
    files = [path.name for path in tmp_path.rglob("*.json")]
    assert len(files) > 5 and all(len(name.encode()) < 200 for name in files)


def with_center(text, value):
    document = json.loads(text)
    document["sketch"]["units"] = {"age": {"center": value, "scale": 1.0}}
    return record(message=json.dumps(document).encode())


@pytest.mark.parametrize("value", [1e300, 1e30])
def test_a_sketch_at_the_end_of_the_world_costs_its_node_alone(value, folder, config, asked):
    ask = asked.model_copy(update={"sketch": True})
    offer = Offer(site="lyon", data=str(folder / "lyon.parquet"), sketch=True)
    text = message_for(ask, offer).to_json()
    grid = Grid({1: with_center(text, value), 2: site(folder, "nantes", sketch=True)})
    del config["support"]
    result = flower.serve(grid, config | {"on-error": "skip", "sketch": True})
    assert "nantes" in [record.site for record in result.sites]
    assert np.all(np.isfinite(result.model.to_vector()))


def test_a_message_that_cannot_be_merged_costs_its_node_alone(folder, config, monkeypatch):
    def fragile(messages, *args, **options):
        if any(message.site == "lyon" for message in messages):
            raise np.linalg.LinAlgError("singular matrix")
        return aggregate(messages, *args, **options)

    monkeypatch.setattr(merging, "aggregate", fragile)
    grid = Grid({1: site(folder, "lyon"), 2: site(folder, "nantes")})
    result = flower.serve(grid, config | {"on-error": "skip"})
    assert [record.site for record in result.sites] == ["nantes"]
    assert "singular matrix" in str(result.left_out["node 1"])
    with pytest.raises(np.linalg.LinAlgError):
        flower.serve(grid, config | {"output": config["output"] + "2"})


def lying(honest, **times):
    """Return a node whose replies to refine requests have some parts multiplied."""

    def reply(query):
        sent = honest(query)
        if "reply" in sent.content["otmoe"]:
            document = json.loads(sent.content["otmoe"]["reply"])
            for name, factor in times.items():
                document[name] = [factor * value for value in document[name]]
            sent.content["otmoe"]["reply"] = json.dumps(document).encode()
        return sent

    return reply


@pytest.mark.parametrize("part", ["score", "information"])
def test_a_wild_reply_costs_its_node_alone(part, folder, config, tmp_path):
    liar = lying(site(folder, "lyon", refine=True), **{part: 1e5})
    grid = refining(folder, nodes={1: liar})
    result = flower.serve(grid, config | {"on-error": "skip", "refine": "auto"})
    state = RefineState.load(tmp_path / "out" / "rounds" / "state.json")
    assert state.absent == ("lyon",) and state.refinement.converged
    assert "lyon" in str(result.status)
    about = json.loads((tmp_path / "out" / "model.json").read_text())["about"]
    assert "lyon (round 1)" in about["missing"]
    with refused("fits_failed", TasksFailed):
        flower.serve(grid, config | {"refine": 1, "output": config["output"] + "2"})


def test_a_request_for_more_than_the_rows_allow_is_refused_before_any_work(folder, monkeypatch):
    monkeypatch.setattr(requests, "fit_rows", None)
    many = Request(target="y", experts=100, features=SPEC.body())
    offer = Offer(site="lyon", data=str(folder / "lyon.parquet"))
    refused("policy_refuses", ValueError, rules=["parameters"]).by(message_for, many, offer)
    text = many.model_dump_json().replace('"experts":100', '"experts":101')
    refused("field_too_large", ValueError).by(Request.from_json, text)


# -- the node ------------------------------------------------------------------------------------


def reply_of(folder, asked, **config):
    grid = Grid({1: site(folder, "lyon", **config)})
    return flower.ask(grid, asked)


def test_the_server_learns_why_a_fit_failed(folder, asked):
    _, failures = reply_of(folder, asked, data="nowhere.parquet")
    assert failures[0].cause.code == "node_error"
    assert failures[0].cause.text == str(Finding.NODE_TOLD(code="not_there", about=""))


def test_unless_the_site_does_not_want_to_say(folder, asked):
    _, failures = reply_of(folder, asked, data="nowhere.parquet", explain=False)
    assert failures[0].cause.text == str(Finding.NODE_SILENT())


def test_a_query_without_a_request_is_answered_by_a_sentence(folder):
    query = flwr.Message(flwr.RecordDict({}), 1, flwr.MessageType.QUERY)
    reply = site(folder, "lyon")(query)
    assert reply.content["otmoe"]["error"] == str(Finding.NODE_TOLD(code="KeyError", about=""))


def test_support_is_drawn_from_what_the_server_has(folder, config):
    result = flower.serve(Grid({1: site(folder, "lyon")}), config | {"n-support": 50})
    assert result.n_support == 50
    assert np.isfinite(result.model.to_vector()).all()


# -- refine rounds -------------------------------------------------------------------------------


def refining(folder, **changes):
    """Return nodes that take part in refine rounds."""
    nodes = {n: site(folder, s, refine=True) for n, s in ((1, "lyon"), (2, "nantes"))}
    return Grid(nodes | changes.get("nodes", {}), changes.get("names"))


def honest_first(honest, later):
    """Return a node that sends its message, and something else to refine requests."""
    return lambda query: later(query) if "refine" in query.content["otmoe"] else honest(query)


def test_refine_rounds_end_at_the_fit_of_all_rows_and_equal_those_by_files(
    folder, config, tmp_path
):
    result = flower.serve(refining(folder), config | {"refine": "auto"})
    out = tmp_path / "out"
    state = RefineState.load(out / "rounds" / "state.json")
    assert result.refinement.converged and state.done and state.absent == ()
    frame = pd.concat([pd.read_parquet(folder / f"{s}.parquet") for s in ("lyon", "nantes")])
    X, y = SPEC.encode(frame), frame.y.to_numpy()
    fit = em(X, y, 2, init=result.model)
    se = observed_inference(fit.model, X, y).standard_errors
    gap = result.model.experts.coef - fit.model.experts.coef
    assert np.max(np.abs(gap) / se.coef) < 1e-3
    assert_allclose(result.inference().standard_errors.coef, se.coef, rtol=1e-3)
    assert_array_equal(load_model(out / "model.json").to_vector(), result.model.to_vector())
    # the same from the files that were kept: every request, and the end
    support = SPEC.encode(pd.read_parquet(folder / "support.parquet"))
    merged, sizes = load_model(out / "merged.json"), {"lyon": 500, "nantes": 400}
    again = begin(merged, sizes, Scaling.of(support), features=SPEC)
    for number in range(1, state.refinement.rounds + 1):
        asked = RefineRequest.load(out / "rounds" / f"round{number}.request.json")
        assert asked.to_json() == request_of(again).to_json()
        replies = sorted(out.glob(f"rounds/*.round{number}.reply.json"))
        assert [path.name[:5] for path in replies] == ["001-l", "002-n"]
        again = step(again, [RefineReply.load(path) for path in replies])
    assert again.to_json() == state.to_json()


def test_the_sandwich_of_nodes_is_that_of_pooled_rows(folder, config, tmp_path, caplog):
    frames = [pd.read_parquet(folder / f"{s}.parquet") for s in ("lyon", "nantes")]
    for s, frame in zip(("lyon", "nantes"), frames, strict=True):
        frame["patient"] = [f"{s} {i // 5}" for i in range(len(frame))]
        frame.to_parquet(tmp_path / f"{s}.parquet")
    frame = pd.concat(frames)
    X, y = SPEC.encode(frame), frame.y.to_numpy()

    def served(output, **offers):
        nodes = {
            n: site(tmp_path, s, refine=True, **offers[s]) for n, s in ((1, "lyon"), (2, "nantes"))
        }
        out = {"output": str(tmp_path / output), "refine": "auto", "sandwich": True}
        result = flower.serve(Grid(nodes), config | out)
        model = json.loads((tmp_path / output / "model.json").read_text())
        return result, model["aggregation"]["inference"]

    both = {"groups": "patient"}
    result, written = served("grouped", lyon=both, nantes=both)
    there = observed_inference(em(X, y, 2, init=result.model).model, X, y, groups=frame.patient)
    found = result.inference()
    assert (found.kind, found.n_groups) == ("clustered", 180)
    assert (written["kind"], written["n_groups"]) == ("clustered", 180)
    assert_allclose(found.standard_errors.coef, there.standard_errors.coef, rtol=1e-3)
    sent = [path.read_text() for path in (tmp_path / "grouped").rglob("*.json")]
    assert not any("patient" in text or "lyon 3" in text for text in sent)

    result, written = served("rows", lyon={"sandwich": True}, nantes={"sandwich": True})
    there = observed_inference(em(X, y, 2, init=result.model).model, X, y, kind="sandwich")
    assert written["kind"] == result.inference().kind == "sandwich"
    found = result.inference().standard_errors.coef
    assert_allclose(found, there.standard_errors.coef, rtol=1e-3)

    result, written = served("silent", lyon=both, nantes={})
    assert written["kind"] == "information"
    assert "scatter_missing" in [warning.code for warning in result.warnings]
    with refused("fits_failed") as caught:
        served("few", lyon=both, nantes={"groups": "ward"})
    assert "no_column" in str(caught.value) and "ward" not in str(caught.value)


def test_the_server_learns_how_nodes_differ_as_by_files(folder, config, tmp_path, caplog):
    silent = {"output": str(tmp_path / "silent"), "refine": "auto", "between": "auto"}
    flower.serve(refining(folder), config | silent)
    assert load_between(tmp_path / "silent" / "model.json") is None
    assert "lyon, nantes sent no scatter" in caplog.text
    nodes = {
        n: site(folder, s, refine=True, sandwich=True) for n, s in ((1, "lyon"), (2, "nantes"))
    }
    flower.serve(Grid(nodes), config | {"refine": "auto", "between": "intercepts"})
    out = tmp_path / "out"
    state = RefineState.load(out / "rounds" / "state.json")
    last = state.refinement.rounds
    asked = RefineRequest.load(out / "rounds" / f"round{last}.request.json")
    replies = [RefineReply.load(path) for path in out.glob(f"rounds/*.round{last}.reply.json")]
    there = between_sites(
        *(asked.model, asked.scaling, state.refinement.pooled),
        [reply.content for reply in replies],
        restrict="intercepts",
    )
    found = load_between(out / "model.json")
    assert state.between == "intercepts" and asked.between
    assert found.spreads == there.spreads and found.warnings == there.warnings
    assert_array_equal(found.model_of("lyon").to_vector(), there.model_of("lyon").to_vector())
    assert "fewer than 5 sites" in caplog.text


def test_as_many_rounds_as_were_asked_for(folder, config, tmp_path):
    config = {k: v for k, v in config.items() if k != "support"} | {"sketch": True, "refine": 1}
    grid = refining(folder)
    grid.nodes = {n: site(folder, s, refine=True, sketch=True) for n, s in ((5, "lyon"),)}
    flower.serve(grid, config)
    about = json.loads((tmp_path / "out" / "model.json").read_text())["about"]
    assert about["rounds"] == 1 and about["missing"] == ""
    status = RefineState.load(tmp_path / "out" / "rounds" / "state.json").refinement.status
    assert about["status"] == str(status)


def test_nodes_fit_again_from_the_merged_model(folder, config, tmp_path, asked):
    """The second messages are those of `otmoe fit --start`, and they are merged."""
    result = flower.serve(refining(folder), config | {"consensus": True})
    out = tmp_path / "out"
    start = ModelFile.load(out / "first.json")
    for message in result.messages:
        assert message.status.code == "started"
        data, rules = folder / f"{message.site}.parquet", folder / "off.json"
        offer = Offer(site=message.site, data=str(data), policy=str(rules), refine=True)
        assert message_for(asked, offer, start).to_json() == message.to_json()
        refused("no_refining_here").by(
            message_for, asked, offer.model_copy(update={"refine": False}), start
        )
        other = replace(start, features=FeatureSpec.of_names(["age", "size"]))
        refused("requests_disagree").by(message_for, asked, offer, other)
    assert len(list(out.glob("messages/*"))) == len(list(out.glob("messages2/*"))) == 2
    assert_array_equal(load_model(out / "model.json").to_vector(), result.model.to_vector())


def test_a_site_that_has_not_agreed_answers_no_refine_round(folder, config, tmp_path):
    grid = refining(folder, nodes={2: site(folder, "nantes")})
    with refused("fits_failed", failures=f"node 2: {told('no_refining_here')}"):
        flower.serve(grid, config | {"refine": 1})
    out = tmp_path / "out"
    assert out.joinpath("merged.json").exists() and not out.joinpath("model.json").exists()
    result = flower.serve(
        grid, config | {"refine": 1, "on-error": "skip", "output": str(tmp_path / "skip")}
    )
    assert result.refinement.missing == ((1, "nantes"),)
    about = json.loads((tmp_path / "skip" / "model.json").read_text())["about"]
    assert about["missing"] == "nantes (round 1)"


def test_too_few_rows_are_not_summed_up(folder, config):
    honest = site(folder, "nantes", refine=True)
    (folder / "strict.json").write_text('{"parameters": 0.025}')
    strict = site(folder, "nantes", refine=True, policy=str(folder / "strict.json"))
    grid = refining(folder, nodes={2: honest_first(honest, strict)})
    why = told("policy_refuses", ", by rule parameters")
    refused("fits_failed", failures=f"node 2: {why}").by(flower.serve, grid, config | {"refine": 1})


def changed(folder, **fields):
    """Return what a node sends that changes some fields of its reply."""
    honest = site(folder, "nantes", refine=True)

    def reply(query):
        document = json.loads(honest(query).content["otmoe"]["reply"]) | fields
        return record(reply=json.dumps(document).encode())(query)

    return reply


WRONG = {
    "another name": ({"site": "lyon"}, "node_renamed", {"site": '"lyon"', "before": '"nantes"'}),
    "another round": ({"round": 7}, "reply_round", {"round": 7, "wanted": 1}),
    "another digest": ({"digest": "0" * 16}, "reply_digest", {"round": 1}),
    "other rows": ({"n_samples": 900.0, "mass": [400.0, 500.0]}, "reply_rows", {"rows": 900}),
    "no numbers": ({"score": []}, "triangle", {"length": 66, "size": 0}),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_reply_costs_that_node_alone(kind, folder, config, tmp_path, caplog):
    fields, code, facts = WRONG[kind]
    honest = site(folder, "nantes", refine=True)
    grid = refining(folder, nodes={2: honest_first(honest, changed(folder, **fields))})
    with pytest.raises(TasksFailed) as caught:
        flower.serve(grid, config | {"refine": 1, "output": str(tmp_path / "raise")})
    (failure,) = caught.value.failures
    assert failure.name == "node 2" and failure.cause.code == code
    assert facts.items() <= failure.cause.facts.items()
    caplog.clear()
    result = flower.serve(grid, config | {"refine": 1, "on-error": "skip"})
    assert result.refinement.missing == ((1, "nantes"),)
    assert f"round 1: {failure}" in caplog.text


def test_a_node_that_is_gone_is_named(folder, config, tmp_path):
    grid = refining(folder)
    honest = grid.nodes[2]

    def leaves(query):
        reply = honest(query)
        everybody = list(grid.get_nodes())
        grid.get_nodes = lambda: [node for node in everybody if node.node_id != 2]
        return reply

    grid.nodes[2] = leaves
    with pytest.raises(TasksFailed) as caught:
        flower.serve(grid, config | {"refine": "auto"})
    assert caught.value.failures == (Failure("node 2 (nantes)", Finding.NODE_GONE()),)


def test_rounds_that_make_no_sense_are_refused(folder, config):
    for refine in ("often", -1, 1.5, True):
        with refused("rounds_field refine", ValueError, value=json.dumps(refine)):
            flower.serve(Grid({}), config | {"refine": refine})
    with refused("between_without_rounds"):
        flower.serve(Grid({}), config | {"between": "auto"})
    with refused("field_choice between", value='"slopes"'):
        flower.serve(Grid({}), config | {"between": "slopes", "refine": "auto"})
