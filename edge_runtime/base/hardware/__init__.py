"""Profiles of the machine: what it is, and where that knowledge comes from.

The knowledge of single boards lies outside, in ``edge_devices`` and in packages of vendors, and comes in through the
entry-point group ``edge_runtime.devices``.
"""

from __future__ import annotations

from edge_runtime.base.hardware.discovery import Findings, Plugin, find_devices, this_device
from edge_runtime.base.hardware.profile import (
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
