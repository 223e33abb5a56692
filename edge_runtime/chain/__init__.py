"""Chains: models with states, front ends before them, several models in a row, as one engine with explicit states."""
