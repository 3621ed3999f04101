"""Expert families: what they predict, how they are fitted, how far apart they are."""

from otmoe.experts.base import Derivatives, Experts, FitStatistics, Response
from otmoe.experts.gaussian import GaussianExperts

FAMILIES: dict[str, type[Experts]] = {GaussianExperts.family: GaussianExperts}
"""Families by name."""

__all__ = [
    "FAMILIES",
    "Derivatives",
    "Experts",
    "FitStatistics",
    "GaussianExperts",
    "Response",
]
