"""scikit-learn estimators."""

from otmoe.estimators.classifier import MoEClassifier
from otmoe.estimators.distributed import DistributedMoEClassifier, DistributedMoERegressor
from otmoe.estimators.regressor import MoERegressor

__all__ = [
    "DistributedMoEClassifier",
    "DistributedMoERegressor",
    "MoEClassifier",
    "MoERegressor",
]
