"""Chains: models with states, front ends before them, several models in a row, as one engine with explicit states."""

WINDOW = "window"
"""Name of a chain's first input, and of the track that it makes."""
STEP = "step"
"""Name of the second input of a chain with states: 0 for a key that begins, or is reset."""
