"""Faults of recurrent networks."""
