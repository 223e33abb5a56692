"""Is a window hard, and may it be asked about."""
