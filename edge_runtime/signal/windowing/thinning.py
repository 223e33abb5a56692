"""Thinning: of the windows of each key every n-th is answered, the others are counted as dropped."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.window import Window


class Thinning:
    """Choice of the windows that are answered.

    It follows their number, so the same stream is thinned the same way on every run; the keys alternate, so that the
    load is spread.

    Args:
        metrics: receives the drops, ``rate_reduced``.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.every = 1
        """Windows of a key for each that is answered."""
        self.hop = 1
        """Samples between two windows of a key."""

    def kept(self, windows: Sequence[Window]) -> list[int]:
        """Return the positions of the windows that are answered, and count the others."""
        every, hop = self.every, self.hop
        kept = [i for i, one in enumerate(windows) if (one.slot // hop + zlib.crc32(one.key.encode())) % every == 0]
        self._metrics.dropped["rate_reduced"] += len(windows) - len(kept)
        return kept

    def thinned(self, windows: list[Window]) -> list[Window]:
        """Return the windows that are answered; all of them at the full rate."""
        return windows if self.every == 1 else [windows[i] for i in self.kept(windows)]
