"""Mixtures of experts for data that lie in many places, merged by optimal transport."""

from importlib.metadata import version

from otmoe.datasets import simulate
from otmoe.estimators import MoEClassifier, MoERegressor
from otmoe.message import LocalModel, load_model, save_model
from otmoe.model import MoE

__version__ = version("otmoe")

__all__ = [
    "LocalModel",
    "MoE",
    "MoEClassifier",
    "MoERegressor",
    "__version__",
    "load_model",
    "save_model",
    "simulate",
]
