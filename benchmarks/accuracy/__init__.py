"""Accuracy on groups that nothing was fitted to: what each part around a network adds, beside peers worth having."""
