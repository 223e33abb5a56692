"""Labelled recordings: labels in time, split by group, checks, readers.

Imports the ground alone.
"""
