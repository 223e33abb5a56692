"""What we claim, measured beside what a user would write instead; run as ``python -m benchmarks``."""
