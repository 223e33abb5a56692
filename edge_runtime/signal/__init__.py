"""Readings to windows that can be trusted: windows, front ends, intake checks, drift.

Imports `base`, `manifest` and the ground.
"""
