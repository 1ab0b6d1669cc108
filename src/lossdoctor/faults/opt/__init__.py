"""Faults of optimiser and schedule."""
