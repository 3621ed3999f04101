"""scikit-learn estimators."""

from otmoe.estimators.classifier import MoEClassifier
from otmoe.estimators.distributed_classifier import DistributedMoEClassifier
from otmoe.estimators.distributed_regressor import DistributedMoERegressor
from otmoe.estimators.frames import FeatureEncoder
from otmoe.estimators.regressor import MoERegressor

__all__ = [
    "DistributedMoEClassifier",
    "DistributedMoERegressor",
    "FeatureEncoder",
    "MoEClassifier",
    "MoERegressor",
]
