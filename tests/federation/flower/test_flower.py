"""A real SuperLink and real SuperNodes on this machine, with TLS and node authentication.

The tests run in their order, on one federation: more nodes join it as they go.
"""

import json
import os
import shutil
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pandas as pd
import pytest
from numpy.testing import assert_allclose

from otmoe import (
    FeatureSpec,
    LocalModel,
    Policy,
    aggregate,
    load_model,
    shards_from,
    simulate,
    support_from,
)
from otmoe.distributed.task import Task, fit_local
from otmoe.documents.state import RefineState
from otmoe.federation.rounds import begin, reply_from, request_of, step
from otmoe.likelihood.rows import Scaling
from otmoe.text.sentences import Error

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip(
        "starts servers: run pytest tests/federation/flower by itself", allow_module_level=True
    )
if not find_spec("flwr"):
    pytest.skip("Flower is not installed", allow_module_level=True)
for tool in ("openssl", "ssh-keygen"):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed", allow_module_level=True)

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower"
SITES = {"lyon": slice(0, 700), "nantes": slice(700, 1200)}
SPEC = FeatureSpec.of_names(["age", "dose"])

# The app of the example, at nodes that may be told to misbehave.
MISCHIEF = """
import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from otmoe.federation.flower.app import client_app, server_app

server = server_app()
client = ClientApp()
honest = client_app()


@client.query()
def reply(message, context):
    behaviour = context.node_config.get("behaviour")
    if behaviour == "garbage":
        record = ConfigRecord({"message": b'{"otmoe": "local model", "site": "gar'})
        return Message(RecordDict({"otmoe": record}), reply_to=message)
    if behaviour == "hang":
        Path(context.node_config["flag"]).touch()
        for _ in range(6000):  # a single sleep would not notice that its SuperNode is gone
            time.sleep(0.1)
    return honest(message, context)
"""


