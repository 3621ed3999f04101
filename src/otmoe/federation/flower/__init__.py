"""Flower: sites as nodes of a SuperLink."""
