"""Readings to rows of a grid, to windows, to the arrays that a model takes."""
