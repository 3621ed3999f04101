"""Secure sums over Flower's messages: the real apps, with a grid that carries them by hand."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from oracles import distance
from refusals import refused

from otmoe import FeatureSpec, Policy, load_model, simulate
from otmoe.documents.masked_reply import MaskedReply
from otmoe.documents.state import RefineState
from otmoe.federation.flower import app as flower
from otmoe.workers.failures import TasksFailed

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip("run pytest tests/federation/flower by itself", allow_module_level=True)
flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")
pytest.importorskip("cryptography")

NAMES = ["brest", "lyon", "nantes", "nice"]
DATA = simulate(2000, 2, 2, softness=0.5, random_state=1)


class Grid:
    """Nodes by number: what each does with a query."""

    def __init__(self, nodes):
        self.nodes, self.queries = nodes, {}

    def get_nodes(self):
        return [SimpleNamespace(node_id=n, name="") for n in self.nodes]

    def push_messages(self, messages):
        ids = [f"query {message.metadata.dst_node_id}" for message in messages]
        self.queries |= dict(zip(ids, messages, strict=True))
        return ids

    def pull_messages(self, ids):
        (query,) = (self.queries[i] for i in ids)
        return [self.nodes[query.metadata.dst_node_id](query)]


@pytest.fixture(autouse=True)
def inside_a_run():
    """Make messages possible, which Flower allows in its own processes only."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    identity.run_id, identity.node_id, identity.task_id = 1, 1, 1


@pytest.fixture
def folder(tmp_path):
    frame = pd.DataFrame(DATA.X, columns=["age", "dose"]).assign(y=DATA.y)
    for i, name in enumerate(NAMES):
        frame[500 * i : 500 * (i + 1)].to_parquet(tmp_path / f"{name}.parquet")
    frame[["age", "dose"]][::3].to_parquet(tmp_path / "support.parquet")
    FeatureSpec.of_names(["age", "dose"]).save(tmp_path / "features.json")
    (tmp_path / "off.json").write_text(Policy.off().model_dump_json())
    return tmp_path


def node(folder, name, **config):
    """Return what a node with the real ClientApp does, with a key unless told otherwise."""
    app = flower.client_app()
    files = {"data": str(folder / f"{name}.parquet"), "policy": str(folder / "off.json")}
    own = {"site": name, "refine": True, **files}
    config = own | {"secure": str(folder / f"{name}.key")} | config
    config = {key: value for key, value in config.items() if value is not None}
    known = {"node_config": config, "state": flwr.RecordDict(), "run_config": {}}
    context = flwr.Context(run_id=1, node_id=1, **known)
    return lambda query: app(query, context)


def nodes(folder, **config):
    return Grid({i: node(folder, name, **config) for i, name in enumerate(NAMES)})


def plan(folder, output="out", **more):
    files = {"features": folder / "features.json", "support": folder / "support.parquet"}
    files = {name: str(path) for name, path in files.items()}
    asked = {"target": "y", "experts": 2, "n-init": 3, "refine": "auto", "secure": True}
    return {**asked, **files, "output": str(folder / output), **more}


def test_nodes_end_where_they_would_without_masks(folder):
    flower.serve(nodes(folder), plan(folder))
    plain = nodes(folder, secure=None)
    flower.serve(plain, plan(folder, "plain", secure=False))
    models = [load_model(folder / out / "model.json") for out in ("out", "plain")]
    assert distance(*models, DATA.X, DATA.y) < 1e-6
    state = RefineState.load(folder / "out" / "rounds" / "state.json")
    assert state.refinement.converged and list(state.refinement.best.log_likelihood) == [
        "all 4 sites"
    ]
    kept = sorted(Path(folder, "out", "rounds").glob("*.round1.reply.json"))
    assert [MaskedReply.load(path).site for path in kept] == NAMES


def dropping(folder, name, queries):
    """Return what a node does that is gone after some queries."""
    answer, count = node(folder, name, **{"new-roster": True}), iter(range(100))

    def act(query):
        if next(count) < queries:
            return answer(query)
        return flwr.Message(flwr.Error(code=2, reason="gone"), reply_to=query)

    return act


@pytest.mark.parametrize("queries", [1, 2])  # the message, and the first round
def test_without_a_node_that_is_gone_the_others_begin_again(folder, queries, caplog):
    grid = nodes(folder, **{"new-roster": True})
    grid.nodes[3] = dropping(folder, "nice", queries)
    config = plan(folder, **{"on-error": "skip"})
    with caplog.at_level(logging.ERROR, "flwr"):
        flower.serve(grid, config)
    assert "gone" in caplog.text
    rounds = folder / "out" / "rounds"
    state = RefineState.load(rounds / "state.json")
    assert state.roster.sites == tuple(NAMES[:3]) and state.refinement.best.n_samples == 1500
    again = f"round{queries}.roster2.request.json"
    assert (rounds / again).exists() and (rounds / again.replace(".roster2", "")).exists()
    three = Grid({i: node(folder, n, secure=None) for i, n in enumerate(NAMES[:3])})
    flower.serve(three, plan(folder, "plain", secure=False))
    models = [load_model(folder / out / "model.json") for out in ("out", "plain")]
    assert distance(*models, DATA.X[:1500], DATA.y[:1500]) < 2e-3


def test_nodes_do_not_answer_for_fewer_sites_unless_they_agree(folder):
    grid = nodes(folder)
    grid.nodes[3] = dropping(folder, "nice", 2)
    with pytest.raises(TasksFailed) as caught:
        flower.serve(grid, plan(folder, **{"on-error": "skip"}))
    assert "roster_changed" in str(caught.value)


def test_told_to_stop_the_server_stops(folder):
    grid = nodes(folder, **{"new-roster": True})
    grid.nodes[3] = dropping(folder, "nice", 1)
    with pytest.raises(TasksFailed):
        flower.serve(grid, plan(folder))


def test_a_node_with_a_key_answers_for_secure_sums_alone(folder):
    with pytest.raises(TasksFailed) as caught:
        flower.serve(nodes(folder), plan(folder, secure=False))
    assert "roster_missing" in str(caught.value)


def test_what_is_not_possible_is_refused(folder):
    refused("secure_without_rounds").by(flower.serve, nodes(folder), plan(folder, refine=0))
    refused("secure_between").by(flower.serve, nodes(folder), plan(folder, between="auto"))
    some = nodes(folder)
    some.nodes[3] = node(folder, "nice", secure=None)
    refused("roster_no_key", names="nice").by(flower.serve, some, plan(folder))
