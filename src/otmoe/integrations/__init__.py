"""Adapters to other packages; each is imported by name, and only where its package is."""
