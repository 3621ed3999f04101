"""Many local models into one: the transport reduction and the aggregators beside it."""

from otmoe.aggregation.contribution import Candidate, Communication, Contribution, Covariates
from otmoe.aggregation.merge import aggregate, merged
from otmoe.aggregation.result import Aggregation
from otmoe.aggregation.screening import screen
from otmoe.aggregation.solve import METHODS

__all__ = [
    "METHODS",
    "Aggregation",
    "Candidate",
    "Communication",
    "Contribution",
    "Covariates",
    "aggregate",
    "merged",
    "screen",
]
