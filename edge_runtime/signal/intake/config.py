"""The table ``[intake]``: which checks of arriving values run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Check = Literal["clipped", "rate", "spectrum", "stuck", "unit"]

CHECKS: Final[tuple[Check, ...]] = ("clipped", "rate", "spectrum", "stuck", "unit")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeConfig:
    """Checks of what arrives; a key that fails one is logged, and its windows are hard."""

    checks: tuple[Check, ...] = CHECKS
    """``clipped``: values at the end of a sensor's range. ``rate``: samples in a second, by their stamps. ``stuck``:
    channels that keep one value. ``unit``: size of the values; ``spectrum``: how far up sound reaches; both where the
    bundle has references. An empty list takes all as it comes."""
