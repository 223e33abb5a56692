"""Recorder: live traffic of sources, written to a file with the labels that a person sets meanwhile."""
