"""State that survives a restart: outbox, reading log, states of keys, hard cases.

Imports `answer` and what is below it.
"""
