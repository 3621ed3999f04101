"""Mixtures of experts for data that lie in many places, merged by optimal transport."""

from importlib.metadata import version

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

__version__ = version("otmoe")

__all__ = [
    "Aggregation",
    "DistributedMoEClassifier",
    "DistributedMoERegressor",
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


def __dir__() -> list[str]:
    """Show what is meant to be used; rooms can be imported by name all the same."""
    return sorted(__all__)
