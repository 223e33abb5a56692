"""Records of the reading log, as bytes: readings, or a windower's state and the windows not answered safely.

A row is the length of a JSON head, the head, and the arrays that it speaks of, in their order. No checksum: the row has
one (`edge_runtime.store.durable.reading_log_file`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson

from edge_runtime.signal.windowing.epochs import NEVER, Given
from edge_runtime.signal.windowing.grid import SegmentState
from edge_runtime.signal.windowing.ordering import Block, PartState
from edge_runtime.signal.windowing.window import KeyState, Window
from edge_runtime.types import Reading

_EPOCH: Final = Window._fields.index("epoch")
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

    def rest(self, after: int) -> dict[str, Any]:
        """Read the JSON object behind this many bytes of arrays; empty where there is none."""
        text = self._body[self._at + after :]
        found: dict[str, Any] = orjson.loads(text) if text else {}
        return found


def encode_readings(readings: Sequence[Reading], events: Mapping[str, object] | None = None) -> bytes:
    """Encode the readings of an iteration: one stamp a reading, or one a sample; the columns where it has but some.

    States of events (`edge_runtime.answer.events.tracker.Changed`) come last, where earlier releases do not look.
    """
    heads: list[Any] = []
    blobs: list[bytes] = []
    for key, t, values, period, columns in readings:
        some = () if columns is None else (columns,)
        if isinstance(t, np.ndarray):
            heads.append((key, None, period, *values.shape, *some))
            blobs.append(t.astype("<f8", copy=False).tobytes())
        else:
            heads.append((key, float(t), period, *values.shape, *some))
        blobs.append(values.astype("<f4", copy=False).tobytes())
    return _framed(heads, [*blobs, orjson.dumps(events)] if events else blobs)


def decode_readings(body: bytes) -> list[Reading]:
    """Decode what `encode_readings` wrote; views of its bytes."""
    blobs = _Blobs(body)
    readings = []
    for key, t, period, n, channels, *some in blobs.head:
        stamps = blobs.array("<f8", n) if t is None else t
        columns = tuple(some[0]) if some else None
        readings.append(Reading(key, stamps, blobs.array("<f4", n, channels), period, columns))
    return readings


def decode_events(body: bytes) -> dict[str, Any]:
    """Decode the states of events of what `encode_readings` wrote, by key; None where a key is not held any more."""
    blobs = _Blobs(body)
    return blobs.rest(sum((8 * n if t is None else 0) + 4 * n * channels for _, t, _, n, channels, *_ in blobs.head))


def encode_snapshot(
    held: Sequence[tuple[int, Window]],
    states: Sequence[KeyState],
    events: Mapping[str, object] | None = None,
    model: bytes | None = None,
) -> bytes:
    """Encode windows with the number of their iteration, what `Windower.state` gave, and states of events and models.

    States of a model come last, where earlier releases do not look.
    """
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
        head = (seq, window.key, window.slot, window.start, len(window.samples), rows(window.context))
        windows.append((*head, *window[_EPOCH:]))
    keys: list[Any] = []
    given: dict[str, tuple[int, int]] = {}
    for name, newest, pending, suspect, segment, parts, settled, numbers in states:
        given[name] = numbers.epoch, numbers.number
        kept_segment = None
        blocks = [block(*one) for one in pending]
        lone = None if suspect is None else block(*suspect)
        for _, values in (*pending, *_some(suspect)):
            channels = values.shape[1]
        if segment is not None:
            channels = segment.rows.shape[1]
            anchor, base, next_window, filled, last_t, tail, kept, _ = segment
            n = rows(kept)
            newest_block = None if tail is None else block(*tail)
            kept_segment = (anchor, base, next_window, filled, _finite(last_t), newest_block, n)
        keys.append((name, _finite(newest), blocks, lone, kept_segment, *_encode_parts(settled, parts, block)))
    past = _encode_past(states, rows)
    document = {"channels": channels, "windows": windows, "keys": keys, "given": given, "past": past}
    if events:
        document["events"] = events
    if model is not None:
        document["model"] = len(model)
        blobs.append(model)
    return _framed(document, blobs)


def decode_snapshot(body: bytes) -> tuple[list[tuple[int, Window]], list[KeyState]]:
    """Decode what `encode_snapshot` wrote, for `Windower.restore`; nothing for no bytes."""
    if not body:
        return [], []
    blobs = _Blobs(body)
    channels = blobs.head["channels"]

    def block(n: int, width: int = channels) -> Block:
        return blobs.array("<f8", n), blobs.array("<f4", n, width)

    windows = []
    for seq, key, slot, start, n, kept, *epoch in blobs.head["windows"]:
        context = blobs.array("<f4", kept, channels)
        windows.append((seq, Window(key, slot, start, context[len(context) - n :], context, 0.0, *epoch)))
    given = blobs.head.get("given", {})  # files of earlier releases have none
    states = []
    for name, newest, pending, suspect, held, *joined in blobs.head["keys"]:
        blocks = [block(n) for n in pending]
        lone = None if suspect is None else block(suspect)
        segment = None
        if held is not None:
            anchor, base, next_window, filled, last_t, tail, n = held
            rows = blobs.array("<f4", n, channels)
            newest_block = None if tail is None else block(tail)
            segment = SegmentState(anchor, base, next_window, filled, _or_never(last_t), newest_block, rows)
        state = KeyState(name, _or_never(newest), blocks, lone, segment, given=Given(*given.get(name, (0, NEVER))))
        if joined:
            settled, parts = joined
            state = state._replace(settled=_or_never(settled), parts=[_decode_part(part, block) for part in parts])
        states.append(state)
    return windows, [_with_past(blobs, state, channels) for state in states]


def _encode_past(states: Sequence[KeyState], rows: Callable[..., int]) -> dict[str, list[tuple[int, int]]]:
    """Encode past rows of keys behind all that earlier releases read."""
    return {one.name: [(first, rows(kept)) for first, kept in one.segment.past] for one in states if one.segment}


def _with_past(blobs: _Blobs, state: KeyState, channels: int) -> KeyState:
    """Read what `encode_snapshot` wrote of a key behind all others; files of earlier releases have none."""
    if state.segment is None:
        return state
    heads = blobs.head.get("past", {}).get(state.name, ())
    past = [(first, blobs.array("<f4", n, channels)) for first, n in heads]
    return state._replace(segment=state.segment._replace(past=past))


def _some(suspect: Block | None) -> tuple[Block, ...]:
    return () if suspect is None else (suspect,)


def _encode_parts(settled: float, parts: Sequence[PartState], block: Callable[..., int]) -> tuple[Any, ...]:
    """Encode what a joined key has more than another one: the heads of its parts."""
    heads = []
    for columns, newest, pending, suspect, apart, since, tail, filled in parts:
        blocks = [block(*one) for one in pending]
        lone = [block(*one) for one in _some(suspect)]
        others = [block(*one) for one in apart]
        heads.append((columns, _finite(newest), blocks, lone, others, _finite(since), block(*tail), filled))
    return (_finite(settled), heads) if heads else ()


def _decode_part(part: Sequence[Any], block: Callable[..., Block]) -> PartState:
    columns, newest, pending, suspect, apart, since, tail, filled = part
    width = len(columns)
    blocks = [block(n, width) for n in pending]
    lone = block(suspect[0], width) if suspect else None
    others = [block(n, width) for n in apart]
    return PartState(columns, _or_never(newest), blocks, lone, others, _or_never(since), block(tail, width), filled)


def decode_snapshot_events(body: bytes) -> dict[str, Any]:
    """Decode rules and states of events of what `encode_snapshot` wrote; empty where it has none."""
    events: dict[str, Any] = _Blobs(body).head.get("events", {}) if body else {}
    return events


def decode_snapshot_model(body: bytes) -> bytes | None:
    """Decode the states of a model of what `encode_snapshot` wrote; None where it has none."""
    size = _Blobs(body).head.get("model") if body else None
    return None if size is None else body[len(body) - size :]


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if value > float("-inf") else None


def _or_never(value: float | None) -> float:
    return float("-inf") if value is None else value
