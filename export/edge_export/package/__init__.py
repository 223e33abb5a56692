"""Bundles and what travels with them: packing, signatures, announcements, keys."""
