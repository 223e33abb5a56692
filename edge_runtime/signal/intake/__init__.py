"""Checks of what arrives: units, rates and stuck channels are told from the data, key by key."""
