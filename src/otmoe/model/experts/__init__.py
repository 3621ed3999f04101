"""Expert families: what they predict, how they are fitted, how far apart they are."""

from otmoe.model.experts.base import Derivatives, Experts, FitStatistics, Response
from otmoe.model.experts.gaussian import GaussianExperts
from otmoe.model.experts.glm import CanonicalExperts, LogisticExperts, PoissonExperts
from otmoe.model.experts.softmax import MultinomialExperts

FAMILIES: dict[str, type[Experts]] = {
    family.family: family
    for family in (GaussianExperts, LogisticExperts, MultinomialExperts, PoissonExperts)
}
"""Families by name."""

__all__ = [
    "FAMILIES",
    "CanonicalExperts",
    "Derivatives",
    "Experts",
    "FitStatistics",
    "GaussianExperts",
    "LogisticExperts",
    "MultinomialExperts",
    "PoissonExperts",
    "Response",
]
