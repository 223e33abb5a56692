"""Metrics of what could ship, with their uncertainty."""
