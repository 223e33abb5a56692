"""The table ``[window]``: run-time bounds; what a window *is* comes from the bundle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Run-time bounds; what a window *is* comes from the bundle."""

    lateness_s: float = 0.0
    """Largest age of a sample that still counts, against its key's newest stamp."""
    max_keys: int = 10_000
    """Keys held at a time; the one that was silent longest leaves first, and is counted."""
    max_jump_s: float = 60.0
    """A step of a key's clock beyond this needs a second reading that agrees."""

    def __post_init__(self) -> None:
        if self.lateness_s < 0:
            raise ValueError("lateness_s must not be negative")
        if self.max_keys < 1:
            raise ValueError("max_keys must be at least 1")
        if self.max_jump_s <= self.lateness_s:
            raise ValueError("max_jump_s must be greater than lateness_s")
