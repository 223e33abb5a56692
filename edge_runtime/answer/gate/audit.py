"""Audits: trusted answers that the cloud checks all the same."""

from __future__ import annotations

import zlib


def audited(window_id: str, share: float) -> bool:
    """Return whether a trusted answer is checked all the same; the same window gets the same answer on every run."""
    return share > 0 and zlib.crc32(window_id.encode()) < share * 2**32
