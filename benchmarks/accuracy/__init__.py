"""Accuracy on groups that nothing was fitted to: what each part around the network adds, beside peers that are no straw men."""
