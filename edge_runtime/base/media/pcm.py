"""16-bit PCM: numbers to samples of full scale 1, and the header of a WAV file or message."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.types import Float32

_SCALE: Final = np.float32(2.0**-15)

_PCM: Final = 1
_EXTENSIBLE: Final = 0xFFFE
_CODINGS: Final = {
    2: "ADPCM", 3: "floating point", 6: "A-law", 7: "mu-law", 0x11: "IMA ADPCM", 0x31: "GSM", 0x55: "MP3",
    0xFF: "AAC", 0x704F: "Opus",
}  # fmt: skip

_UNKNOWN_SIZES: Final = (0, 0xFFFFFFFF)
"""Sizes that a writer puts in who does not know yet how much will come: the samples go to the end."""

_LONGEST: Final = 2**20
"""Bytes of a chunk before the samples: a list of titles is shorter."""

_MAGIC: Final = (
    (b"OggS", "Ogg (Opus or Vorbis)"), (b"fLaC", "FLAC"), (b"ID3\x02", "MP3"), (b"ID3\x03", "MP3"), (b"ID3\x04", "MP3"),
    (b"\x1aE\xdf\xa3", "WebM (Opus)"), (b"#!AMR", "AMR"), (b"OpusHead", "Opus"),
)  # fmt: skip
_BEGINNINGS: Final = tuple(magic for magic, _ in _MAGIC)


class PcmError(Exception):
    """A WAV header that is damaged, or of samples that are no 16-bit PCM; the text says which."""


class WavHeader(NamedTuple):
    """Header of a WAV file of 16-bit samples."""

    rate_hz: int
    channels: int
    frames: int
    """Samples of each channel that it states; -1: up to the end."""


def read_header(file: BinaryIO) -> WavHeader:
    """Read up to the first sample.

    Raises:
        PcmError: the header is damaged, or the samples are no 16-bit PCM.
    """
    start = file.read(12)
    if len(start) < 12 or start[:4] != b"RIFF" or start[8:] != b"WAVE":
        raise PcmError("it is empty" if not start else "it does not begin with RIFF and WAVE")
    rate = channels = 0
    for name, size in _chunks(file):
        if name == b"data":
            if not rate:
                raise PcmError("its samples come before their format")
            return WavHeader(rate, channels, -1 if size in _UNKNOWN_SIZES else size // (2 * channels))
        body = file.read(size + size % 2)
        if name == b"fmt ":
            rate, channels = _format(body)
    raise PcmError("it holds no samples")


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Name and size of each chunk; the caller reads what it holds."""
    while len(head := file.read(8)) == 8:
        name, size = head[:4], int.from_bytes(head[4:], "little")
        if name != b"data" and size > _LONGEST:
            return
        yield name, size


def _format(body: bytes) -> tuple[int, int]:
    """Return rate and channels."""
    if len(body) < 16:
        raise PcmError("its format is cut short")
    coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if coding == _EXTENSIBLE and len(body) >= 26:
        coding = int.from_bytes(body[24:26], "little")
    if coding != _PCM:
        raise PcmError(f"{_CODINGS.get(coding, f'coding {coding}')}; convert it to 16-bit PCM")
    if bits != 16:
        raise PcmError(f"{bits} bits a sample; convert it to 16-bit PCM")
    if not channels or not rate:
        raise PcmError("its format states no rate, or no channel")
    return rate, channels


def to_samples(frames: bytes | memoryview, channels: int, dtype: str = "<i2") -> Float32:
    """Return 16-bit numbers as samples, (n, channels), exactly number / 32768."""
    numbers: npt.NDArray[np.int16] = np.frombuffer(frames, dtype)
    return numbers.reshape(-1, channels).astype(np.float32) * _SCALE


def of_model(samples: Float32, columns: tuple[int, ...] | None) -> Float32:
    """Return the columns that the model takes, (n, columns); None: the mean of all, (n, 1)."""
    if columns is None:
        return samples.mean(axis=1, dtype=np.float32, keepdims=True) if samples.shape[1] > 1 else samples
    if columns == tuple(range(samples.shape[1])):
        return samples
    return np.ascontiguousarray(samples[:, list(columns)])


def looks_like_floats(data: bytes | memoryview, byte_order: str = "<") -> bool:
    """Return whether bytes can hardly be 16-bit PCM, but are sound as float32: 16 numbers or more, none beyond 4.

    Every second number of such PCM would have to lie within 13,000 to 16,700, up to its sign. Zeros are either's.
    """
    if len(data) % 4:
        return False
    numbers: npt.NDArray[np.float32] = np.abs(np.frombuffer(data, byte_order + "f4"))
    sounding = np.count_nonzero(numbers)
    with np.errstate(invalid="ignore"):
        return bool(sounding >= 16 and (numbers <= 4).all() and np.count_nonzero(numbers > 1e-7) > 0.9 * sounding)


def compressed(data: bytes | memoryview) -> str:
    """Name the coding that bytes begin with; empty where they may be PCM."""
    start = bytes(data[:8])
    if start.startswith(_BEGINNINGS):
        return next(name for magic, name in _MAGIC if start.startswith(magic))
    return "MP3" if _is_mp3(data) else ""


def _is_mp3(data: bytes | memoryview) -> bool:
    """Return whether two frames of MPEG layer III follow each other: two bytes alone may be a sample."""
    length = _mp3_frame(bytes(data[:4]))
    return bool(length) and _mp3_frame(bytes(data[length : length + 4])) > 0


def _mp3_frame(head: bytes) -> int:
    """Return the length of the frame of layer III that begins like this; 0 if none does. Source: ISO 11172-3, 2.4.2."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2 or head[1] & 0x18 == 0x08:
        return 0
    kbit, rate = head[2] >> 4, head[2] >> 2 & 3
    if kbit in (0, 15) or rate == 3:
        return 0
    first = head[1] & 0x18 == 0x18  # MPEG-1; else 2 or 2.5, with half the samples in a frame
    kbits = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320) if first else (
        8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)  # fmt: skip
    rate_hz = (44100, 48000, 32000)[rate] // {0x18: 1, 0x10: 2, 0x00: 4}[head[1] & 0x18]
    return (144 if first else 72) * kbits[kbit - 1] * 1000 // rate_hz + (head[2] >> 1 & 1)
