"""Records of the reading log, as bytes: readings, or a windower's state and the windows not answered safely.

A row is the length of a JSON head, the head, and the arrays that it speaks of, in their order. No checksum: the row has
one (`edge_runtime.durable.reading_log_file`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson

from edge_runtime.types import Reading
from edge_runtime.windowing.grid import SegmentState
from edge_runtime.windowing.window import KeyState, Window

_SIZE: Final = struct.Struct("<I")


def _framed(head: Any, blobs: Sequence[bytes]) -> bytes:
    text = orjson.dumps(head)
    return b"".join([_SIZE.pack(len(text)), text, *blobs])


class _Blobs:
    """Reads what `_framed` wrote: arrays in the order in which they were written."""

    def __init__(self, body: bytes) -> None:
        (size,) = _SIZE.unpack_from(body)
        self.head = orjson.loads(body[_SIZE.size : _SIZE.size + size])
        self._body = body
        self._at = _SIZE.size + size

    def array(self, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
        count = int(np.prod(shape))
        array = np.frombuffer(self._body, dtype, count, self._at).reshape(shape)
        self._at += array.nbytes
        return array


def encode_readings(readings: Sequence[Reading]) -> bytes:
    """Encode the readings of an iteration: one stamp a reading, or one a sample."""
    heads: list[Any] = []
    blobs: list[bytes] = []
    for key, t, values, period in readings:
        if isinstance(t, np.ndarray):
            heads.append((key, None, period, *values.shape))
            blobs.append(t.astype("<f8", copy=False).tobytes())
        else:
            heads.append((key, float(t), period, *values.shape))
        blobs.append(values.astype("<f4", copy=False).tobytes())
    return _framed(heads, blobs)


def decode_readings(body: bytes) -> list[Reading]:
    """Decode what `encode_readings` wrote; views of its bytes."""
    blobs = _Blobs(body)
    readings = []
    for key, t, period, n, channels in blobs.head:
        stamps = blobs.array("<f8", n) if t is None else t
        readings.append(Reading(key, stamps, blobs.array("<f4", n, channels), period))
    return readings


def encode_snapshot(held: Sequence[tuple[int, Window]], states: Sequence[KeyState]) -> bytes:
    """Windows with the number of their iteration, and what `Windower.state` gave."""
    blobs: list[bytes] = []

    def block(times: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> int:
        blobs.append(times.astype("<f8", copy=False).tobytes())
        blobs.append(values.astype("<f4", copy=False).tobytes())
        return len(times)

    def rows(values: np.ndarray[Any, Any]) -> int:
        blobs.append(values.astype("<f4", copy=False).tobytes())
        return len(values)

    channels = 0
    windows = []
    for seq, window in held:
        channels = window.samples.shape[1]
        windows.append((seq, window.key, window.slot, window.start, len(window.samples), rows(window.context)))
    keys: list[Any] = []
    for name, newest, pending, suspect, segment in states:
        kept_segment = None
        blocks = [block(times, values) for times, values in pending]
        lone = None if suspect is None else block(*suspect)
        for _, values in [*pending, *([suspect] if suspect else [])]:
            channels = values.shape[1]
        if segment is not None:
            channels = segment.rows.shape[1]
            anchor, base, next_window, filled, last_t, tail, kept = segment
            n = rows(kept)
            newest_block = None if tail is None else block(*tail)
            kept_segment = (anchor, base, next_window, filled, _finite(last_t), newest_block, n)
        keys.append((name, _finite(newest), blocks, lone, kept_segment))
    return _framed({"channels": channels, "windows": windows, "keys": keys}, blobs)


def decode_snapshot(body: bytes) -> tuple[list[tuple[int, Window]], list[KeyState]]:
    """Decode what `encode_snapshot` wrote, for `Windower.restore`; nothing for no bytes."""
    if not body:
        return [], []
    blobs = _Blobs(body)
    channels = blobs.head["channels"]

    def block(n: int) -> tuple[Any, Any]:
        return blobs.array("<f8", n), blobs.array("<f4", n, channels)

    windows = []
    for seq, key, slot, start, n, kept in blobs.head["windows"]:
        context = blobs.array("<f4", kept, channels)
        windows.append((seq, Window(key, slot, start, context[len(context) - n :], context, 0.0)))
    states = []
    for name, newest, pending, suspect, held in blobs.head["keys"]:
        blocks = [block(n) for n in pending]
        lone = None if suspect is None else block(suspect)
        segment = None
        if held is not None:
            anchor, base, next_window, filled, last_t, tail, n = held
            rows = blobs.array("<f4", n, channels)
            newest_block = None if tail is None else block(tail)
            segment = SegmentState(anchor, base, next_window, filled, _or_never(last_t), newest_block, rows)
        states.append(KeyState(name, _or_never(newest), blocks, lone, segment))
    return windows, states


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if value > float("-inf") else None


def _or_never(value: float | None) -> float:
    return float("-inf") if value is None else value
