"""Samples of a whole file, by the code with which ``edge-runtime replay`` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_export.data.dataset import Float32, Float64
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import iter_blocks
from edge_runtime.manifest import Channel, InputContract


class Samples(NamedTuple):
    """Rows of a file, in its order."""

    t: Float64
    """(n,) seconds; NaN where a cell is empty."""
    values: Float32
    """(n, channels) in the units of the channels; NaN where a cell is empty."""
    keys: list[str]
    labels: list[str]
    places: list[str]
    """Place of each row in the file: ``line 3``."""


def read_samples(path: Path, channels: Sequence[Channel], rate_hz: float, layout: RecordingLayout) -> Samples:
    """Read all samples of a file.

    Args:
        path: the file's path.
        channels: the model's channels.
        rate_hz: samples per second where the file has no stamps.
        layout: places of things in it.

    Raises:
        ConfigError: the file cannot be read, or one of its rows; or it holds none.
    """
    contract = InputContract(channels=tuple(channels), rate_hz=rate_hz, window=1, hop=1)
    blocks = list(iter_blocks(path, contract, layout, on_refused=_refuse))
    if not blocks:
        raise ConfigError(f"{path}: holds no rows")
    samples = Samples(
        t=np.concatenate([block.t for block in blocks]),
        values=np.concatenate([block.values for block in blocks]),
        keys=[key for block in blocks for key in _of_each(block.keys, len(block.t))],
        labels=[label for block in blocks for label in _of_each(block.labels, len(block.t))],
        places=[f"{block.unit} {place}" for block in blocks for place in block.places],
    )
    if np.isinf(samples.values).any():
        row, column = np.argwhere(np.isinf(samples.values))[0].tolist()
        raise ConfigError(f"{path}: {samples.places[row]}: channel {channels[column].name} is not a finite number")
    return samples


def _of_each(texts: str | list[str], n: int) -> list[str]:
    return [texts] * n if isinstance(texts, str) else texts


def _refuse(error: InputError) -> None:
    raise ConfigError(str(error)) from error
