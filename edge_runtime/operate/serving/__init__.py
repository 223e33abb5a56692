"""Serving: listener, router and answers of every server of ours; a server is a table of routes on it."""
