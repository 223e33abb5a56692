"""The recipe: one TOML file as typed values, its windows, and one inferred from a folder of recordings.

Imports `data` and the ground.
"""
