"""Adapters, where their packages are not installed; tests/engines has the rest."""

import sys

import pytest

from otmoe.integrations.ray import RayExecutor


def test_without_ray_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'otmoe\[ray\]'"):
        RayExecutor()
