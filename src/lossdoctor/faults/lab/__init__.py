"""Faults of the labels."""
