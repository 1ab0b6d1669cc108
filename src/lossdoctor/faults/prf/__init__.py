"""Faults of speed."""
