"""Drift by channel: how far the last looks of one key are from an alarm, for people to look at.

1. All figures are shares of what begins an alarm: 1 is the bound.
2. *Mounting*: of the repairs that touch a channel, the one that explains the last looks best
   (`edge_runtime.signal.drift.repair`). From 1 on there is an alarm, which names the best repair of all: one fault
   lifts others past the bound, so a channel there need not be wrong.
3. *Past*: the distance of a channel from the key's beginning (`edge_runtime.signal.drift.own_past`), and that of all
   channels together, which is the one that makes the alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge_runtime.manifest.drift import Repair, SensorReference
from edge_runtime.signal.drift import words
from edge_runtime.signal.drift.own_past import Distance
from edge_runtime.types import Float64


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDrift:
    """One channel; None where the bundle has no such reference, or there were too few looks."""

    channel: str
    mounting: float | None = None
    fault: str = ""
    """What that repair would undo, in words."""
    past: float | None = None
    most: str = ""
    """Feature that has changed most, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDrift:
    """One key."""

    channels: tuple[ChannelDrift, ...]
    past: float | None
    """Of all channels together."""
    looks: int
    """Of the beginning, so far."""
    wanted: int
    """Looks that the beginning takes; 0 where the bundle has no own past."""


def key_drift(
    reference: SensorReference, shares: Float64 | None, repairs: Sequence[Repair], distance: Distance | None,
    difference: Float64 | None, looks: int,
) -> KeyDrift:  # fmt: skip
    """Put the figures of one key together.

    Args:
        reference: the bundle's reference.
        shares: means of the last looks as shares of the thresholds, by repair; None before there are enough.
        repairs: those that are looked for.
        distance: the distance from the beginning; None where the bundle has no own past.
        difference: the last looks' mean features less the beginning's; None before there are enough.
        looks: the beginning's looks so far.
    """
    mounted = {} if shares is None else _mounting(shares, repairs, reference.channels)
    whole: float | None = None
    changed: dict[str, tuple[float, str]] = {}
    if distance is not None and difference is not None:
        whole = _rounded(float(distance.of(difference)) / distance.own.threshold)
        changed = _past(difference, distance, reference.channels)
    rows = []
    for name in reference.channels:
        (mounting, fault), (past, most) = mounted.get(name, (None, "")), changed.get(name, (None, ""))
        rows.append(ChannelDrift(channel=name, mounting=mounting, fault=fault, past=past, most=most))
    wanted = 0 if distance is None else distance.own.windows
    return KeyDrift(channels=tuple(rows), past=whole, looks=looks, wanted=wanted)


def _mounting(shares: Float64, repairs: Sequence[Repair], channels: Sequence[str]) -> dict[str, tuple[float, str]]:
    """Return the best share and its fault by channel (rule 2)."""
    found: dict[str, tuple[float, str]] = {}
    for share, repair in zip(map(_rounded, shares.tolist()), repairs, strict=True):
        takes, factors = repair.takes or channels, repair.factors or (1.0,) * len(channels)
        for name, taken, factor in zip(channels, takes, factors, strict=True):
            if (taken, factor) != (name, 1) and (name not in found or share > found[name][0]):
                found[name] = share, repair.fault
    return found


def _past(difference: Float64, distance: Distance, channels: Sequence[str]) -> dict[str, tuple[float, str]]:
    """Return share and feature of each channel (rule 3)."""
    scaled = (difference / np.array(distance.own.spread)).reshape(3, -1).T
    alone = distance.by_channel(difference)
    return {
        name: (_rounded(far / distance.own.threshold), words.feature(row))
        for name, far, row in zip(channels, alone, scaled, strict=True)
    }


def _rounded(share: float) -> float:
    return round(max(0.0, share), 3)
