"""The table ``[window]``: run-time bounds; what a window *is* comes from the bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_runtime.manifest import InputContract

WAIT_S: Final = 10.0
"""Shortest default of `WindowConfig.wait_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Run-time bounds; what a window *is* comes from the bundle."""

    lateness_s: float = 0.0
    """Largest age of a sample that still counts, against its key's newest stamp."""
    parts: bool = False
    """Readings may hold some of the channels. The application sets it where a source says so; needed for sources of a
    program's own."""
    wait_s: float = 0.0
    """Where channels come in messages of their own: how far the key's newest stamp may be ahead of a channel before the
    others wait for it no longer. 0: ten seconds, or the contract's `max_gap_s` if that is longer."""
    max_waiting: int = 100_000
    """Samples of all keys that wait for other channels; beyond it, a key waits no longer."""
    max_keys: int = 10_000
    """Keys held at a time; the one that was silent longest leaves first, and is counted."""
    max_jump_s: float = 60.0
    """A step of a key's clock beyond this needs a second reading that agrees; a shorter one back, a window of them."""

    def __post_init__(self) -> None:
        if self.lateness_s < 0:
            raise ValueError("lateness_s must not be negative")
        if self.max_keys < 1:
            raise ValueError("max_keys must be at least 1")
        if self.max_jump_s <= self.lateness_s:
            raise ValueError("max_jump_s must be greater than lateness_s")
        if not 0 <= self.wait_s <= self.max_jump_s:
            raise ValueError("wait_s must be 0 to max_jump_s")
        if self.max_waiting < 0:
            raise ValueError("max_waiting must not be negative")

    def wait(self, contract: InputContract) -> float:
        """Return `wait_s` with its default applied, seconds."""
        return self.wait_s or max(WAIT_S, contract.max_gap)
