"""The three kinds of truth that studies simulate."""

from __future__ import annotations

from otmoe import simulate
from otmoe.datasets.simulation import Simulation

KINDS = {"hard": {"softness": 0.0}, "soft": {"softness": 1.0}, "overlap": {"overlap": True}}
"""Arguments of `simulate` for the three kinds of truth."""


def draw(kind: str, n_samples: int, seed: int) -> Simulation:
    """Simulate rows of 20 features and 4 experts."""
    return simulate(n_samples, n_experts=4, n_features=20, random_state=seed, **KINDS[kind])
