"""Faults of distributed training."""
