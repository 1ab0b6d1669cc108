"""Faults of the architecture."""
