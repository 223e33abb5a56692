"""The table ``[drift]``: what is noticed of sensors that were mounted otherwise or have changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Detector = Literal["repair", "changed"]

DETECTORS: Final[tuple[Detector, ...]] = ("repair", "changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftConfig:
    """Detectors of drift, for bundles that have what they need; see docs/drift.md."""

    detectors: tuple[Detector, ...] = DETECTORS
    """``repair``: axes swapped, flipped or turned, another unit; its windows are hard. ``changed``: a sensor is far
    from its own first windows. An empty list looks for nothing."""
