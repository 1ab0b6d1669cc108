"""The shared language of all parts: signals, runs, faults, diagnoses, settings, errors."""
