"""The recipe: one TOML file as typed values."""
