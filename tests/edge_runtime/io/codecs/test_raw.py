"""Raw samples: views, stamps, scales, and many together."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.raw import RawCodec, RawConfig
from edge_runtime.io.sources.decoding import BatchCodec
from edge_runtime.manifest import Channel

NAMES = ("ax", "ay")
NOW = 1_700_000_000.0

MESSAGES = st.tuples(
    st.sampled_from(["", "a", "b"]), st.sampled_from([0, 1, 2, 2, 2]), st.floats(width=64), st.floats(width=32)
)


def test_plain_float32_is_a_view_of_the_payload() -> None:
    payload = np.arange(4, dtype="<f4").tobytes()
    (reading,) = RawCodec(RawConfig(), NAMES).decode("k", payload, NOW)
    assert np.shares_memory(reading.values, np.frombuffer(payload, np.uint8))
    assert not reading.values.flags.writeable


def test_compressed_numbers_are_refused_even_where_their_size_fits() -> None:
    codec, numbers = RawCodec(RawConfig(dtype="uint8"), ("a",)), np.arange(40, dtype="<f4").tobytes()
    for packed in (gzip.compress(numbers), zlib.compress(numbers)):
        with pytest.raises(InputError, match="gzip or zlib"):
            codec.decode("k", packed, NOW)
        assert codec.decode("k", packed[:-1], NOW), "numbers that begin so by chance"


def test_without_stamp_the_last_sample_was_taken_on_arrival() -> None:
    payload = np.zeros(6, "<f4").tobytes()
    assert RawCodec(RawConfig(), NAMES, 10.0).decode("k", payload, NOW)[0].t == pytest.approx(NOW - 0.2)
    assert RawCodec(RawConfig(rate_hz=100), NAMES, 10.0).decode("k", payload, NOW)[0].t == pytest.approx(NOW - 0.02)
    assert RawCodec(RawConfig(), NAMES).decode("k", payload, NOW)[0].t == NOW


@pytest.mark.parametrize(("order", "mark"), [("little", "<"), ("big", ">")])
@pytest.mark.parametrize(
    ("time", "dtype", "stamp"),
    [("f64", "f8", NOW), ("u64_ns", "u8", NOW * 1e9), ("u64_us", "u8", NOW * 1e6), ("u64_ms", "u8", NOW * 1e3)],
)
def test_time_fields(time: Any, dtype: str, stamp: float, order: Any, mark: str) -> None:
    payload = np.array([stamp]).astype(mark + dtype).tobytes() + np.array([1, -2], mark + "f4").tobytes()
    (reading,) = RawCodec(RawConfig(time=time, byte_order=order), NAMES).decode("k", payload, 0.0)
    assert reading.t == NOW
    assert reading.values.tolist() == [[1, -2]]


def test_scale_and_offset_give_physical_units() -> None:
    payload = np.array([[100, -200], [32767, -32768]], "<i2").tobytes()
    config = RawConfig(dtype="int16", scale=(0.01, 0.5), offset=(1.0,))
    (reading,) = RawCodec(config, NAMES).decode("k", payload, NOW)
    np.testing.assert_allclose(reading.values, np.array([[2, -99], [328.67, -16383]]), rtol=1e-6)


def test_header_bytes_are_skipped() -> None:
    payload = b"\x07\x00\x01" + np.array([1, 2], "<f4").tobytes()
    assert RawCodec(RawConfig(header_bytes=3), NAMES).decode("k", payload, NOW)[0].values.tolist() == [[1, 2]]


def test_a_32_bit_stamp_stays_even_over_its_wrap() -> None:
    codec = RawCodec(RawConfig(time="u32_ms"), NAMES)
    sample = np.zeros(2, "<f4").tobytes()
    start = (int(NOW * 1000) // 2**32 + 1) * 2**32 / 1000 - 2.0  # two seconds before the next wrap
    stamps = []
    for i in range(40):
        sent = start + i * 0.1
        low = round(sent * 1000) % 2**32
        stamps.append(codec.decode("k", low.to_bytes(4, "little") + sample, sent + 0.03)[0].t)
    np.testing.assert_allclose(np.diff(np.array(stamps, np.float64)), 0.1, atol=1e-6)
    assert stamps[0] == pytest.approx(start, abs=0.002)


def test_time_since_power_on_runs_evenly_too() -> None:
    codec = RawCodec(RawConfig(time="u32_ms"), NAMES)
    sample = np.zeros(2, "<f4").tobytes()
    stamps = [codec.decode("k", (5000 + 20 * i).to_bytes(4, "little") + sample, NOW + 0.02 * i)[0].t for i in range(50)]
    np.testing.assert_allclose(np.diff(np.array(stamps, np.float64)), 0.02, atol=1e-6)


@pytest.mark.parametrize("wrong", [{"scale": (1.0, 2.0, 3.0)}, {"offset": (1.0, 2.0, 3.0)}])
def test_factors_fit_the_channels(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="1 or 2 numbers"):
        RawCodec(RawConfig(**wrong), NAMES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scale": (0.0,)},
        {"scale": (1e39,)},
        {"offset": (1e39,)},
        {"header_bytes": 4, "time": "f64"},
        {"max_samples": 0},
    ],
)
def test_layouts_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        RawConfig(**wrong)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.sampled_from(["none", "f64", "u64_ms"]))
def test_together_is_as_one_by_one(drawn: list[tuple[str, int, float, float]], time: Any) -> None:
    codec = RawCodec(RawConfig(time=time), NAMES, 10.0)
    assert isinstance(codec, BatchCodec)
    header = b"" if time == "none" else None
    messages = []
    for key, n, t, value in drawn:
        stamp = np.float64(t).tobytes() if header is None else header
        messages.append((key, stamp + np.full(2 * n, value, "<f4").tobytes()))
    together = codec.decode_many(messages, NOW)
    if together is None:
        return
    one_by_one = [codec.decode(key, payload, NOW)[0] for key, payload in messages]
    assert [r.key for r in together] == [r.key for r in one_by_one]
    for one, other in zip(together, one_by_one, strict=True):
        assert type(one) is type(other)
        assert one.t == other.t
        assert isinstance(one.t, float)
        assert (one.period_s, one.channels) == (other.period_s, other.channels)
        np.testing.assert_array_equal(one.values, other.values)
        assert one.values.flags.c_contiguous


def test_equal_messages_are_decoded_together() -> None:
    codec = RawCodec(RawConfig(time="f64"), NAMES)
    messages = [("k", np.float64(NOW + i).tobytes() + np.array([i, i], "<f4").tobytes()) for i in range(5)]
    together = codec.decode_many(messages, NOW)
    assert together is not None
    assert [float(reading.values[0, 0]) for reading in together] == [0, 1, 2, 3, 4]


def test_units_become_part_of_the_scale() -> None:
    """Sums of scale, offset and unit: 0.5 m/s2 a step from -1 m/s2, and degrees Fahrenheit."""
    channels = (Channel(name="ax", unit="g"), Channel(name="t", unit="Cel"))
    config = RawConfig(dtype="int16", scale=(0.5, 0.1), offset=(-1.0, 0.0), units={"ax": "m/s2", "t": "degF"})
    payload = np.array([2, 500, 41, 320], "<i2").tobytes()
    (reading,) = load_codec(config, channels).decode("k", payload, NOW)
    assert reading.values.ravel().tolist() == pytest.approx([0, 10, 19.5 / 9.80665, 0], abs=1e-5)
    plain = RawConfig(units={"ax": "g", "t": "degC"})
    assert load_codec(plain, channels).decode("k", np.ones(2, "<f4").tobytes(), NOW)[0].values.tolist() == [[1, 1]]
    with pytest.raises(ConfigError, match=r"codec raw: units says nothing of t"):
        load_codec(RawConfig(units={"ax": "g"}), channels)
