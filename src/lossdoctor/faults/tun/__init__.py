"""Faults of fine-tuning."""
