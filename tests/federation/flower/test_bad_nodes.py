"""Real Flower runs with nodes of every bad kind: the other sites' model all the same.

`python -m benchmarks bad_nodes` does ten runs with each kind.
"""

import os
import shutil
from importlib.util import find_spec

import pytest

from studies.bad_nodes import KINDS, SITES, running

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip(
        "starts servers: run pytest tests/federation/flower by itself", allow_module_level=True
    )
if not find_spec("flwr"):
    pytest.skip("Flower is not installed", allow_module_level=True)
for tool in ("openssl", "ssh-keygen"):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed", allow_module_level=True)

EARLY = [kind for kind, rounds in KINDS.items() if not rounds]
LATE = [kind for kind, rounds in KINDS.items() if rounds]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with running(tmp_path_factory.mktemp("bad") / "nodes", len(EARLY)) as nodes:
        yield nodes


def test_replies_that_lie_cost_their_nodes_alone(nodes):
    kinds = LATE + ["an exception"] * (len(EARLY) - len(LATE))
    found = nodes.run(kinds, "late")
    assert found.is_right, found.log
    said = [line for line in found.log.splitlines() if "ERROR" in line or "WARN" in line]
    for name in nodes.bad:
        assert any(name in line for line in said), found.log


def test_messages_of_bad_nodes_cost_these_alone(nodes):
    found = nodes.run(EARLY, "early")
    assert found.away < 1e-9, found.log
    kept = sorted(path.name for path in (nodes.folder / "early" / "messages").iterdir())
    assert [name[4:].partition(".")[0] for name in kept] == sorted(SITES)
