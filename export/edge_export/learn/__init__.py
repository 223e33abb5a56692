"""A recipe and its windows to trained networks: front ends, networks, varied windows, training, pruning.

The wing that needs torch. Imports `graph`, `recipe`, `data` and the ground.
"""
