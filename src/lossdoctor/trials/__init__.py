"""Repeat a run with one change, beside an untreated control."""
