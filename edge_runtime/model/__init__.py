"""A window to an answer: bundles, engines, chains, tasks, tuning, serving with failover, answers over time.

Imports `signal`, `base`, `manifest` and the ground.
"""
