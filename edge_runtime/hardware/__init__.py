"""What machine this is: profiles, where they come from, and loading a model on the best of what a profile offers.

The knowledge of single boards lies outside, in ``devices/`` and in packages of vendors, and comes in through the entry-
point group ``edge_runtime.hardware``.
"""

from __future__ import annotations

from edge_runtime.hardware.discovery import Findings, Plugin, find_devices, this_device
from edge_runtime.hardware.profile import (
    CACHE,
    Battery,
    Cluster,
    Counter,
    EngineChoice,
    Evidence,
    Flag,
    Gauge,
    Profile,
    combined,
)

__all__ = [
    "CACHE",
    "Battery",
    "Cluster",
    "Counter",
    "EngineChoice",
    "Evidence",
    "Findings",
    "Flag",
    "Gauge",
    "Plugin",
    "Profile",
    "combined",
    "find_devices",
    "this_device",
]
