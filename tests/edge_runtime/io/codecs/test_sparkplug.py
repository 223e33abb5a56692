"""Sparkplug B: births and aliases, types and signs, times, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.sparkplug import MAX_METRICS, SparkplugCodec, SparkplugConfig
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading
from tests.edge_runtime.io.codecs.sparkplug_messages import block, metric, number, payload, varint

CHANNELS = tuple(Channel(name=name, unit="g") for name in ("x", "y"))
NOW = 1.7e9
MS = 1_600_000_000_000


def codec(**changes: Any) -> SparkplugCodec:
    return SparkplugCodec(SparkplugConfig(**changes), CHANNELS)


def birth(*, first: int = 1, ms: int | None = MS) -> bytes:
    return payload(
        metric(0.5, name="x", alias=first, datatype=10), metric(1.5, name="y", alias=first + 1, datatype=10), ms=ms
    )


def data(*, first: int = 1, ms: int | None = MS + 20) -> bytes:
    return payload(metric(2.5, alias=first), metric(3.5, alias=first + 1), ms=ms)


def refusal(of: SparkplugCodec, message: bytes, key: str = "k") -> InputError:
    with pytest.raises(InputError) as caught:
        of.decode(key, message, NOW)
    return caught.value


def seen(readings: list[Reading]) -> list[tuple[Any, Any, Any]]:
    return [(np.asarray(r.t).tolist(), r.values.tolist(), r.channels) for r in readings]


def test_the_messages_of_these_tests_are_what_a_library_writes() -> None:
    """A metric by pysparkplug 0.3.2: Int16, -5."""
    assert metric(number(10, -5 % 2**16), name="Count", alias=5, ms=1_700_000_000_000, datatype=2).hex(" ") == (
        "12 16 0a 05 43 6f 75 6e 74 10 05 18 80 d0 95 ff bc 31 20 02 50 fb ff 03"
    )


def test_data_messages_take_names_from_the_birth_of_their_key() -> None:
    one = codec()
    assert seen(one.decode("k", birth(), NOW)) == [(MS / 1e3, [[0.5, 1.5]], None)]
    assert seen(one.decode("k", data(), NOW)) == [(MS / 1e3 + 0.02, [[2.5, 3.5]], None)]
    assert refusal(one, data(), "other").reason == "no_birth"


def test_a_second_birth_may_give_other_aliases() -> None:
    one = codec()
    one.decode("k", birth(first=1), NOW)
    one.decode("k", birth(first=2), NOW)  # 2 was y
    assert seen(one.decode("k", data(first=2), NOW)) == [(MS / 1e3 + 0.02, [[2.5, 3.5]], None)]
    assert one.decode("k", payload(metric(1.0, alias=1)), NOW) == []


def test_an_alias_that_goes_to_a_metric_that_is_no_channel_is_forgotten() -> None:
    one = codec(partial=True)
    one.decode("k", birth(), NOW)
    one.decode("k", payload(metric(9.0, name="door", alias=1), metric(1.0, name="y")), NOW)
    assert seen(one.decode("k", data(), NOW)) == [(MS / 1e3 + 0.02, [[3.5]], (1,))]


def test_births_are_remembered_for_a_bounded_number_of_keys() -> None:
    one = codec(max_keys=2)
    for key in ("a", "b", "a", "c"):  # b is silent for longest
        one.decode(key, birth(), NOW)
    assert one.decode("a", data(), NOW)
    assert one.decode("c", data(), NOW)
    assert refusal(one, data(), "b").reason == "no_birth"


def test_metrics_that_are_no_channels_take_no_memory() -> None:
    one = codec(partial=True)
    names = [metric(1.0, name=f"m{i}", alias=i, datatype=10) for i in range(MAX_METRICS - 1)]
    one.decode("k", payload(*names, metric(1.0, name="x", alias=MAX_METRICS, datatype=10)), NOW)
    assert len(one._births["k"].aliases) == 1


@pytest.mark.parametrize(
    ("datatype", "written", "value"),
    [
        (1, 0xFF, -1),  # as Eclipse Tahu's Python writes an Int8
        (1, 0xFFFF_FFFF, -1),  # as its Java does
        (1, 0x7F, 127),
        (2, 0xFFF9, -7),
        (3, 0xFFFF_FFD8, -40),
        (3, -40 % 2**64, -40),
        (5, 0xFF, 255),
        (7, 0xFFFF_FFFF, 0xFFFF_FFFF),
    ],
)
def test_whole_numbers_have_the_sign_of_their_type(datatype: int, written: int, value: int) -> None:
    one = codec(partial=True)
    (reading,) = one.decode("k", payload(metric(number(10, written), name="x", alias=1, datatype=datatype), ms=MS), NOW)
    assert reading.values.tolist() == [[np.float32(value)]]
    (reading,) = one.decode("k", payload(metric(number(10, written), alias=1), ms=MS), NOW)  # the type is the birth's
    assert reading.values.tolist() == [[np.float32(value)]]


def test_a_whole_number_without_a_type_is_refused_rather_than_guessed() -> None:
    error = refusal(codec(partial=True), payload(metric(number(10, 0xFF), name="x"), ms=MS))
    assert error.reason == "no_birth"


def test_other_kinds_of_numbers_need_no_type() -> None:
    long = number(11, 2**40)
    single = varint(12 << 3 | 5) + struct.pack("<f", 1.5)
    truth = number(14, 1)
    one = codec()
    for value, expected in ((single, 1.5), (truth, 1.0)):
        (reading,) = one.decode("k", payload(metric(value, name="x"), metric(value, name="y"), ms=MS), NOW)
        assert reading.values.tolist() == [[expected, expected]]
    (reading,) = one.decode("k", payload(*(metric(long, name=n, datatype=4) for n in "xy"), ms=MS), NOW)
    assert reading.values.tolist() == [[2.0**40, 2.0**40]]


def test_times_are_the_metrics_then_the_payloads_then_the_arrivals() -> None:
    one = codec(partial=True)
    (reading,) = one.decode("k", payload(metric(1.0, name="x", ms=5), metric(2.0, name="x"), ms=MS), NOW)
    assert np.asarray(reading.t).tolist() == [0.005, MS / 1e3]
    assert reading.channels == (0,)
    (reading,) = one.decode("k", payload(metric(1.0, name="x")), NOW)
    assert reading.t == NOW


def test_null_is_missing() -> None:
    missing = payload(metric(1.0, name="x", null=True), metric(2.0, name="y"), ms=MS)
    assert seen(codec(partial=True).decode("k", missing, NOW)) == [(MS / 1e3, [[2.0]], (1,))]
    assert refusal(codec(), missing).reason == "wrong_channels"


def test_a_message_of_other_metrics_gives_nothing() -> None:
    assert codec().decode("k", payload(metric(1.0, name="door")), NOW) == []


def test_a_node_without_aliases_takes_types_from_its_birth() -> None:
    one = codec(partial=True)
    one.decode("k", payload(metric(number(10, 1), name="x", datatype=1), ms=MS), NOW)
    assert seen(one.decode("k", payload(metric(number(10, 0xFF), name="x"), ms=MS), NOW)) == [(MS / 1e3, [[-1]], (0,))]
    assert refusal(one, payload(metric(1.0, alias=4))).reason == "no_birth"


def unit(name: str) -> bytes:
    """The properties of a metric, `engUnit` behind another one."""
    other = block(1, b"engHigh") + block(1, b"engUnit") + block(2, number(1, 3) + number(3, 100))
    return block(9, other + block(2, number(1, 12) + block(8, name.encode())))


def test_the_unit_of_a_birth_is_converted() -> None:
    one = codec(partial=True)
    born = payload(metric(varint(13 << 3 | 1) + struct.pack("<d", 9.80665) + unit("m/s²"), name="x", alias=1), ms=MS)
    assert seen(one.decode("k", born, NOW)) == [(MS / 1e3, [[1]], (0,))]
    (reading,) = one.decode("k", payload(metric(-9.80665, alias=1), ms=MS), NOW)
    assert reading.values.tolist() == [[-1]]


def test_a_unit_that_does_not_fit_is_refused_with_the_line_that_overrules_it() -> None:
    born = payload(metric(varint(13 << 3 | 1) + struct.pack("<d", 1.5) + unit("degC"), name="x", alias=1), ms=MS)
    error = refusal(codec(partial=True), born)
    assert error.reason == "wrong_unit"
    assert 'units = {x = "g"}' in str(error)
    stated = SparkplugConfig(partial=True, units={"x": "g", "y": "g"})
    assert load_codec(stated, CHANNELS).decode("k", born, NOW)[0].values.tolist() == [[1.5]]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (payload(metric(block(15, b"12"), name="x")), "not_a_number"),
        (payload(metric(block(16, b"12"), name="x")), "not_a_number"),
        (payload(metric(block(13, b"12345678"), name="x")), "not_a_number"),
        (payload(metric(number(13, 3), name="x")), "not_a_number"),
        (payload(metric(1.0)), "malformed"),
        (payload(ms=MS), "empty"),
        (payload(metric(1.0, name="x", ms=2**63)), "bad_time"),
        (payload(metric(float("nan"), name="x"), metric(1.0, name="y")), "not_finite"),
        (payload(metric(float("inf"), name="x"), metric(1.0, name="y")), "not_finite"),
        (payload(*[metric(1.0, name="door")] * (MAX_METRICS + 1)), "too_large"),
        (b"{}", "malformed"),
    ],
)
def test_what_cannot_be_read_is_refused(message: bytes, reason: str) -> None:
    assert refusal(codec(), message).reason == reason


@pytest.mark.parametrize(("channels", "message"), [({"z": "a"}, "maps z"), ({"x": "y"}, "metric of its own")])
def test_a_mapping_that_does_not_fit_is_refused(channels: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        codec(channels=channels)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    messages=st.lists(
        st.lists(
            st.tuples(st.sampled_from(["x", "y", "door", None]), st.integers(0, 5) | st.none(), st.floats(-9, 9)),
            max_size=6,
        ),
        max_size=12,
    )
)
def test_any_order_of_births_and_data_gives_readings_or_a_reason(
    messages: list[list[tuple[str | None, int | None, float]]],
) -> None:
    """The memory never holds more than the channels, whatever comes."""
    one = codec(partial=True, max_keys=2)
    for i, metrics in enumerate(messages):
        whole = payload(
            *(metric(value, name=name, alias=alias, ms=MS + j) for j, (name, alias, value) in enumerate(metrics))
        )
        try:
            readings = one.decode("abc"[i % 3], whole, NOW)
        except InputError as error:
            assert error.reason in ("malformed", "empty", "no_birth")  # noqa: PT017 - either is right
        else:
            assert all(reading.values.size for reading in readings)
    assert len(one._births) <= 2
    assert all(len(known.aliases) <= 2 for known in one._births.values())
