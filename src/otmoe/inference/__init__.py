"""Standard errors, tests and intervals for a model at its maximum (maths 15)."""

from otmoe.inference.covariance import Covariance, distance_to_maximum, one_round_refusal
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

__all__ = [
    "Covariance",
    "Estimate",
    "Inference",
    "Kind",
    "MeanInterval",
    "Parameter",
    "StandardErrors",
    "Text",
    "WaldTest",
    "check_floor",
    "check_kind",
    "distance_to_maximum",
    "about_fit",
    "fitted_inference",
    "inference",
    "observed_inference",
    "one_round_refusal",
    "refined_inference",
]
