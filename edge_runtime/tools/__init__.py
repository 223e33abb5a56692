"""Commands, and what only commands need: listening, recording, batches, benchmarks, the demo.

Imports everything; nothing imports it.
"""
