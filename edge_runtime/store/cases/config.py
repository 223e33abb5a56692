"""The table ``[cases]``: which windows are kept for people, where, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesConfig:
    """Settings of kept cases.

    Raises:
        ValueError: a value makes no sense.
    """

    path: Path
    """SQLite file; only this user can read it. Its folder must exist."""
    keep: Literal["raw", "nothing"] = "raw"
    """``raw``: the samples of the window. ``nothing`` switches the table off, and makes no file."""
    hard: bool = True
    """Keep windows whose answer the gate did not trust."""
    audits: bool = True
    """Keep trusted answers that the cloud checks (``audit_share`` under ``[gate]``)."""
    suspect: bool = True
    """Keep windows whose readings are suspect."""
    random_share: float = 0.0
    """Share of all other windows that is kept, so that people see what the device is sure of, too."""
    max_per_minute: int = 30
    """Cases a minute, of all keys together: more than people look at, and little enough for a memory card. Windows of a
    proof are drawn instead."""
    max_bytes: int = 64 * 2**20
    """Size of the file. Windows without a label go first, then those with one; a label stays, and for each 4 KiB there
    may be one."""
    max_days: float = 30.0
    """Time with the power on that a window is kept, whatever the wall clock says; its label stays."""

    def __post_init__(self) -> None:
        if not 0 <= self.random_share <= 1:
            raise ValueError("random_share must be 0 to 1")
        if not 1 <= self.max_per_minute <= 6000:
            raise ValueError("max_per_minute must be 1 to 6,000")
        if not 2**20 <= self.max_bytes <= 2**40:
            raise ValueError("max_bytes must be at least 1048576 (1 MiB)")
        if not 0 < self.max_days <= 36_500:
            raise ValueError("max_days must be above 0")
