"""Active measurements on what was captured of a run. Each file holds one; `EXPERIMENTS` is the folder."""
