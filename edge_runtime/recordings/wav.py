"""WAV recordings of 16-bit samples, at the model's rate. See `edge_runtime.recordings.reader`."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.manifest import InputContract
from edge_runtime.recordings.tables import Block, to_physical
from edge_runtime.types import Float32, Float64

if TYPE_CHECKING:
    from edge_runtime.recordings.layout import RecordingLayout, Refused

FRAMES = 65_536
"""Samples of the file read at a time."""


@contextmanager
def open_wav(path: Path) -> Iterator[wave.Wave_read]:
    """Open a WAV file of 16-bit samples.

    Raises:
        ConfigError: it is something else, or damaged.
    """
    try:
        with path.open("rb") as stored, wave.open(stored, "rb") as file:
            if (width := file.getsampwidth()) != 2:
                raise ConfigError(f"{path}: {8 * width} bits a sample; convert it to 16-bit PCM")
            yield file
    except (OSError, EOFError, wave.Error) as error:
        raise ConfigError(f"{path}: not a PCM WAV file: {str(error) or 'it is empty'}") from None


def read_sound(path: Path, rate_hz: float) -> Iterator[Float32]:
    """Sound of a file in pieces: the mean of its channels, -1 to 1, at another rate.

    Args:
        path: of the file.
        rate_hz: wanted; the file's must be a whole multiple of it.

    Yields:
        (n,) samples; together those of the whole file, rounded up.

    Raises:
        ConfigError: no PCM of 16 bits, or a rate that is no multiple.
    """
    with open_wav(path) as file:
        factor = file.getframerate() / rate_hz
        if factor != int(factor) or factor < 1:
            raise ConfigError(
                f"{path}: {file.getframerate()} Hz cannot become {rate_hz:g} Hz by leaving out samples; set rate_hz, "
                "or convert"
            )
        yield from _slower(_pcm(file), int(factor))


def _pcm(file: wave.Wave_read) -> Iterator[Float32]:
    channels = file.getnchannels()
    while frames := file.readframes(FRAMES):
        numbers = np.frombuffer(frames[: len(frames) // (2 * channels) * 2 * channels], "<i2").reshape(-1, channels)
        yield numbers.mean(axis=1, dtype=np.float32) / np.float32(32768)


def _slower(pieces: Iterator[Float32], step: int) -> Iterator[Float32]:
    """Take every `step`-th sample behind a low-pass filter, so that nothing folds back into the band.

    The filter is a windowed sinc with its edge at 0.9 of the new Nyquist frequency, 32 new samples long. Silence is
    laid before the first sample and behind the last.
    """
    if step == 1:
        yield from pieces
        return
    reach = 16 * step
    at = np.arange(-reach, reach + 1)
    taps = np.sinc(at * 0.9 / step) * np.hamming(len(at))
    taps /= taps.sum()
    held = np.zeros(reach, np.float32)  # as many samples as the filter looks back, then what is still to come
    for piece in pieces:
        held = np.concatenate((held, piece))
        ready = (len(held) - 2 * reach) // step * step
        if ready > 0:
            yield _filtered(held[: ready + 2 * reach], taps, step)
            held = held[ready:]
    if len(held) > reach:
        yield _filtered(np.concatenate((held, np.zeros(reach, np.float32))), taps, step)


def _filtered(samples: Float32, taps: Float64, step: int) -> Float32:
    """Filter samples that reach half the filter's length beyond what is returned, at either end."""
    return np.convolve(samples, taps, "valid")[::step].astype(np.float32)


def wav_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Blocks of a WAV file, one channel, its first sample at 0 s."""
    if len(contract.channels) != 1:
        raise ConfigError(f"{path}: sound is one channel, the model has {len(contract.channels)}")
    if layout.label:
        raise ConfigError(f"{path}: a WAV file has no column {layout.label!r}; name labels in a table of their own")
    physical, key, row = to_physical(path, contract, layout, {0: ""}), layout.key or fallback, 0
    try:
        for sound in read_sound(path, contract.rate_hz):
            n = len(sound)
            t = np.arange(row, row + n) / contract.rate_hz
            yield Block(t, physical(sound[:, None]), key, range(row + 1, row + n + 1), "sample")
            row += n
    except ConfigError as error:
        if not row:
            raise
        refuse(InputError("malformed", f"cannot be read past sample {row}: {error}"))
