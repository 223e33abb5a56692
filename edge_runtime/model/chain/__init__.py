"""Chains: models with states, front ends before them, several models in a row, as one engine with explicit states."""

WINDOW = "window"
"""Name of a chain's first input, and of the track that it makes."""
STREAM = "stream"
"""Name of the track of samples that no step before brought: the whole window in a key's first step after a reset, then
the newest `InputContract.hop` of it. Windows overlap, the track does not."""
STEP = "step"
"""Name of the second input of a chain with states: 0 for a key that begins, or is reset."""
