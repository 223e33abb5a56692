"""Tuning: the variant and the engine that answer fastest on this machine, measured once and kept in a file."""
