"""WAV recordings of 16-bit samples, at the model's rate. See `edge_runtime.io.recordings.reader`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from edge_runtime.base.media.pcm import PcmError, WavHeader, of_model, read_header, to_samples
from edge_runtime.base.media.resample import Resampler
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings.tables import Block, to_physical
from edge_runtime.manifest import InputContract
from edge_runtime.types import Float32

if TYPE_CHECKING:
    from edge_runtime.io.recordings.layout import RecordingLayout, Refused

FRAMES = 65_536
"""Samples of all channels read at a time."""


@contextmanager
def open_wav(path: Path) -> Iterator[tuple[WavHeader, BinaryIO]]:
    """Open a WAV file of 16-bit samples: its header, and the file at its first sample.

    Raises:
        ConfigError: it is something else, or damaged.
    """
    try:
        with path.open("rb") as file:
            yield read_header(file), file
    except (OSError, PcmError) as error:
        raise ConfigError(f"{path}: not a PCM WAV file: {error}") from None


def read_sound(path: Path, rate_hz: float, channels: int = 1) -> Iterator[Float32]:
    """Sound of a file in pieces, -1 to 1, at another rate (`edge_runtime.base.media.resample`).

    Args:
        path: the file.
        rate_hz: the wanted rate.
        channels: the wanted number: the file's, or one, which is the mean of the file's.

    Yields:
        (n, channels) samples; together those of the whole file, rounded up.

    Raises:
        ConfigError: no PCM of 16 bits, other channels, or a rate that does not fit
            (`edge_runtime.base.media.resample`).
    """
    with open_wav(path) as (header, file):
        if channels not in (1, header.channels):
            raise ConfigError(f"{path}: sound of {header.channels} channels, the model has {channels}")
        try:
            resampler = Resampler(header.rate_hz, rate_hz, channels)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        columns = None if channels == 1 else tuple(range(channels))
        for frames in _frames(file, header):
            if len(sound := resampler.push(of_model(to_samples(frames, header.channels), columns))):
                yield sound
        if len(sound := resampler.finish()):
            yield sound


def _frames(file: BinaryIO, header: WavHeader) -> Iterator[bytes]:
    """Bytes of whole samples, at most those that the header states, and `FRAMES` numbers at a time."""
    width, left = 2 * header.channels, header.frames
    most = max(1, FRAMES // header.channels)
    while left and (data := file.read(width * (most if left < 0 else min(most, left)))):
        if whole := len(data) // width:
            yield data[: whole * width]
        left -= whole if left > 0 else 0


def wav_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Blocks of a WAV file, its first sample at 0 s."""
    if layout.label:
        raise ConfigError(f"{path}: a WAV file has no column {layout.label!r}; name labels in a table of their own")
    n_channels = len(contract.channels)
    physical = to_physical(path, contract, layout, dict.fromkeys(range(n_channels), ""))
    key, row = layout.key or fallback, 0
    try:
        for sound in read_sound(path, contract.rate_hz, n_channels):
            n = len(sound)
            t = np.arange(row, row + n) / contract.rate_hz
            yield Block(t, physical(sound), key, range(row + 1, row + n + 1), "sample")
            row += n
    except ConfigError as error:
        if not row:
            raise
        refuse(InputError("malformed", f"cannot be read past sample {row}: {error}"))
