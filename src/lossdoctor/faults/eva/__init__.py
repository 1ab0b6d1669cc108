"""Faults of evaluation."""
