"""Everything put together: configuration, composition, workers, and the Python API.

Imports everything but `tools`.
"""
