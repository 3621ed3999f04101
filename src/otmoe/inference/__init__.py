"""Standard errors, tests and intervals (maths 15), and how sites differ (maths 18)."""

from otmoe.inference.between import Between, between_sites
from otmoe.inference.covariance import Covariance, distance_to_maximum, one_round_refusal
from otmoe.inference.effects import Coefficient, Comparison, SiteEffect, Spread
from otmoe.inference.estimates import Estimate, MeanInterval, StandardErrors, WaldTest
from otmoe.inference.observed import (
    about_fit,
    check_floor,
    check_kind,
    fitted_inference,
    inference,
    observed_inference,
    refined_inference,
)
from otmoe.inference.parameters import Parameter
from otmoe.inference.result import Inference, Kind
from otmoe.inference.summary import Text
from otmoe.inference.tables import Estimates, TermTests
from otmoe.inference.terms import TermTest

__all__ = [
    "Between",
    "Coefficient",
    "Covariance",
    "Estimate",
    "Estimates",
    "Comparison",
    "Inference",
    "Kind",
    "MeanInterval",
    "Parameter",
    "SiteEffect",
    "Spread",
    "StandardErrors",
    "TermTest",
    "TermTests",
    "Text",
    "WaldTest",
    "check_floor",
    "check_kind",
    "distance_to_maximum",
    "about_fit",
    "between_sites",
    "fitted_inference",
    "inference",
    "observed_inference",
    "one_round_refusal",
    "refined_inference",
]
