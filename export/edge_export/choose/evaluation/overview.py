"""Overview of the data: windows and groups by class, and a typical window of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_export.data.dataset import Dataset, Float32, Int64, Windows, spread
from edge_export.learn.training.baseline import features
from edge_export.recipe.splits import Splits
from edge_runtime.manifest import InputContract

LONGEST = 120
"""Numbers kept of a channel of a window that is drawn."""
CHANNELS = 9
"""Channels kept of such a window, the first ones."""
COMPARED = 2000
"""Training windows that typical ones are looked for among, evenly spread."""


def overview(splits: Splits, contract: InputContract) -> dict[str, Any]:
    """Collect the report's figures of the data.

    Args:
        splits: windows of every set.
        contract: what a window is.
    """
    train = splits.recordings.train
    sets = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    typical = typical_windows(splits.train, len(train.classes))
    return {
        "channels": [{"name": channel.name, "unit": channel.unit} for channel in train.channels],
        "window_s": contract.window / contract.rate_hz,
        "classes": [
            {
                "name": name,
                "windows": {which: int((windows.y == label).sum()) for which, windows in sets.items()},
                "groups": len({str(one) for windows in sets.values() for one in windows.group[windows.y == label]}),
                "typical": drawn(splits.train, typical[label], train, contract) if label in typical else None,
            }
            for label, name in enumerate(train.classes)
        ],
    }


def typical_windows(windows: Windows, classes: int) -> Mapping[int, int]:
    """Find the window of each class whose statistics are nearest to the medians of its class.

    Args:
        windows: windows of training groups.
        classes: how many there are.

    Returns:
        Place of the window by class; a class without a window is left out.
    """
    chosen: Int64 = spread(len(windows), COMPARED)
    y = windows.y[chosen]
    found = features(np.ascontiguousarray(windows.contexts[chosen, :, -windows.samples :]))
    deviation = found.std(axis=0)
    found = (found - found.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    places = {}
    for label in range(classes):
        own = np.flatnonzero(y == label)
        if len(own):
            distances = ((found[own] - np.median(found[own], axis=0)) ** 2).sum(axis=1)
            places[label] = int(chosen[own[distances.argmin()]])
    return places


def drawn(windows: Windows, place: int, recordings: Dataset, contract: InputContract) -> dict[str, Any]:
    """Return one window as the report draws it, and where it was cut: its first stamp by its recording's clock."""
    return {
        "group": str(windows.group[place]),
        "recording": recordings.recordings[int(windows.recording[place])].name,
        "start_s": round(float(windows.start[place]) / contract.rate_hz, 3),
        "values": thinned(windows.contexts[place, :, -windows.samples :]),
    }


def thinned(window: Float32) -> list[list[float]]:
    """Keep at most `LONGEST` numbers of each channel of a (n_channels, samples) window, to four digits.

    Of a longer one, the least and the greatest of each of `LONGEST` / 2 stretches, in their order: peaks stay.

    >>> thinned(np.float32([[0, 1, 0.123456]]))
    [[0.0, 1.0, 0.1235]]
    """
    return [[float(f"{value:.4g}") for value in _peaks(channel)] for channel in window[:CHANNELS].tolist()]


def _peaks(values: Sequence[float]) -> Sequence[float]:
    if len(values) <= LONGEST:
        return values
    kept: list[float] = []
    for stretch in np.array_split(np.array(values), LONGEST // 2):
        ends = sorted((int(stretch.argmin()), int(stretch.argmax())))
        kept += [float(stretch[end]) for end in ends]
    return kept
