"""scikit-learn estimators."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from otmoe.estimators.classifier import MoEClassifier
from otmoe.estimators.frames import FeatureEncoder
from otmoe.estimators.regressor import MoERegressor

if TYPE_CHECKING:
    from otmoe.estimators.distributed_classifier import DistributedMoEClassifier
    from otmoe.estimators.distributed_regressor import DistributedMoERegressor

__all__ = [
    "DistributedMoEClassifier",
    "DistributedMoERegressor",
    "FeatureEncoder",
    "MoEClassifier",
    "MoERegressor",
]

_LATER = {
    "DistributedMoEClassifier": "distributed_classifier",
    "DistributedMoERegressor": "distributed_regressor",
}


def __getattr__(name: str) -> Any:
    """Import what needs shards and merging when it is asked for: rows in memory need neither."""
    if name not in _LATER:
        raise AttributeError(f"module 'otmoe.estimators' has no attribute {name!r}")
    return getattr(import_module(f"otmoe.estimators.{_LATER[name]}"), name)
