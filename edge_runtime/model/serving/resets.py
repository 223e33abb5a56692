"""Keys whose states are to begin again, as ``edge-runtime reset`` and the page name them."""

from __future__ import annotations

from typing import Final, TypeGuard

MAX_KEYS: Final = 1000
"""Keys in one request."""


def are_keys(keys: object) -> TypeGuard[list[str]]:
    """Return whether what came from outside is a list of at most `MAX_KEYS` keys."""
    return isinstance(keys, list) and len(keys) <= MAX_KEYS and all(isinstance(key, str) for key in keys)
