"""Flower nodes that misbehave, in a real federation: what they do, and whether it costs the others.

A SuperLink and some SuperNodes run on this machine. Three of them are honest; others behave as
files say, so that one federation serves all runs.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from otmoe import (
    FeatureSpec,
    LocalModel,
    MoE,
    Policy,
    aggregate,
    load_model,
    observed_inference,
    simulate,
)
from otmoe.arrays.numerics import Floats
from otmoe.likelihood.fit import Fit, em

EXAMPLE = Path(__file__).parents[1] / "examples" / "flower"
SITES = {"lyon": slice(0, 500), "metz": slice(500, 1000), "nantes": slice(1000, 1500)}
SILENT = 120
"""Seconds for which a silent node is; the server waits half of that."""

SPEC = FeatureSpec.of_names(["age", "dose"])
NEAR = 0.01
"""Standard errors by which the model may differ from the fit of the honest sites' rows."""

KINDS = {
    "20,000 small records": 0,
    "a name of 60 four-byte letters": 0,
    "sketch centre 1e300": 0,
    "an exception": 0,
    "score x 1e5": 2,
    "information x 1e30": 2,
    "log-likelihood + 1e6": 2,
    "a silent node": 0,
}
"""What a bad node does, and the refine rounds of the run: some lie in these alone."""

APP = """
import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from otmoe.federation.flower.app import client_app, server_app

server = server_app()
client = ClientApp()
honest = client_app()


def text_of(reply, name):
    return json.loads(reply.content["otmoe"][name])


def with_text(reply, name, document):
    reply.content["otmoe"][name] = json.dumps(document).encode()
    return reply


@client.query()
def reply(message, context):
    flag = context.node_config.get("behaviour")
    kind = "" if flag is None else Path(flag).read_text()
    if kind == "20,000 small records":
        records = {{f"r{{i}}": MetricRecord({{"a": 1.0}}) for i in range(20_000)}}
        return Message(RecordDict(records), reply_to=message)
    if kind == "an exception":
        raise RuntimeError("the node has broken down")
    if kind == "a silent node":
        for _ in range(10 * {seconds}):  # one sleep would not notice that its SuperNode is gone
            time.sleep(0.1)
    found = honest(message, context)
    if "message" in found.content["otmoe"]:
        document = text_of(found, "message")
        if kind == "a name of 60 four-byte letters":
            document["site"] = "\\U00020000" * 60
        if kind == "sketch centre 1e300":
            document["sketch"]["units"] = {{"age": {{"center": 1e300, "scale": 1.0}}}}
        return with_text(found, "message", document)
    document = text_of(found, "reply")
    if kind == "score x 1e5":
        document["score"] = [1e5 * value for value in document["score"]]
    if kind == "information x 1e30":
        document["information"] = [1e30 * value for value in document["information"]]
    if kind == "log-likelihood + 1e6":
        document["log_likelihood"] += 1e6
    return with_text(found, "reply", document)
"""


@dataclass(frozen=True)
class Run:
    """How one run ended.

    Attributes
    ----------
    away : float
        Largest distance of a parameter, in standard errors, from the fit of the honest sites' rows
        after refine rounds, else from what is merged of these sites' messages alone; infinite if
        there is no model.
    seconds : float
    log : str
    """

    away: float
    seconds: float
    log: str

    @property
    def is_right(self) -> bool:
        """Whether the model is that of the honest sites."""
        return self.away <= NEAR


@dataclass(frozen=True)
class Nodes:
    """A federation that is running."""

    federation: Any
    folder: Path
    bad: tuple[str, ...]
    fit: Fit
    errors: Floats

    def run(self, kinds: Sequence[str], output: str) -> Run:
        """Let the bad nodes misbehave in one run of all nodes, each in its way."""
        for name, kind in zip(self.bad, kinds, strict=True):
            (self.folder / f"{name}.behaviour").write_text(kind)
        out, rounds = self.folder / output, max(KINDS[kind] for kind in kinds)
        plan = {
            "features": str(self.folder / "features.json"),
            "output": str(out),
            "target": "y",
            "experts": 2,
            "n-init": 3,
            "sketch": True,
            "refine": rounds,
            "nodes": len(SITES) + len(kinds),
            "timeout": SILENT / 2 if "a silent node" in kinds else 300.0,
            "on-error": "skip",
        }
        begin = perf_counter()
        log = self.federation.run(self.folder / "app", plan)
        seconds = perf_counter() - begin
        away = np.inf
        if (out / "model.json").exists():
            wanted = self.fit.model if rounds else _merged(out / "messages")
            step = load_model(out / "model.json").to_vector() - wanted.to_vector()
            away = float(np.abs(step / self.errors).max())
        return Run(away, seconds, log)


@contextmanager
def running(folder: Path, n_bad: int = 1) -> Iterator[Nodes]:
    """Give a federation with some bad nodes in a folder; all of it has ended afterwards."""
    bad = tuple(f"brest-{i}" for i in range(n_bad))
    folder.mkdir(parents=True, exist_ok=True)
    n = max(rows.stop for rows in SITES.values())
    data = simulate(n + 500 * n_bad, 2, 2, softness=0.5, random_state=1)
    columns = dict(zip(SPEC.feature_names, data.X.T, strict=True))
    table = pa.table({**columns, "y": data.y})
    more = {name: slice(n + 500 * i, n + 500 * i + 500) for i, name in enumerate(bad)}
    for name, rows in {**SITES, **more}.items():
        part = table.slice(rows.start, rows.stop - rows.start)
        pq.write_table(part, folder / f"{name}.parquet")
    SPEC.save(folder / "features.json")
    (folder / "off.json").write_text(Policy.off().model_dump_json())
    shutil.copytree(EXAMPLE / "app", folder / "app")
    (folder / "app" / "one_round.py").write_text(APP.format(seconds=SILENT))
    fit = em(data.X[:n], data.y[:n], 2, init=data.truth, random_state=0)
    inference = observed_inference(fit.model, data.X[:n], data.y[:n])
    errors = inference.covariance.standard_errors(np.eye(fit.model.n_parameters))
    with _federation(folder / "fed") as federation:
        for name in (*SITES, *bad):
            federation.register(name)
            offer = {
                "site": name,
                "data": str(folder / f"{name}.parquet"),
                "policy": str(folder / "off.json"),
                "sketch": True,
                "refine": True,
            }
            how = {"behaviour": str(folder / f"{name}.behaviour")} if name in bad else {}
            federation.start_node(name, offer | how)
        yield Nodes(federation, folder, bad, fit, errors)


def _merged(folder: Path) -> MoE:
    """Return what the messages of the honest sites give, as the server has kept them."""
    found = [LocalModel.load(path) for path in sorted(folder.glob("*.moe.json"))]
    honest = [message for message in found if message.site in SITES]
    assert len(honest) == len(SITES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return aggregate(honest).model


def _federation(folder: Path) -> Any:
    spec = spec_from_file_location("federation", EXAMPLE / "federation.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Federation(folder)
