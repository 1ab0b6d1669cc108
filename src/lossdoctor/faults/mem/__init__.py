"""Faults of memory."""
