"""Test recordings as a file that ``edge-runtime replay`` plays, and the labels to compare its answers with.

A user who doubts the report's accuracy plays this file through the bundle and counts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from edge_export.data.dataset import Dataset, Float32, Float64, Recording, Windows, write_npz
from edge_export.data.labels import cut, stamps
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import InputContract

RECORDINGS = "test.npz"
LABELS = "test-labels.jsonl"


def key_of(index: int) -> str:
    """Name the key that a recording of the test file has when it is played."""
    return f"{Path(RECORDINGS).stem}-{index}"


def check_recordings(test: Dataset) -> None:
    """Refuse a single recording, whose key in the file would be another; before hours of training, not after them.

    Args:
        test: recordings of the test groups.

    Raises:
        ConfigError: there are fewer than two.
    """
    if len(test.recordings) < 2:
        raise ConfigError("the test groups have a single recording; cut it in two, so that they can be told apart")


def write_evaluation(folder: Path, test: Dataset, windows: Windows, contract: InputContract) -> None:
    """Write the recordings of the test groups and the label of each of their windows.

    Args:
        folder: the folder to write into.
        test: recordings of the test groups, as `check_recordings` takes them.
        windows: cut from them by `edge_export.data.labels.label_windows`.
        contract: what a window is. Sensors with stamps of their own are written as rows of its grid, which give the
            same windows; a row that lacks a channel is left out.
    """
    rows = [_rows(recording, test.rate_hz, contract) for recording in test.recordings]
    values = [part for _, part in rows]
    write_npz(
        folder / RECORDINGS,
        {
            "x": np.concatenate(values),
            "t": np.concatenate([t for t, _ in rows]),
            "offset": np.cumsum([0, *(len(part) for part in values)], dtype=np.int64),
            "channels": np.array([channel.name for channel in test.channels]),
        },
    )
    lines = [
        orjson.dumps({"id": window_id(int(recording), int(slot)), "label": test.classes[int(y)], "group": str(group)})
        for recording, slot, y, group in zip(windows.recording, windows.start, windows.y, windows.group, strict=True)
    ]
    (folder / LABELS).write_bytes(b"\n".join(lines) + b"\n")


def _rows(recording: Recording, rate_hz: float, contract: InputContract) -> tuple[Float64, Float32]:
    """Stamps and values of a recording, (n,) and (n, n_channels)."""
    t = stamps(recording, rate_hz)
    if not recording.tables:
        return t, recording.values
    points = cut(replace(contract, window=1, hop=1, context=0), recording, t)
    starts = np.array([point.start for point in points], np.float64)
    return starts, np.concatenate([np.empty((0, len(contract.channels)), np.float32), *(p.samples for p in points)])


def window_id(recording: int, slot: int) -> str:
    """Id of the prediction for a window when the test file is played."""
    return f"{key_of(recording)}@{slot}"


def accuracy_of(predictions: Path, labels: Path) -> tuple[float, int]:
    """Share of right labels among replayed predictions, and how many were counted.

    Args:
        predictions: what ``edge-runtime replay`` wrote.
        labels: what `write_evaluation` wrote.

    Raises:
        ConfigError: a labelled window has no prediction, or more than one.
    """
    answered: dict[str, Any] = {}
    for line in predictions.read_bytes().splitlines():
        prediction = orjson.loads(line)
        if prediction["id"] in answered:
            raise ConfigError(f"{predictions.name}: two predictions for {prediction['id']}")
        answered[prediction["id"]] = prediction["label"]
    wanted = {entry["id"]: entry["label"] for entry in map(orjson.loads, labels.read_bytes().splitlines())}
    if missing := sorted(wanted.keys() - answered.keys()):
        raise ConfigError(f"{predictions.name}: no prediction for {missing[0]}; was {RECORDINGS} played?")
    return sum(answered[name] == label for name, label in wanted.items()) / len(wanted), len(wanted)
