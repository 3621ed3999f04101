"""Simulated data, a small public table, and loaders for public data with natural sites."""

from otmoe.datasets.real import data_folder, load_beijing, load_flights, load_mmash
from otmoe.datasets.simulation import Simulation, simulate
from otmoe.datasets.sites import SiteData
from otmoe.datasets.small import load_visits

__all__ = [
    "Simulation",
    "SiteData",
    "data_folder",
    "load_beijing",
    "load_flights",
    "load_mmash",
    "load_visits",
    "simulate",
]
