"""What survives a power cut: the outbox, the log of readings, begun windows, drop counters."""
