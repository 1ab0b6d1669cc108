"""Faults of numerics."""
