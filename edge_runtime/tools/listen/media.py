"""Sound and pictures in payloads: named by their first bytes, or by how many bytes come in a second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from typing import Final

from edge_runtime.base.media.pcm import PcmError, compressed, read_header
from edge_runtime.base.media.picture import READ, kind_of
from edge_runtime.io.codecs.foreign import packed_as

_RATES: Final = (8_000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000)
"""Usual rates of microphones."""

_NEAR: Final = 0.03
"""Share by which a rate over some seconds may miss."""


def describe_bytes(payload: bytes, sizes: Sequence[int], messages_per_s: float) -> str:
    """Describe bytes of no document, with what to write.

    Args:
        payload: one message.
        sizes: bytes of several.
        messages_per_s: NaN where it is not known.
    """
    if packed := packed_as(payload):
        return f"compressed data, {packed}; no codec unpacks it: let the sender publish it as it is"
    if coding := compressed(payload):
        return f"sound, {coding}; let the sender write 16-bit PCM or WAV"
    if payload[:4] == b"RIFF" and payload[8:12] == b"WAVE":
        return _wav(payload)
    if kind := kind_of(payload):
        known = kind in READ
        return f"pictures, {kind.upper() if known else kind}; " + (
            'write type = "frame" under [source.codec]' if known else "let the sender write JPEG"
        )
    low, high = min(sizes), max(sizes)
    length = f"{low}" if low == high else f"{low} to {high}"
    text = (
        f"bytes of no known format, {length} long; if they are numbers as a program has them in memory, write "
        'type = "raw" under [source.codec] with dtype and time'
    )
    return text + _pcm(sum(sizes) / len(sizes) * messages_per_s / 2)


def _wav(payload: bytes) -> str:
    try:
        header = read_header(BytesIO(payload))
    except PcmError as error:
        return f"WAV that is not read: {error}"
    channels = f"{header.channels} channel{'s' * (header.channels != 1)}"
    return f'sound, WAV of {header.rate_hz} Hz and {channels}; write type = "pcm" under [source.codec]'


def _pcm(numbers_per_s: float) -> str:
    """Say at which usual rate this would be 16-bit sound; empty where at none."""
    if math.isnan(numbers_per_s):
        return ""
    for channels in (1, 2):
        for rate in _RATES:
            if abs(numbers_per_s / channels / rate - 1) < _NEAR:
                stereo = f" and channels = {channels}" if channels > 1 else ""
                return f'; as 16-bit sound they are {rate} Hz: type = "pcm" with rate_hz = {rate}{stereo}'
    return ""
