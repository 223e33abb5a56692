"""Recorded files as readings."""
