"""Benchmarks of the project's claims, each beside what a user would write instead; run as ``python -m benchmarks``."""
