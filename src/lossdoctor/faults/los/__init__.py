"""Faults of the loss."""
