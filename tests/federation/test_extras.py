"""Adapters, where their packages are not installed."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from refusals import refused

from otmoe.cli.common import Failed
from otmoe.cli.executors import open_executor
from otmoe.federation.flower.app import client_app, server_app
from otmoe.federation.keys import Key
from otmoe.workers.dask import DaskExecutor
from otmoe.workers.ray import RayExecutor


def test_without_ray_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    refused("no_ray", ImportError).by(RayExecutor)


@pytest.mark.parametrize("make", [RayExecutor, lambda: DaskExecutor(None)])
def test_an_executor_that_is_shut_takes_no_task(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    executor = make()
    executor.shutdown()
    refused("executor_shut", RuntimeError).by(executor.submit, abs, -1)


@pytest.mark.parametrize("app", [client_app, server_app])
def test_without_flower_the_user_is_told_what_to_install(monkeypatch, app):
    monkeypatch.setitem(sys.modules, "flwr", None)
    refused("no_flower", ImportError).by(app)


def test_without_cryptography_the_user_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    refused("no_cryptography", ImportError).by(Key.at, tmp_path / "lyon.key")
    assert not list(tmp_path.iterdir())


def test_ray_is_not_started_unasked(monkeypatch):
    """It listens on every interface, whatever address it is given."""
    ray = ModuleType("ray")
    ray.is_initialized = lambda: False
    monkeypatch.setitem(sys.modules, "ray", ray)
    refused("ray_not_started", RuntimeError).by(RayExecutor)
    with refused("shell_ray_listens", Failed), open_executor("ray", None, 2, 2):
        pass
