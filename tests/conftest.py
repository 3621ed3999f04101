import numpy as np
import pytest
from families import FAMILIES
from hypothesis import settings

# Derandomised: a red run is always the doing of a change.
settings.register_profile("otmoe", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("otmoe")


@pytest.fixture
def rng():
    return np.random.default_rng(20240229)


@pytest.fixture(params=list(FAMILIES))
def family(request):
    """Let a law run over every family."""
    return request.param


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTMOE_DEBUG", raising=False)
