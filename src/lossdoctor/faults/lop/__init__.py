"""Faults of the training loop."""
