"""Merge many local models into one: the transport reduction and other methods."""

from otmoe.aggregation.contribution import Communication, Contribution, Covariates, MethodCandidate
from otmoe.aggregation.merge import aggregate, merged
from otmoe.aggregation.result import Aggregation
from otmoe.aggregation.screening import screen
from otmoe.aggregation.solve import METHODS

__all__ = [
    "METHODS",
    "Aggregation",
    "MethodCandidate",
    "Communication",
    "Contribution",
    "Covariates",
    "aggregate",
    "merged",
    "screen",
]
