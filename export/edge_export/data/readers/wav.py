"""Recordings in PCM WAV files, one each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edge_export.data.dataset import Recording
from edge_export.data.readers.meaning import class_of, find_in, named
from edge_export.data.readers.spec import WavReader
from edge_runtime.io.recordings.wav import read_sound


def read_wav(reader: WavReader, path: Path, name: str, classes: Sequence[str], rate_hz: float) -> Recording | None:
    """Read the recording of one file, all its channels averaged; None where the reader leaves its label out.

    Args:
        reader: what stands where.
        path: the file.
        name: its path within the folder.
        classes: labels in the model's order.
        rate_hz: samples per second of the recording; a file of another rate is resampled.

    Raises:
        ConfigError: the file is damaged, not of 16 bits, of a rate that does not fit, or its label is no class.
    """
    label = named(find_in(reader.label, name, "label"), reader.label_names)
    if label is None:
        return None
    values = np.concatenate([np.empty((0, 1), np.float32), *read_sound(path, rate_hz)])
    return Recording(
        name=name.rsplit(".", 1)[0],
        group=find_in(reader.group, name, "group"),
        label=class_of(label, classes, name),
        values=values,
    )
