"""Training windows drawn from recordings and varied."""
