"""Data with known answers."""

from otmoe.datasets.simulation import Simulation, simulate

__all__ = ["Simulation", "simulate"]
