"""Recordings in PCM WAV files, one each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edge_export.data.dataset import Float32, Recording
from edge_export.data.readers.files import pcm_of
from edge_export.data.readers.meaning import class_of, find_in, named
from edge_export.data.readers.spec import WavReader
from edge_runtime.errors import ConfigError


def read_wav(reader: WavReader, path: Path, name: str, classes: Sequence[str], rate_hz: float) -> Recording | None:
    """Read the recording of one file, all its channels averaged; None where the reader leaves its label out.

    Args:
        reader: what stands where.
        path: the file.
        name: its path within the folder.
        classes: labels in the model's order.
        rate_hz: samples per second of the recording; the file's must be a multiple.

    Raises:
        ConfigError: the file is damaged, not of 16 bits, of another rate, or its label is no class.
    """
    label = named(find_in(reader.label, name, "label"), reader.label_names)
    if label is None:
        return None
    with pcm_of(path, name) as file:
        rate, count, frames = file.getframerate(), file.getnchannels(), file.readframes(file.getnframes())
    pcm = np.frombuffer(frames, "<i2").reshape(-1, count).mean(axis=1, dtype=np.float32) / np.float32(32768)
    values = _at_rate(pcm, rate, rate_hz, name)[:, None]
    return Recording(
        name=name.rsplit(".", 1)[0],
        group=find_in(reader.group, name, "group"),
        label=class_of(label, classes, name),
        values=values,
    )


def _at_rate(pcm: Float32, rate: int, wanted: float, name: str) -> Float32:
    """Sound at another rate: whole fractions only, after a low-pass filter, so nothing folds back into the band."""
    if rate == wanted:
        return pcm
    factor = rate / wanted
    if factor != int(factor) or factor < 1:
        raise ConfigError(
            f"{name}: {rate} Hz cannot become {wanted:g} Hz by leaving out samples; set rate_hz, or convert"
        )
    step = int(factor)
    at = np.arange(-16 * step, 16 * step + 1)
    # Windowed sinc with its edge at 0.9 of the new Nyquist frequency; 32 new samples long.
    taps = np.sinc(at * 0.9 / step) * np.hamming(len(at))
    low = np.convolve(pcm, taps / taps.sum(), "same")
    return low[::step].astype(np.float32)
