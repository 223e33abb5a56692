"""Durable state, which survives a power cut: the outbox, the reading log, begun windows, drop counters."""