def federation(folder):
    spec = spec_from_file_location("federation", EXAMPLE / "federation.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Federation(folder)


def running(folder):
    """Return the processes that have to do with a federation, zombies left out."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = process.joinpath("environ").read_bytes()
            command = process.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        if f"FLWR_HOME={folder}".encode() in environment and command:
            found.append(command.replace(b"\0", b" ").decode())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flower")
    data = simulate(1200, 2, 2, softness=0.5, random_state=1)
    frame = pd.DataFrame(data.X, columns=["age", "dose"]).assign(y=data.y)
    for name, rows in SITES.items():
        frame[rows].to_parquet(folder / f"{name}.parquet")
    SPEC.save(folder / "features.json")
    (folder / "off.json").write_text(Policy.off().model_dump_json())
    shutil.copytree(EXAMPLE / "app", folder / "mischief")
    folder.joinpath("mischief", "one_round.py").write_text(MISCHIEF)
    return folder


@pytest.fixture(scope="module")
def messages(folder):
    """The file route: fit at each site, write a file."""
    for name in SITES:
        (shard,) = shards_from(folder / f"{name}.parquet", target="y", features=SPEC)
        task = Task(replace(shard, name=name), 0, 2, sketch=True)
        fit_local(task).message.save(folder / f"{name}.moe.json")
    return [folder / f"{name}.moe.json" for name in SITES]


@pytest.fixture(scope="module")
def expected(messages):
    """The file route: merge the files, at points drawn from their sketches."""
    return aggregate([LocalModel.load(path) for path in messages]).model.to_vector()


@pytest.fixture(scope="module")
def fed(folder):
    with federation(folder / "fed") as fed:
        for name in SITES:
            fed.register(name)
            fed.start_node(name, node(folder, name))
        yield fed
    end = time.monotonic() + 90  # on a busy machine they take their time
    while running(folder) and time.monotonic() < end:
        time.sleep(0.5)
    assert running(folder) == []


def node(folder, name, **more):
    files = {"data": str(folder / f"{name}.parquet"), "policy": str(folder / "off.json")}
    return {"site": name, **files, "sketch": True, "refine": True, **more}


def config(folder, output, **more):
    files = {"features": str(folder / "features.json"), "output": str(folder / output)}
    return {**files, "sketch": True, "timeout": 120.0, **more}


def refined(folder, messages, rounds):
    """The file route: so many refine rounds after the merging."""
    known = [LocalModel.load(path) for path in messages]
    sites = {message.site: message.n_samples for message in known}
    scaling = Scaling.of(support_from(known))
    state = begin(aggregate(known).model, sites, scaling, rounds, features=SPEC)
    while not state.done:
        replies = []
        for name in SITES:
            (shard,) = shards_from(folder / f"{name}.parquet", target="y", features=SPEC)
            replies.append(reply_from(request_of(state), replace(shard, name=name))[0])
        state = step(state, replies)
    return state


def test_the_models_are_those_of_the_file_route(fed, folder, messages, expected):
    log = fed.run(EXAMPLE / "app", config(folder, "first", refine=2))
    assert "(lyon) has replied" in log and "(nantes) has replied" in log
    out = folder / "first"
    for ours, theirs in zip(sorted(out.glob("messages/*")), messages, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()
    found = load_model(out / "merged.json").to_vector()
    assert_allclose(found, expected, rtol=0, atol=1e-10)
    state = refined(folder, messages, 2)
    assert str(state.refinement.status) in log
    found = load_model(out / "model.json").to_vector()
    assert_allclose(found, state.model.to_vector(), rtol=0, atol=1e-10)
    assert RefineState.load(out / "rounds" / "state.json").done
    assert len(list(out.glob("rounds/*.reply.json"))) == 4


def test_a_node_with_an_unknown_key_is_refused(fed, folder):
    fed._do("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", "stranger")
    fed.start_node("stranger", node(folder, "lyon"))
    assert fed.processes["stranger"].wait(60) != 0
    assert "Failed to activate SuperNode" in fed.log("stranger")
    assert "No SuperNode found with the given public key" in fed.log("superlink")


def test_the_superlink_speaks_tls_alone_under_its_own_certificate(fed):
    def handshake(**trust):
        context = ssl.create_default_context(**trust)
        with socket.create_connection(("127.0.0.1", fed.port), 10) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                return secure.version()

    assert handshake(cafile=fed.folder / "ca.crt") in ("TLSv1.2", "TLSv1.3")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake()
    with socket.create_connection(("127.0.0.1", fed.port), 10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP")


def test_a_killed_and_a_lying_node_are_named_and_the_others_go_on(fed, folder, expected):
    flag = folder / "asked"
    for name, behaviour in {"liar": "garbage", "victim": "hang"}.items():
        fed.register(name)
        fed.start_node(name, node(folder, name, behaviour=behaviour, flag=str(flag)))
    with ThreadPoolExecutor(1) as thread:
        plan = config(folder, "second", nodes=4, **{"on-error": "skip"})
        run = thread.submit(fed.run, folder / "mischief", plan)
        while not flag.exists() and not run.done():
            time.sleep(0.2)
        fed.processes["victim"].kill()
        log = run.result()
    assert f"(liar): {Error.JSON_CUT.value.format(length=37)}" in log
    assert "(victim): " in log
    found = load_model(folder / "second" / "model.json").to_vector()
    assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_told_to_stop_the_run_fails_and_says_why(fed, folder):
    log = fed.run(folder / "mischief", config(folder, "third", nodes=3))
    assert Error.FITS_FAILED.value.removeprefix("{count}").partition(":")[0] in log
    assert f"(liar): {Error.JSON_CUT.value.format(length=37)}" in log
    assert len(list(folder.joinpath("third", "messages").iterdir())) == 2
    assert not folder.joinpath("third", "model.json").exists()
    (run, *_) = json.loads(fed.flwr("list", "--format", "json"))["runs"]
    assert run["status"] == "finished:failed"
