"""Faults of transformers and of training them."""
