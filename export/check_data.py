"""What would waste an hour of training, found in seconds: impossible windows, labels that cannot be learnt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from edge_runtime.errors import ConfigError
from export.data import Channel, Float32, Windows

FEWEST = 20
"""Windows of a class below which nothing can be learnt, let alone said about errors."""

RANGE_RATIO = 30.0
"""Two sets of windows of one quantity differ less than this in their typical size; units differ more (m/s2 and mg:
102; g and mg: 1000; rad/s and deg/s: 57)."""


def check_windows(windows: Windows, classes: Sequence[str], *, what: str, fewest: int = FEWEST) -> None:
    """Refuse windows that cannot be learnt from.

    Args:
        windows: labelled.
        classes: label names.
        what: which set this is, for messages.
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


def check_units(seen: Float32, other: Float32, channels: Sequence[Channel], *, what: str) -> None:
    """Refuse windows whose values are of another size than those trained on: most likely another unit.

    Args:
        seen: (n, n_channels, samples) that were trained on.
        other: (m, n_channels, samples) to be used beside them.
        channels: names and units.
        what: which set `other` is, for messages.

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
