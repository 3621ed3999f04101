"""Expert families: what they predict, how they are fitted, how far apart they are."""

from otmoe.model.experts.base import Experts
from otmoe.model.experts.binomial import BinomialExperts
from otmoe.model.experts.dispersed import DispersedExperts
from otmoe.model.experts.gamma import GammaExperts
from otmoe.model.experts.gaussian import GaussianExperts
from otmoe.model.experts.glm import CanonicalExperts, LogisticExperts, PoissonExperts
from otmoe.model.experts.joint import JointExperts, joined
from otmoe.model.experts.negative_binomial import NegativeBinomialExperts
from otmoe.model.experts.softmax import MultinomialExperts
from otmoe.model.experts.student import BY_NAME, DEGREES, StudentExperts
from otmoe.model.experts.values import Derivatives, FitStatistics, Response

MOST_RESPONSES = 20
"""Responses of a model, at most."""


class Families(dict[str, type[Experts]]):
    """Families by name; those of several responses by their names with a plus in between.

    A Student-t family may end in its degrees of freedom.
    """

    more = f"student_t{DEGREES[0]} to student_t{DEGREES[-1]} (odd degrees of freedom)"
    """What there is beside the names, for errors."""

    def __missing__(self, name: str) -> type[Experts]:
        if name not in self:
            raise KeyError(name)
        if name in BY_NAME:
            return BY_NAME[name]
        return joined(tuple(self[part] for part in name.split("+")), ())

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or name in BY_NAME:
            return True
        parts = name.split("+") if isinstance(name, str) else []
        known = [BY_NAME.get(part) or super(Families, self).get(part) for part in parts]
        return 1 < len(parts) <= MOST_RESPONSES and all(
            kind and kind is not MultinomialExperts for kind in known
        )


FAMILIES: Families = Families(
    (family.family, family)
    for family in (
        GaussianExperts,
        LogisticExperts,
        BinomialExperts,
        MultinomialExperts,
        PoissonExperts,
        NegativeBinomialExperts,
        GammaExperts,
        StudentExperts,
    )
)
"""Families by name; add one, and it works everywhere (CONTRIBUTING.md)."""


def family_of_classes(n_classes: int) -> type[Experts]:
    """Return the family for so many classes."""
    return LogisticExperts if n_classes == 2 else MultinomialExperts


__all__ = [
    "FAMILIES",
    "BinomialExperts",
    "CanonicalExperts",
    "Derivatives",
    "DispersedExperts",
    "Experts",
    "FitStatistics",
    "GammaExperts",
    "GaussianExperts",
    "JointExperts",
    "LogisticExperts",
    "MultinomialExperts",
    "NegativeBinomialExperts",
    "PoissonExperts",
    "Response",
    "StudentExperts",
    "family_of_classes",
]
