"""Share of hard windows that is kept for every key; whether one may be asked about, and which are audited."""
