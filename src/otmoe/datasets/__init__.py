"""Data with known answers, and loaders for public data with natural sites."""

from otmoe.datasets.real import SiteData, data_folder, load_beijing, load_flights, load_mmash
from otmoe.datasets.simulation import Simulation, simulate

__all__ = [
    "Simulation",
    "SiteData",
    "data_folder",
    "load_beijing",
    "load_flights",
    "load_mmash",
    "simulate",
]
