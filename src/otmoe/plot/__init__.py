"""Plots of models, fits and aggregations, in the style of scikit-learn. Needs matplotlib."""

from otmoe.plot.coefficients import CoefficientDisplay
from otmoe.plot.curves import CurveDisplay
from otmoe.plot.flow import FlowDisplay
from otmoe.plot.forest import ForestDisplay
from otmoe.plot.gates import GateEffectDisplay, GateRegionDisplay
from otmoe.plot.predictions import DensityDisplay, ResidualDisplay
from otmoe.plot.spread import SpreadDisplay
from otmoe.plot.traces import ConvergenceDisplay, SelectionDisplay

__all__ = [
    "CoefficientDisplay",
    "ConvergenceDisplay",
    "CurveDisplay",
    "DensityDisplay",
    "FlowDisplay",
    "ForestDisplay",
    "GateEffectDisplay",
    "GateRegionDisplay",
    "ResidualDisplay",
    "SelectionDisplay",
    "SpreadDisplay",
]
