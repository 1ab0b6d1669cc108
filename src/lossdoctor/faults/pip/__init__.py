"""Faults of the input pipeline."""
