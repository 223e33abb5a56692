"""Drift: what windows and answers say, without labels, about sensors that were mounted otherwise or have changed."""
