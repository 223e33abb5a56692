"""Surround of a network: fitted to answers about groups that it was not trained on, kept where it wins there."""
