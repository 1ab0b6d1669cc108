"""Pure functions on series."""
