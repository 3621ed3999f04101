"""Mixtures of experts for distributed data, merged by optimal transport."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otmoe.aggregation import Aggregation, aggregate
    from otmoe.aggregation.support import draw_support, support_from
    from otmoe.data.features import FeatureSpec
    from otmoe.data.shards import shards_from
    from otmoe.data.sketch import Sketch
    from otmoe.datasets import simulate
    from otmoe.documents.files import load_between, load_features, load_model
    from otmoe.documents.message import LocalModel
    from otmoe.documents.model_file import save_model
    from otmoe.estimators import (
        DistributedMoEClassifier,
        DistributedMoERegressor,
        FeatureEncoder,
        MoEClassifier,
        MoERegressor,
    )
    from otmoe.federation.policy.rules import Policy
    from otmoe.inference import Inference, observed_inference
    from otmoe.model.mixture import MoE
    from otmoe.reporting import report
    from otmoe.selection import (
        Selection,
        candidate_scores,
        select_from_messages,
        select_n_experts,
        select_over_shards,
    )
    from otmoe.text.strict_json import Limits

    __version__: str

__all__ = [
    "Aggregation",
    "DistributedMoEClassifier",
    "DistributedMoERegressor",
    "FeatureEncoder",
    "FeatureSpec",
    "Inference",
    "Limits",
    "LocalModel",
    "MoE",
    "MoEClassifier",
    "MoERegressor",
    "Policy",
    "Selection",
    "Sketch",
    "__version__",
    "aggregate",
    "candidate_scores",
    "draw_support",
    "load_between",
    "load_features",
    "load_model",
    "observed_inference",
    "report",
    "save_model",
    "select_from_messages",
    "select_n_experts",
    "select_over_shards",
    "shards_from",
    "simulate",
    "support_from",
]

_HOMES = {
    "aggregation": ("Aggregation", "aggregate"),
    "aggregation.support": ("draw_support", "support_from"),
    "data.features": ("FeatureSpec",),
    "data.shards": ("shards_from",),
    "data.sketch": ("Sketch",),
    "datasets": ("simulate",),
    "documents.files": ("load_between", "load_features", "load_model"),
    "documents.message": ("LocalModel",),
    "documents.model_file": ("save_model",),
    "estimators": (
        "DistributedMoEClassifier",
        "DistributedMoERegressor",
        "FeatureEncoder",
        "MoEClassifier",
        "MoERegressor",
    ),
    "federation.policy.rules": ("Policy",),
    "inference": ("Inference", "observed_inference"),
    "model.mixture": ("MoE",),
    "reporting": ("report",),
    "selection": (
        "Selection",
        "candidate_scores",
        "select_from_messages",
        "select_n_experts",
        "select_over_shards",
    ),
    "text.strict_json": ("Limits",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for, so that importing otmoe takes no time."""
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("otmoe")
    elif name in _HOME:
        found = getattr(import_module(f"otmoe.{_HOME[name]}"), name)
    elif not name.startswith("_") and find_spec(f"otmoe.{name}") is not None:
        return import_module(f"otmoe.{name}")
    else:
        raise AttributeError(f"module 'otmoe' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Show what is meant to be used; rooms can be imported by name all the same."""
    return sorted(__all__)
