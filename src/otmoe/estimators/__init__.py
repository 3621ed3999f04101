"""scikit-learn estimators."""

from otmoe.estimators.classifier import MoEClassifier
from otmoe.estimators.regressor import MoERegressor

__all__ = ["MoEClassifier", "MoERegressor"]
