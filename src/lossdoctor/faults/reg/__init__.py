"""Faults of generalisation and regularisation."""
