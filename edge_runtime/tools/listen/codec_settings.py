"""Settings of a codec that follow from what was observed: time, rate within a message, key and units."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from edge_runtime import units
from edge_runtime.io.codecs.config import CodecConfig
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.tools.listen.fields import TopicFields
from edge_runtime.tools.listen.match import Match
from edge_runtime.tools.listen.stamps import Stamps
from edge_runtime.tools.listen.table import Line
from edge_runtime.tools.listen.units import UnitGuess

DOCUMENTS: Final = ("json", "msgpack", "cbor")
"""Formats that are read by paths."""
_RATE_DIFFERS: Final = 0.03
"""Share by which a sensor's rate may differ from the model's before it is written down, where its stamps tell it."""
_ARRIVALS_DIFFER: Final = 0.2
"""The same where arrivals alone tell it: a network holds messages back and sends them in bursts."""
_SEVERAL: Final = 4
"""Samples in a message from which their rate shows."""
_KEY_NAMES: Final = (
    "key", "device_id", "deviceid", "device", "dev_eui", "deveui", "sensor_id", "sensorid", "node_id", "nodeid", "node",
    "id", "mac", "serial", "src", "host", "tid", "sensor", "dev",
)  # fmt: skip
"""Names of a field that says whose a message is, surest first, in lower case."""


def codec_of(seen: TopicFields) -> str:
    """Return the name of the codec that reads a topic's messages."""
    return {"number": "json", "senml-cbor": "senml"}.get(seen.format, seen.format)


def settings_of(codec: str) -> frozenset[str]:
    """Return the names of a codec's settings; none where there is no such codec."""
    choice: Any = CodecConfig
    if codec not in choice.modules:
        return frozenset()
    return frozenset(one.name for one in dataclasses.fields(choice.load(codec)))


def time_lines(seen: TopicFields, stamps: Stamps | None) -> list[Line]:
    """State where the time is, and in which unit; or that there is none."""
    kind = codec_of(seen)
    if kind == "influx" and stamps is not None and stamps.unit not in ("ns", "iso8601"):
        return [Line("time_unit", stamps.unit, f"guess: {stamps.reason}")]
    if kind not in (*DOCUMENTS, "csv"):
        return []
    if stamps is None:
        return [Line("time", "", "no time in the messages: a sample counts as taken on arrival")]
    if stamps.coarse and "time_step_s" not in settings_of(kind):
        why = f"{stamps.path!r} has whole seconds, shared by several samples: the arrival is used instead"
        return [Line("time", "", why)]
    step = [Line("time_step_s", 1.0, "whole seconds, shared by several samples")] if stamps.coarse else []
    reason = f"guess: {stamps.reason}"
    if stamps.unit == "s":
        return [Line("time", stamps.path, reason), *step]
    return [Line("time", stamps.path), Line("time_unit", stamps.unit, reason), *step]


def decimal_lines(seen: TopicFields) -> list[Line]:
    """State that numbers in texts have a decimal comma, where they have."""
    if codec_of(seen) not in DOCUMENTS or not any(one.comma for one in seen.fields.values()):
        return []
    return [Line("decimal", ",", "numbers in texts have a decimal comma")]


def rate_lines(seen: TopicFields, stamps: Stamps | None, arrivals_hz: float, contract: InputContract) -> list[Line]:
    """State the rate of samples that share a stamp, where it is another one than the model's.

    Args:
        seen: the topic.
        stamps: the stamps of its messages.
        arrivals_hz: messages per second; NaN where unknown.
        contract: the model's contract.
    """
    if stamps is None or seen.format not in DOCUMENTS or math.isnan(stamps.step_s):
        return []
    if stamps.coarse:
        return _other_rate(arrivals_hz, contract, f"{arrivals_hz:.3g} messages a second arrive", near=_ARRIVALS_DIFFER)
    lists = [one.longest for one in seen.fields.values() if one.kind in ("numbers", "rows") and one.path != stamps.path]
    stamped = seen.fields.get(stamps.path)
    if max(lists, default=0) < _SEVERAL or stamped is None or stamped.kind == "numbers":
        return []
    near = _RATE_DIFFERS if stamps.jitter_s < _RATE_DIFFERS * stamps.step_s else _ARRIVALS_DIFFER
    return _other_rate(
        max(lists) / stamps.step_s, contract, f"{max(lists)} samples each {stamps.step_s:.3g} s", near=near
    )


def _other_rate(rate_hz: float, contract: InputContract, why: str, *, near: float) -> list[Line]:
    if math.isnan(rate_hz) or abs(rate_hz / contract.rate_hz - 1) < near:
        return []
    return [Line("rate_hz", float(f"{rate_hz:.3g}"), f"guess: {why}; the model has {contract.rate_hz:g} Hz")]


def payload_key(seen: TopicFields) -> str:
    """Find the field that names whose a message is, where one topic carries several; empty where none is needed."""
    if "key" not in settings_of(codec_of(seen)) or codec_of(seen) == "senml":
        return ""
    likely = []
    for one in seen.fields.values():
        last = one.path.rsplit(".", 1)[-1].lower()
        distinct = set(one.texts) | {f"{number:g}" for number in one.series}
        if last in _KEY_NAMES and one.path != seen.discriminator and 1 < len(distinct) <= max(2, one.count // 2):
            likely.append((_KEY_NAMES.index(last), one.path.count("."), one.path))
    return min(likely)[2] if likely else ""


def unit_lines(codec: str, matches: Sequence[Match], guesses: Mapping[str, UnitGuess]) -> list[Line]:
    """State the unit of each channel that has one, where at least one is known: codecs refuse half a statement."""
    known = any(units.canonical(guess.unit) for guess in guesses.values())
    if not known or "units" not in settings_of(codec):
        return []
    return [unit_line(one.channel, guesses[one.channel.name]) for one in matches if units.is_real(one.channel.unit)]


def unit_line(channel: Channel, guess: UnitGuess) -> Line:
    """State the unit of a channel, or say plainly that it is not known."""
    if not guess.unit:
        why = f"not known ({guess.reason}): this is the model's; write the sensor's unit"
        return Line(channel.name, channel.unit, why)
    try:
        units.convert(guess.unit, channel.unit)
    except units.UnitError:
        why = f"{guess.reason}, {guess.unit}, which is no {channel.unit}: is this the right field?"
        return Line(channel.name, channel.unit, why)
    return Line(channel.name, units.canonical(guess.unit), ("" if guess.sure else "guess: ") + guess.reason)
