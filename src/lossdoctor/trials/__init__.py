"""Treat a run: repeat it with one change beside an untreated control, and say whether the change cures it."""
