"""Words for what a bundle can notice of its sensors, and for what was noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from edge_runtime import units
from edge_runtime.manifest import SensorReference
from edge_runtime.manifest.drift import Repair
from edge_runtime.types import Float64

TURNED: Final = "all axes turned"
"""Beginning of a fault that turns a whole sensor."""


def notices(reference: SensorReference | None) -> dict[str, str]:
    """Describe what a bundle can notice, by the fault.

    For example ``ax and ay swapped``: ``costs 0.41 of the accuracy; found in 100 % of left-out groups``.
    """
    if reference is None:
        return {}
    # There are up to 23 turns: one line for all.
    turns = [repair for repair in reference.repairs if repair.fault.startswith(TURNED)]
    found = {repair.fault: _worth([repair]) for repair in reference.repairs if repair not in turns}
    if turns:
        found[f"{TURNED}, {len(turns)} of 23 ways"] = _worth(turns)
    if reference.own is not None:
        found["changed"] = f"compared with the sensor's own first {reference.own.windows} windows"
    return found


def _worth(repairs: Sequence[Repair]) -> str:
    costs = _span([f"{repair.cost:g}" for repair in repairs])
    shares = _span([f"{100 * repair.found:.0f}" for repair in repairs])
    return f"costs {costs} of the accuracy; found in {shares} % of left-out groups"


def _span(values: Sequence[str]) -> str:
    low, high = min(values, key=float), max(values, key=float)
    return low if low == high else f"{low} to {high}"


def repair(best: Repair, channels: Sequence[str], wanted: Mapping[str, str]) -> str:
    """Say what is likely wrong, and what to do.

    Args:
        best: what would undo it.
        channels: the repair's channels.
        wanted: units that the model takes, by channel.
    """
    if best.cause == "orientation":
        return (
            f"orientation changed (best match: {best.fault}): look at how the sensor is mounted, and at the order and "
            "the signs of its axes in what it sends"
        )
    scaled = [name for name, factor in zip(channels, best.factors, strict=True) if factor != 1]
    line = units.line([(name, best.unit) for name in scaled])
    return f"values look like {best.unit} instead of {wanted[scaled[0]]}: write {line} under [source.codec]"


_FEATURES: Final = ("mean", "deviation", "spectral centroid")


def feature(scaled: Float64) -> str:
    """Name the one of a channel's features that differs most: ``mean is higher``.

    Args:
        scaled: differences of mean, deviation and centroid, in their usual sizes.
    """
    at = int(np.abs(scaled).argmax())
    return f"{_FEATURES[at]} is {'higher' if scaled[at] > 0 else 'lower'}"


def change(scaled: Float64, channels: Sequence[str]) -> str:
    """Say what has changed most since a key began.

    Args:
        scaled: differences of means, deviations and centroids, in their usual sizes.
        channels: the channels of each of the three.
    """
    at = int(np.abs(scaled).argmax())
    kind, way = _FEATURES[at // len(channels)], "higher" if scaled[at] > 0 else "lower"
    return (
        f"the sensor has changed since it began (most: {kind} of {channels[at % len(channels)]} is {way}): look at "
        "how it is mounted and at its settings; edge-runtime reset takes it as it is now"
    )
