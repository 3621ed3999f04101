"""A server that asks a Flower node for names: what it is told."""

import logging
import os

import numpy as np
import pandas as pd
import pytest

from otmoe import FeatureSpec
from otmoe.data.columns import Column
from otmoe.federation.flower import app as flower
from otmoe.federation.policy.rules import Policy
from otmoe.federation.requests import Request
from otmoe.text.sentences import Finding

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip("run pytest tests/federation/flower by itself", allow_module_level=True)
flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")

NAMES = [f"Person {i}" for i in range(60)]


@pytest.fixture(autouse=True)
def inside_a_run():
    """Make messages possible, which Flower allows in its own processes only."""
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    identity.run_id, identity.node_id, identity.task_id = 1, 1, 1


@pytest.fixture
def people(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"name": np.repeat(NAMES, 5), "age": rng.normal(50, 10, 300)})
    frame["y"] = 0.1 * frame.age + rng.normal(size=300)
    frame.to_parquet(tmp_path / "lyon.parquet")
    (tmp_path / "off.json").write_text(Policy.off().model_dump_json())
    (tmp_path / "no-names.json").write_text('{"deny": ["name"]}')
    return tmp_path


def asking(folder, spec, **config):
    """Return what a node with the real ClientApp replies to a request for some columns."""
    asked = Request(target="y", experts=1, features=spec.body(), n_init=1)
    record = flwr.ConfigRecord({"request": asked.model_dump_json()})
    query = flwr.Message(flwr.RecordDict({"otmoe": record}), 1, flwr.MessageType.QUERY)
    config = {"site": "lyon", "data": str(folder / "lyon.parquet")} | config
    known = {"node_config": config, "state": flwr.RecordDict(), "run_config": {}}
    reply = flower.client_app()(query, flwr.Context(run_id=1, node_id=1, **known))
    return reply.content["otmoe"]


def names_of(levels, unknown="error"):
    return FeatureSpec((Column("name", "category", levels=tuple(levels)), Column("age")), unknown)


def test_made_up_levels_make_no_error_quote_a_name(people, caplog):
    caplog.set_level(logging.ERROR)
    found = asking(people, names_of(["nobody", "no one"]))
    told = str(Finding.NODE_TOLD(code="column_levels", about=", about column name"))
    assert found["error"] == told and "Person" not in told
    assert "Person 0" in caplog.text  # at the site, where it belongs
    # nor if the site has no policy at all
    assert asking(people, names_of(["a", "b"]), policy=str(people / "off.json"))["error"] == told


def test_a_refusal_names_the_rule_and_neither_level_nor_figure(people):
    found = asking(people, names_of(["nobody", "Person 7"], "reference"))
    assert "error" not in found  # five rows have it
    frame = pd.read_parquet(people / "lyon.parquet")
    frame.loc[frame.index != 35, "name"] = "Others"
    frame.to_parquet(people / "lyon.parquet")
    found = asking(people, names_of(["nobody", "Person 7"], "reference"), ledger=str(people / "2"))
    assert found["error"].startswith("policy_refuses, by rule")
    assert "cells" in found["error"] and "leverage" in found["error"]
    assert "Person" not in found["error"] and "1" not in found["error"]


def test_a_column_that_the_site_denies_is_not_even_read(people):
    found = asking(people, names_of(["a", "b"]), policy=str(people / "no-names.json"))
    assert found["error"] == str(
        Finding.NODE_TOLD(code="policy_refuses", about=", by rule columns")
    )


def test_questions_are_counted_whether_they_are_answered_or_not(people):
    (people / "three.json").write_text('{"queries": 3}')
    rules = {"policy": str(people / "three.json")}
    codes = [asking(people, names_of(["a", "b"]), **rules)["error"].split(",")[0] for _ in range(5)]
    assert codes == ["column_levels"] * 3 + ["policy_refuses"] * 2
