"""Bundles and what travels with them: packing, cards of foreign models, signatures, announcements, keys.

Imports `graph`, `recipe`, `data` and the ground.
"""
