"""Adapters, where their packages are not installed."""

import sys

import pytest

from otmoe.federation.flower.app import client_app, server_app
from otmoe.workers.ray import RayExecutor


def test_without_ray_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'otmoe\[ray\]'"):
        RayExecutor()


@pytest.mark.parametrize("app", [client_app, server_app])
def test_without_flower_the_user_is_told_what_to_install(monkeypatch, app):
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(ImportError, match=r"pip install 'otmoe\[flower\]'"):
        app()
