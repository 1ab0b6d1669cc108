"""Say why a training run fails."""

__version__ = "0.1.0"
