"""Start a script in a process of its own, as python would, watched."""
