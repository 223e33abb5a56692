"""Live traffic understood: messages to observations, to guesses, to a ``[[source]]`` table for a bundle."""
