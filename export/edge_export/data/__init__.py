"""Labelled recordings: labels in time, split by group, checks, readers."""
