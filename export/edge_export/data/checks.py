"""Checks of windows before training: impossible values, scales that differ, classes with too few windows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from edge_export.data.dataset import Float32, Windows
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel

FEWEST = 2
"""Windows of a class below which there is nothing to learn."""
ENOUGH = 20
"""Windows of a class below which training and error rates depend on chance."""

RANGE_RATIO = 30.0
"""Two sets of windows of one quantity differ less than this in their typical size; units differ more (m/s2 and mg:
102; g and mg: 1000; rad/s and deg/s: 57)."""


def check_windows(windows: Windows, classes: Sequence[str], *, what: str, fewest: int = FEWEST) -> None:
    """Refuse windows that cannot be learnt from.

    Args:
        windows: labelled.
        classes: label names.
        what: the set's name, for messages.
        fewest: windows that every class needs.

    Raises:
        ConfigError: a class has too few windows, a group has one class only in a set of one, values are not finite, or
            two classes share the same windows.
    """
    if not np.isfinite(windows.contexts).all():
        index = int(np.argwhere(~np.isfinite(windows.contexts).all(axis=(1, 2)))[0, 0])
        raise ConfigError(f"{what}: a window of group {windows.group[index]} holds values that are not finite")
    counts = np.bincount(windows.y, minlength=len(classes))
    for label, count in enumerate(counts.tolist()):
        if count < fewest:
            raise ConfigError(
                f"{what}: class {classes[label]!r} has {count} windows, at least {fewest} are needed; "
                "add recordings, shorten hop, or leave the class out"
            )
    seen: dict[bytes, int] = {}
    shared = np.zeros(len(classes), np.int64)
    for x, label in zip(windows.x, windows.y.tolist(), strict=True):
        if seen.setdefault(hashlib.sha256(x.tobytes()).digest(), label) != label:
            shared[label] += 1
            # A constant window (a sensor that is off) may well occur twice; a tenth of a class may not.
            if shared[label] > max(1, counts[label] // 10):
                raise ConfigError(
                    f"{what}: class {classes[label]!r} shares its windows with another class; look at its files"
                )


def few_windows(windows: Windows, classes: Sequence[str], *, hop_s: float, what: str) -> list[str]:
    """Describe classes with too few windows to rely on: a line each, with how much is missing.

    Args:
        windows: labelled.
        classes: label names.
        hop_s: seconds from window to window.
        what: the set's name.
    """
    counts = np.bincount(windows.y, minlength=len(classes)).tolist()
    return [
        f"{what}: class {label!r} has {count} windows; {ENOUGH} are needed to rely on it: record about "
        f"{(ENOUGH - count) * hop_s:.3g} s more of it, or shorten hop"
        for label, count in zip(classes, counts, strict=True)
        if count < ENOUGH
    ]


CONVERSIONS = (
    ("m/s2 and g", 9.80665, ("g", "m/s2", "m/s^2", "m/s²", "m/s/s")),
    ("degrees and radians", 57.2958, ("deg/s", "dps", "°/s", "rad/s", "deg", "°", "rad")),
    ("a unit and its thousandth", 1000.0, ()),
)
"""Ratios of units that people mix: in words, the ratio, and the units it holds for; none: for all."""
CONVERSION_WITHIN = 1.35
"""Factor by which a ratio of sizes may miss a conversion and still be taken for it: people move unlike each other."""
DOUBTFUL = 4.0
"""Ratio of a group's values to those of the others from on which it is pointed out."""


def odd_scales(windows: Windows, channels: Sequence[Channel]) -> list[tuple[str, str, float]]:
    """Find groups whose values are of another size than those of all others, within the same classes.

    1. The size is the root mean square over the channels of one unit, which are alike.
    2. It is compared class by class, since people rest and run for different times, with the median of two other groups
       or more: of one it would be open which is odd.
    3. Of a group the median over its classes counts.

    Args:
        windows: windows of all sets.
        channels: names and units.

    Returns:
        Group, unit and ratio, where it is `DOUBTFUL` or more, either way.
    """
    found = []
    names = np.unique(windows.group)
    for unit in dict.fromkeys(channel.unit for channel in channels):
        columns = [index for index, channel in enumerate(channels) if channel.unit == unit]
        power = np.square(windows.x[:, columns], dtype=np.float64).mean(axis=(1, 2))  # rule 1
        ratios: dict[str, list[float]] = {str(name): [] for name in names}
        for label in np.unique(windows.y):  # rule 2
            own = windows.y == label
            sizes = {str(n): float(np.sqrt(power[own & (windows.group == n)].mean())) for n in set(windows.group[own])}
            for name, size in sizes.items():
                others = [other for each, other in sizes.items() if each != name]
                if len(others) > 1 and size > 0 and (usual := float(np.median(others))) > 0:
                    ratios[name].append(size / usual)
        for name, each in ratios.items():
            ratio = float(np.median(each)) if each else 1.0  # rule 3
            if max(ratio, 1 / ratio) >= DOUBTFUL:
                found.append((name, unit, ratio))
    return found


def check_scales(windows: Windows, channels: Sequence[Channel]) -> list[str]:
    """Refuse a group whose values are in another unit; say which ones are merely of an odd size.

    Args:
        windows: windows of all sets.
        channels: names and units.

    Returns:
        A line for each group of an odd size.

    Raises:
        ConfigError: a group's values differ from all others' by the ratio of two units; names both.
    """
    lines = []
    for group, unit, ratio in odd_scales(windows, channels):
        times = max(ratio, 1 / ratio)
        said = f"group {group}: its values in {unit} are {ratio:.3g} times those of the others in the same classes"
        for units, conversion, of in CONVERSIONS:
            if (not of or unit.lower() in of) and 1 / CONVERSION_WITHIN < times / conversion < CONVERSION_WITHIN:
                raise ConfigError(
                    f"{said}, which is the ratio of {units}: is it in another unit? convert it, leave it out "
                    "([split] exclude), or say that it is right ([window] same_units = false)"
                )
        lines.append(f"{said}; is its sensor another one, or its unit?")
    return lines


def check_units(seen: Float32, other: Float32, channels: Sequence[Channel], *, what: str) -> None:
    """Refuse windows whose values are of another size than those trained on: most likely another unit.

    Args:
        seen: (n, n_channels, samples) that were trained on.
        other: (m, n_channels, samples) to be used beside them.
        channels: names and units.
        what: name of the set of `other`, for messages.

    Raises:
        ConfigError: names the channel and both sizes.
    """
    for index, channel in enumerate(channels):
        sizes = [float(np.sqrt(np.mean(np.square(x[:, index], dtype=np.float64)))) for x in (seen, other)]
        if min(sizes) <= 0:
            continue
        if max(sizes) / min(sizes) > RANGE_RATIO:
            raise ConfigError(
                f"{what}: channel {channel.name} is {sizes[1]:.3g} {channel.unit} (root mean square), in training "
                f"{sizes[0]:.3g}; is it in another unit?"
            )
