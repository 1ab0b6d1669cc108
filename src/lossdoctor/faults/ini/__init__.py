"""Faults of the initialisation."""
