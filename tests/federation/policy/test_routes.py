"""Every way out of a site reads its policy: columns, smallest counts, people in place of rows."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commandline import fails, fine, told
from refusals import refused

from otmoe import FeatureSpec, MoERegressor, simulate
from otmoe.data.shards import FileShard
from otmoe.documents.request import RefineRequest
from otmoe.federation.offers import Offer
from otmoe.federation.requests import Request, message_for, reply_for
from otmoe.likelihood.rows import Scaling

pytestmark = pytest.mark.usefixtures("own_folder")

NAMES = ["x0", "x1"]
SPEC = FeatureSpec.of_names(NAMES)
DATA = simulate(300, 2, 2, softness=0.5, random_state=0)
MODEL = replace(DATA.truth, feature_names=SPEC.feature_names)
FRAME = pd.DataFrame(DATA.X, columns=NAMES).assign(
    y=DATA.y,
    patient=np.arange(300) % 8,
    town=np.where(np.arange(300) < 12, "Metz", "Lyon"),
)
SITE = ["--target", "y", "--site", "Lyon"]


def fit(*more):
    FRAME.to_parquet("lyon.parquet")
    SPEC.save("features.json")
    how = ["--features", "features.json", "--experts", 2, "--n-init", 2, *more]
    return ["fit", "lyon.parquet", *SITE, *how, "-o", "lyon.moe.json"]


def answer():
    FRAME.to_parquet("lyon.parquet")
    RefineRequest(1, MODEL, Scaling.of(DATA.X), SPEC).save("request.json")
    return ["refine", "answer", "request.json", "lyon.parquet", *SITE, "-o", "reply.json"]


def survey():
    FRAME.to_parquet("lyon.parquet")
    return ["survey", "lyon.parquet", "--site", "Lyon"]


def asked():
    document = {"target": "y", "experts": 2, "features": SPEC.body(), "n_init": 2}
    return Request.from_json(json.dumps(document))


def offer():
    FRAME.to_parquet("lyon.parquet")
    return Offer.from_config({"site": "Lyon", "data": "lyon.parquet", "refine": True}, "config")


def by_message():
    return message_for(asked(), offer())


def by_reply():
    return reply_for(asked(), RefineRequest(1, MODEL, Scaling.of(DATA.X), SPEC), offer())


def to_message(**more):
    est = MoERegressor(2, n_init=2, random_state=0).fit(FRAME[NAMES], FRAME["y"])
    return est.to_message("Lyon", FRAME[NAMES], FRAME["y"], **more)


SHELL = {
    "fit": fit,
    "fit --sketch": lambda: fit("--sketch"),
    "refine answer": answer,
}
PYTHON = {
    "a Flower message": by_message,
    "a Flower reply": by_reply,
    "to_message": to_message,
}


def written(where, monkeypatch, **policy):
    """Write a policy to where every route looks for it."""
    Path(where).write_text(json.dumps(policy))
    if where != "policy.json":
        monkeypatch.setenv("OTMOE_POLICY", where)


@pytest.mark.parametrize("where", ["policy.json", "site.json"])
@pytest.mark.parametrize("route", SHELL)
def test_a_denied_column_does_not_leave_by_the_shell(route, where, monkeypatch):
    command = SHELL[route]()
    written(where, monkeypatch, deny=["x1"])
    line = fails(*command, code="policy_refuses")
    assert "rule columns" in line and "x1" in line and "x0" not in line
    assert not Path(command[-1]).exists()


@pytest.mark.parametrize("role", ["--weight", "--offset", "--groups"])
def test_a_denied_column_has_no_other_part_either(role, monkeypatch):
    command = [*answer(), role, "patient"]
    written("policy.json", monkeypatch, deny=["patient"])
    assert "patient" in fails(*command, code="policy_refuses", rules=["columns"])


@pytest.mark.parametrize("where", ["policy.json", "site.json"])
@pytest.mark.parametrize("route", PYTHON)
def test_a_denied_column_does_not_leave_by_a_node_or_a_program(route, where, monkeypatch):
    PYTHON[route]()
    written(where, monkeypatch, allow=["y", "x0"])
    refused("policy_refuses", rules=["columns"]).by(PYTHON[route])


@pytest.mark.parametrize("route", SHELL)
def test_people_are_counted_by_the_shell(route, monkeypatch):
    command = SHELL[route]()
    written("policy.json", monkeypatch, id="patient")
    line = fails(*command, code="policy_refuses")
    assert "rule rows" in line and "8 people" in line
    lenient = {"rows": 8, "parameters": 2, "expert_rows": 0, "leverage": 1, "component_rows": 0}
    written("policy.json", monkeypatch, id="patient", expert_rows_per_coefficient=0, **lenient)
    assert told(*command)["counted"] == "people"


@pytest.mark.parametrize("route", ["a Flower message", "a Flower reply"])
def test_people_are_counted_by_a_node(route, monkeypatch):
    written("policy.json", monkeypatch, id="patient")
    error = refused("policy_refuses").by(PYTHON[route])
    assert "rows" in error.facts["rules"] and "8 people" in str(error)


def test_people_are_counted_by_a_program(monkeypatch):
    written("policy.json", monkeypatch, id="patient")
    refused("ids_for_policy", column="patient").by(to_message)
    error = refused("policy_refuses").by(to_message, ids=FRAME["patient"])
    assert "8 people" in str(error)


@pytest.mark.parametrize("route", [*SHELL, *PYTHON])
def test_the_least_number_of_rows_is_that_of_the_policy(route, monkeypatch):
    written("policy.json", monkeypatch, rows=301)
    if route in SHELL:
        fails(*SHELL[route](), code="policy_refuses", rules=["rows"])
    else:
        refused("policy_refuses", rules=["rows"]).by(PYTHON[route])


# -- survey ----------------------------------------------------------------------------------------


def columns_of(found):
    (site,) = found["sites"]
    return {column["name"]: column for column in site["columns"]}


def test_a_survey_reads_no_column_that_is_denied_and_does_not_name_it(monkeypatch):
    command = survey()
    assert "town" in columns_of(told(*command))
    written("policy.json", monkeypatch, deny=["town", "patient"])
    found = told(*command)
    assert columns_of(found).keys() == {"x0", "x1", "y"} and found["left_out"] == 2
    assert not {"town", "patient", "Metz"} & set(fine(*command).output.replace(",", " ").split())
    fails(*command, "--site-column", "town", code="policy_refuses", rules=["columns"])


def test_a_survey_hides_the_counts_that_the_policy_hides(monkeypatch):
    command = survey()
    assert columns_of(told(*command))["town"]["levels"] == {"Lyon": 290, "Metz": 10}
    written("policy.json", monkeypatch, rows=20, digits=None)
    found = told(*command)
    assert found["least"] == 20 and columns_of(found)["town"]["levels"] == {}
    line = fails(*command, "--least", 1, code="policy_refuses", rules=["cells"])
    assert "town=Metz is 12" in line


def test_a_survey_counts_people(monkeypatch):
    """The twelve rows from Metz are of eight people, who are in Lyon as well."""
    command = survey()
    written("policy.json", monkeypatch, id="patient", rows=8, digits=None)
    found = told(*command)
    assert found["counted"] == "people" and found["sites"][0]["rows"] == 8
    assert columns_of(found)["town"]["levels"] == {"Lyon": 8, "Metz": 8}
    assert "patient" not in columns_of(found)
    written("policy.json", monkeypatch, id="patient")
    assert told(*command)["sites"][0]["rows"] is None


# -- a reply with people and groups ----------------------------------------------------------------


def test_rows_groups_and_people_are_read_once(monkeypatch):
    lenient = {"rows": 1, "parameters": 9, "leverage": 1, "expert_rows": 0}
    written("policy.json", monkeypatch, id="town", expert_rows_per_coefficient=0, **lenient)
    command, read, seen = answer(), FileShard.read, []

    def counted(shard):
        seen.append((shard.groups, shard.ids))
        return read(shard)

    monkeypatch.setattr(FileShard, "read", counted)
    found = told(*command, "--groups", "patient")
    assert seen == [("patient", "town")] and found["counted"] == "people"
