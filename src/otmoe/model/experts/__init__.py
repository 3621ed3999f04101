"""Expert families: what they predict, how they are fitted, how far apart they are."""

from otmoe.model.experts.base import Experts
from otmoe.model.experts.dispersed import DispersedExperts
from otmoe.model.experts.gamma import GammaExperts
from otmoe.model.experts.gaussian import GaussianExperts
from otmoe.model.experts.glm import CanonicalExperts, LogisticExperts, PoissonExperts
from otmoe.model.experts.negative_binomial import NegativeBinomialExperts
from otmoe.model.experts.softmax import MultinomialExperts
from otmoe.model.experts.student import StudentExperts
from otmoe.model.experts.values import Derivatives, FitStatistics, Response

FAMILIES: dict[str, type[Experts]] = {
    family.family: family
    for family in (
        GaussianExperts,
        LogisticExperts,
        MultinomialExperts,
        PoissonExperts,
        NegativeBinomialExperts,
        GammaExperts,
        StudentExperts,
    )
}
"""Families by name; add one, and it works everywhere (CONTRIBUTING.md)."""


def family_of_classes(n_classes: int) -> type[Experts]:
    """Return the family for so many classes."""
    return LogisticExperts if n_classes == 2 else MultinomialExperts


__all__ = [
    "FAMILIES",
    "CanonicalExperts",
    "Derivatives",
    "DispersedExperts",
    "Experts",
    "FitStatistics",
    "GammaExperts",
    "GaussianExperts",
    "LogisticExperts",
    "MultinomialExperts",
    "NegativeBinomialExperts",
    "PoissonExperts",
    "Response",
    "StudentExperts",
    "family_of_classes",
]
