"""The files that ship: candidates made, timed and evaluated, the surround of a network, variants of a foreign model.

Imports `learn`, `package`, `graph`, `recipe`, `data` and the ground.
"""
