"""Refusals are counted, logged in moderation, and never stop what came with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import InputError
from edge_runtime.io.codecs.json import JsonCodec, JsonConfig
from edge_runtime.io.codecs.raw import RawCodec, RawConfig
from edge_runtime.io.sources.decoding import Decoder, Notices
from edge_runtime.metrics import Metrics
from edge_runtime.types import Reading

NAMES = ("ax",)
GOOD = b'{"t": 5, "values": [1, 2]}'


def decoder(clock: SimulatedClock | None = None) -> tuple[Decoder, Metrics]:
    metrics = Metrics()
    return Decoder(JsonCodec(JsonConfig(), NAMES), metrics, clock or SimulatedClock()), metrics


def test_readings_keep_the_order_of_the_messages() -> None:
    decode, metrics = decoder()
    readings = decode([("b", GOOD), ("a", GOOD), ("b", GOOD)], 0.0)
    assert [reading.key for reading in readings] == ["b", "a", "b"]
    assert metrics.counts["messages_total"] == 3
    assert metrics.counts["message_bytes_total"] == 3 * len(GOOD)
    assert metrics.stages["decode"].count == 3


def test_a_bad_message_takes_no_other_with_it() -> None:
    decode, metrics = decoder()
    bad = [("a", b"{"), ("", GOOD), ("a", b'{"t": 5, "values": [null]}'), ("a", b'{"t": 5, "values": [1e39]}')]
    readings = decode([*bad, ("a", GOOD)], 0.0)
    assert len(readings) == 1
    assert metrics.dropped == {"malformed": 1, "not_a_number": 1, "no_key": 1, "not_finite": 1}
    assert metrics.counts["messages_total"] == 5


def test_no_messages_are_no_work() -> None:
    decode, metrics = decoder()
    assert decode([], 0.0) == []
    assert not metrics.counts


def test_the_last_refusal_of_each_reason_is_kept_as_an_example() -> None:
    decode, metrics = decoder()
    for i in range(100):
        decode([(f"key {i}", b"{"), ("a", b"")], 0.0)
    assert metrics.dropped == {"malformed": 100, "empty": 100}
    assert set(metrics.examples) == {"malformed", "empty"}
    assert "'key 99'" in metrics.examples["malformed"]


def test_an_example_shows_only_the_start_of_a_payload() -> None:
    decode, metrics = decoder()
    decode([("k" * 500, b'{"a": "' + b"x" * 100 + b"SECRET")], 0.0)
    example = metrics.examples["malformed"]
    assert '{"a": "' in example
    assert "SECRET" not in example
    assert len(example) < 400


def test_what_a_codec_assumes_is_said_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Mutations: silence, or a line for each message."""
    metrics = Metrics()
    codec = JsonCodec(JsonConfig(), NAMES, notice=Notices(metrics, "source[0]"))
    decode = Decoder(codec, metrics, SimulatedClock())
    assert len(decode([("a", b'{"values": [1]}')] * 5, 7.0)) == 5
    assert metrics.counts["undated_total"] == 5
    (line,) = caplog.messages
    assert line.startswith("source[0]: undated: messages have no field 't'")
    assert 'time = "..." under [source.codec]' in line
    assert not metrics.dropped


class Together:
    """A codec that notes whether it was asked for many at a time."""

    name = "together"

    def __init__(self, *, able: bool) -> None:
        self.able = able
        self.asked = 0

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        if payload == b"bad":
            raise InputError("malformed", "bad")
        return [Reading(key, received, np.zeros((1, 1), np.float32))]

    def decode_many(self, messages: Sequence[tuple[str, bytes]], received: float) -> list[Reading] | None:
        self.asked += 1
        return [self.decode(*message, received)[0] for message in messages] if self.able else None


@pytest.mark.parametrize("able", [True, False])
def test_many_messages_are_offered_to_the_codec_together(able: bool) -> None:
    codec, metrics = Together(able=able), Metrics()
    decode = Decoder(codec, metrics, SimulatedClock())
    assert [reading.key for reading in decode([(str(i), b"") for i in range(10)], 1.0)] == [str(i) for i in range(10)]
    assert codec.asked == 1
    assert len(decode([("a", b"")], 1.0)) == 1
    assert codec.asked == 1, "one message alone is not worth it"
    assert metrics.counts["messages_total"] == 11


def test_one_bad_message_among_many_is_found_and_counted() -> None:
    metrics = Metrics()
    decode = Decoder(RawCodec(RawConfig(), NAMES), metrics, SimulatedClock())
    good, nan = np.float32(1).tobytes(), np.float32("nan").tobytes()
    assert len(decode([("a", good), ("b", nan), ("c", good), ("d", good), ("e", good)], 0.0)) == 4
    assert metrics.dropped == {"not_finite": 1}


@pytest.mark.parametrize("together", [False, True])
def test_a_codec_that_fails_in_a_way_of_its_own_costs_the_message_and_nothing_else(together: bool) -> None:
    """Mutation: `Decoder` without its `except Exception`: one message ends the process."""

    class Broken:
        name = "broken"

        def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
            if payload == b"bad":
                raise RecursionError("nobody thought of\nthis")
            return [Reading(key, received, np.zeros((1, 1), np.float32))]

    class BrokenTogether(Broken):
        def decode_many(self, messages: Sequence[tuple[str, bytes]], received: float) -> list[Reading] | None:
            raise RecursionError("nobody thought of this")

    metrics = Metrics()
    decode = Decoder(BrokenTogether() if together else Broken(), metrics)
    messages = [(str(i), b"bad" if i == 3 else b"good") for i in range(8)]
    assert [reading.key for reading in decode(messages, 1.0)] == [str(i) for i in range(8) if i != 3]
    assert metrics.dropped == {"internal_error": 1}
    assert metrics.counts["messages_total"] == 8
    assert "nobody thought of this; please report it" in metrics.examples["internal_error"]
