"""Follower: sees what a model says of each key before the task decides, and may change it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from edge_runtime.manifest import Manifest
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32


class Follower(Protocol):
    """Part between a model and its task, for example thresholds of keys or examples of users."""

    @property
    def active(self) -> bool:
        """Return whether the bundle that answers has something to follow."""
        ...

    def use(self, manifest: Manifest) -> None:
        """Follow what this bundle says from now on."""
        ...

    def run(
        self, windows: Sequence[Window], numbers: Float32, suspects: Collection[tuple[str, int]] = (), /
    ) -> Float32:
        """Return the numbers that the next follower, or the task, reads.

        Args:
            windows: those of a key in their order.
            numbers: (windows, ...), what the model says.
            suspects: places of windows from which nothing is learnt.
        """
        ...
