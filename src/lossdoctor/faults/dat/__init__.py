"""Faults of the data."""
