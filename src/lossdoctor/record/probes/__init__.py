"""Measurements on tensors: pure functions and tiny classes, none of which changes what it looks at or draws random numbers."""
