"""Other people's quantisers, each in an environment of its own, run by their defaults."""
