"""One list of checks over every codec: what `edge_runtime.io.codecs.Codec` promises."""

from __future__ import annotations

import base64
import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import cbor2
import numpy as np
import numpy.typing as npt
import orjson
import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.cbor import CborConfig
from edge_runtime.io.codecs.cells import BlockConfig
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.csv import CsvConfig
from edge_runtime.io.codecs.influx import InfluxConfig
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.msgpack import MsgpackConfig
from edge_runtime.io.codecs.pcm import PcmConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.codecs.sparkplug import SparkplugConfig
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading
from tests.edge_runtime.io.codecs.sparkplug_messages import metric, payload
from tests.faults import fuzz_codecs

Floats = npt.NDArray[np.float32]

RATE_HZ = 50.0
NAMES = ("ax", "ay", "az")
CHANNELS = tuple(Channel(name=name, unit="m/s2") for name in NAMES)
NOW = 1_700_000_000.0


@dataclass(frozen=True)
class Case:
    """One codec, and how a device would write for it."""

    name: str
    config: Callable[..., CodecConfig]
    encode: Callable[[str, float, Floats], bytes]
    names_key: bool = True
    has_nan: bool = True
    """The format can express NaN."""
    any_key: bool = True
    """A key may hold line ends, or be empty."""
    any_time: bool = True
    """A stamp may be negative, huge or NaN; else it is an unsigned number of milliseconds."""
    lines: bool = False
    """A message is lines of text: cut short, it may be a shorter one."""
    gain: float = 1.0
    """Values are so many times what is decoded: full scale is 1 where the format is sound."""
    remembers: bool = False
    """The same message once more is a repeated one."""

    def codec(self, **changes: Any) -> Codec:
        codec = load_codec(self.config(**changes), CHANNELS, rate_hz=RATE_HZ)
        return codec if self.gain == 1 else Louder(codec, self.gain)


class Louder:
    """A codec whose values are multiplied."""

    def __init__(self, codec: Codec, gain: float) -> None:
        self.name = codec.name
        self._codec = codec
        self._gain = np.float32(gain)

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        return [one._replace(values=one.values * self._gain) for one in self._codec.decode(key, payload, received)]


def _document(key: str, t: float, x: Floats) -> dict[str, Any]:
    return {"key": key, "t": t, "values": x.tolist()}


def _objects(key: str, t: float, x: Floats) -> bytes:
    rows = [
        {"id": key, "ts": t + i / RATE_HZ, **dict(zip(NAMES, row, strict=True))} for i, row in enumerate(x.tolist())
    ]
    return orjson.dumps(rows)


def _columns(key: str, t: float, x: Floats) -> bytes:
    return orjson.dumps({"who": {"id": key}, "t": t * 1e3, "imu": {n: x[:, i].tolist() for i, n in enumerate(NAMES)}})


def _pairs(key: str, t: float, x: Floats) -> bytes:
    pairs = [(name, i, value) for i, row in enumerate(x.tolist()) for name, value in zip(NAMES, row, strict=True)]
    return orjson.dumps([{"id": key, "t": t + i / RATE_HZ, "n": name, "v": value} for name, i, value in pairs])


def _texts(key: str, t: float, x: Floats) -> bytes:
    rows = [[f"{value}" for value in row] for row in x.tolist()]
    return orjson.dumps(
        [{"key": key, "t": str(t + i / RATE_HZ), **dict(zip(NAMES, row, strict=True))} for i, row in enumerate(rows)]
    )


def _base64(key: str, t: float, x: Floats) -> bytes:
    return orjson.dumps({"key": key, "t": t, "values": base64.b64encode(x.astype(">f4").tobytes()).decode()})


def _turned(key: str, t: float, x: Floats) -> dict[str, Any]:
    return {"key": key, "t": t, "values": [[row[2], 9, row[0], row[1]] for row in x.tolist()]}


def _packed(key: str, t: float, x: Floats) -> dict[str, Any]:
    return {"key": key, "t": t, "values": x.astype("<f4").tobytes()}


def _typed(key: str, t: float, x: Floats) -> bytes:
    return cbor2.dumps({"key": key, "t": t, "values": cbor2.CBORTag(81, x.astype(">f4").tobytes())})


def _senml(key: str, t: float, x: Floats) -> list[dict[str, Any]]:
    pack: list[dict[str, Any]] = [
        {"n": name, "t": i / RATE_HZ, "v": row[j]} for i, row in enumerate(x.tolist()) for j, name in enumerate(NAMES)
    ]
    if pack:
        pack[0] = {"bn": f"{key}:", "bt": t, "bu": "m/s2"} | pack[0]
    return pack


_LABELS = {"bn": -2, "bt": -3, "bu": -4, "n": 0, "v": 2, "t": 6}


def _senml_cbor(key: str, t: float, x: Floats) -> bytes:
    return cbor2.dumps([{_LABELS[k]: v for k, v in record.items()} for record in _senml(key, t, x)])


def _raw(_key: str, t: float, x: Floats) -> bytes:
    return np.float64(t).tobytes() + x.astype("<f4").tobytes()


def _raw_int16(_key: str, t: float, x: Floats) -> bytes:
    return int(t * 1e3).to_bytes(8, "big") + np.round(x * 100).astype(">i2").tobytes()


def _pcm(_key: str, t: float, x: Floats) -> bytes:
    return np.float64(t).tobytes() + np.round(x * 100).astype("<i2").tobytes()


def _csv(key: str, t: float, x: Floats) -> bytes:
    rows = [["key", "t", *NAMES], *([key, f"{t + i / RATE_HZ:.9f}", *row] for i, row in enumerate(x.tolist()))]
    out = StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


def _influx(key: str, t: float, x: Floats) -> bytes:
    stamps = [str(int((t + i / RATE_HZ) * 1e9)) if np.isfinite(t) else str(t) for i in range(len(x))]
    fields = [",".join(f"{name}={value}" for name, value in zip(NAMES, row, strict=True)) for row in x.tolist()]
    return "".join(f"imu,host={key} {f} {s}\n" for f, s in zip(fields, stamps, strict=True)).encode()


def _sparkplug(_key: str, t: float, x: Floats) -> bytes:
    stamps = [round((t + i / RATE_HZ) * 1e3) for i in range(len(x))]
    rows = zip(x.tolist(), stamps, strict=True)
    return payload(
        *(metric(value, name=f"in/{name}", ms=ms) for row, ms in rows for name, value in zip(NAMES, row, strict=True))
    )


MAPPING = {name: name for name in NAMES}
ORDER = ("az", "-", "ax", "ay")
CASES = [
    Case("json", JsonConfig, lambda *m: orjson.dumps(_document(*m)), has_nan=False),
    Case(
        "json-objects",
        lambda **c: JsonConfig(channels=MAPPING, samples=".", time="ts", key="id", **c),
        _objects,
        has_nan=False,
    ),
    Case(
        "json-columns",
        lambda **c: JsonConfig(channels={n: f"imu.{n}" for n in NAMES}, time_unit="ms", key="who.id", **c),
        _columns,
        has_nan=False,
    ),
    Case(
        "json-pairs",
        lambda **c: JsonConfig(channels={n: f"[n={n}].v" for n in NAMES}, samples=".", key="id", **c),
        _pairs,
        has_nan=False,
    ),
    Case("json-texts", lambda **c: JsonConfig(channels=MAPPING, samples=".", **c), _texts, has_nan=False),
    Case("json-base64", lambda **c: JsonConfig(block=BlockConfig(byte_order="big"), **c), _base64),
    Case("msgpack-order", lambda **c: MsgpackConfig(order=ORDER, **c), lambda *m: ormsgpack.packb(_turned(*m))),
    Case("msgpack", MsgpackConfig, lambda *m: ormsgpack.packb(_document(*m))),
    Case("msgpack-bytes", MsgpackConfig, lambda *m: ormsgpack.packb(_packed(*m))),
    Case("cbor", CborConfig, lambda *m: cbor2.dumps(_document(*m))),
    Case("cbor-bytes", CborConfig, lambda *m: cbor2.dumps(_packed(*m))),
    Case("cbor-typed", CborConfig, _typed),
    Case("raw", lambda **c: RawConfig(time="f64", **c), _raw, names_key=False),
    Case(
        "raw-int16",
        lambda **c: RawConfig(time="u64_ms", dtype="int16", byte_order="big", scale=(0.01,), **c),
        _raw_int16,
        names_key=False,
        has_nan=False,
        any_time=False,
    ),
    Case(
        "pcm", lambda **c: PcmConfig(time="f64", **c), _pcm, names_key=False, has_nan=False, gain=327.68, remembers=True
    ),
    Case("senml", SenmlConfig, lambda *m: orjson.dumps(_senml(*m)), has_nan=False),
    Case("senml-cbor", lambda **c: SenmlConfig(encoding="cbor", **c), _senml_cbor),
    Case("csv", CsvConfig, _csv, has_nan=False, any_key=False, lines=True),
    Case("influx", InfluxConfig, _influx, any_key=False, lines=True),
    Case(
        "sparkplug",
        lambda **c: SparkplugConfig(channels={name: f"in/{name}" for name in NAMES}, **c),
        _sparkplug,
        names_key=False,
        any_time=False,
    ),
]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def samples(n: int = 5) -> Floats:
    """Hundredths, so that int16 holds them too."""
    return (np.arange(3 * n).reshape(n, 3) / 100 - 0.05).astype(np.float32)


def reason_of(codec: Codec, key: str, payload: bytes) -> str:
    with pytest.raises(InputError) as caught:
        codec.decode(key, payload, NOW)
    assert "\n" not in str(caught.value)
    return caught.value.reason


def test_values_and_stamps_are_what_the_device_sent(case: Case) -> None:
    (reading,) = case.codec().decode("watch-3", case.encode("watch-3", NOW, samples()), NOW + 9)
    assert reading.key == "watch-3"
    assert reading.values.dtype == np.float32
    assert reading.values.flags.c_contiguous
    np.testing.assert_allclose(reading.values, samples(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.asarray(reading.t).ravel()[0], NOW, rtol=0, atol=1e-6)


def test_the_same_bytes_give_the_same_readings(case: Case) -> None:
    codec, payload = case.codec(), case.encode("k", NOW, samples())
    again = case.codec() if case.remembers else codec
    (first,), (second,) = codec.decode("k", payload, NOW), again.decode("k", payload, NOW)
    assert first.key == second.key
    assert first.period_s == second.period_s
    np.testing.assert_array_equal(first.t, second.t)
    np.testing.assert_array_equal(first.values, second.values)


def test_the_payload_names_the_key_where_the_topic_does_not(case: Case) -> None:
    payload = case.encode("from-payload", NOW, samples())
    if case.names_key:
        assert case.codec().decode("", payload, NOW)[0].key == "from-payload"
    else:
        assert reason_of(case.codec(), "", payload) == "no_key"


def test_the_topic_overrules_the_key_in_the_payload(case: Case) -> None:
    payload = case.encode("from-payload", NOW, samples())
    assert case.codec().decode("from-topic", payload, NOW)[0].key == "from-topic"


@pytest.mark.parametrize("key", ["", "a\nb", "\x00", "k" * 257])
def test_a_key_that_no_topic_could_hold_is_refused(case: Case, key: str) -> None:
    if case.name.startswith("senml") and key == "":
        return
    if case.names_key and (case.any_key or key not in ("", "a\nb")):
        assert reason_of(case.codec(), "", case.encode(key, NOW, samples())) == "no_key"


def test_nothing_is_empty_and_so_are_no_samples(case: Case) -> None:
    for empty in (b"", case.encode("k", NOW, samples(0))):
        assert reason_of(case.codec(), "k", empty) == "empty"


def test_a_giant_payload_is_refused_unread(case: Case) -> None:
    assert reason_of(case.codec(max_bytes=64), "k", b"\xff" * 65) == "too_large"


def test_too_many_samples_are_refused(case: Case) -> None:
    codec = case.codec(max_samples=4)
    assert codec.decode("k", case.encode("k", NOW, samples(4)), NOW)
    assert reason_of(codec, "k", case.encode("k", NOW, samples(5))) == "too_large"


def test_wrong_channel_count_is_refused(case: Case) -> None:
    wide = load_codec(_widened(case), (*CHANNELS, Channel(name="gx", unit="rad/s")), rate_hz=RATE_HZ)
    assert reason_of(wide, "k", case.encode("k", NOW, samples(5))) in ("wrong_channels", "wrong_size")


def _widened(case: Case) -> CodecConfig:
    """The same configuration for a model with one more channel."""
    config = case.config()
    if isinstance(config, JsonConfig) and config.channels:
        return replace(config, channels=config.channels | {"gx": "gx"})
    if isinstance(config, MsgpackConfig) and config.order:
        return replace(config, order=(*config.order, "gx"))
    return config


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(case: Case, bad: float) -> None:
    if case.has_nan:
        x = samples()
        x[2, 1] = bad
        assert reason_of(case.codec(), "k", case.encode("k", NOW, x)) == "not_finite"


@pytest.mark.parametrize("t", [-1e10, 3e11, 1e30])
def test_absurd_time_stamps_are_refused(case: Case, t: float) -> None:
    if not case.any_time and not 0 <= t * 1e3 < 2**64:
        return  # the field cannot hold them
    if case.name.startswith("senml") and t < 0:
        t = -1e13  # relative to now
    assert reason_of(case.codec(), "k", case.encode("k", t, samples())) == "bad_time"


@pytest.mark.parametrize("t", [np.nan, np.inf, -np.inf])
def test_time_stamps_that_are_not_numbers_are_refused(case: Case, t: float) -> None:
    if case.any_time:
        expected = "malformed" if case.name == "influx" else "bad_time"
        assert reason_of(case.codec(), "k", case.encode("k", t, samples())) in (expected, "no_time")


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_message_cut_short_is_refused(case: Case, cut: int) -> None:
    payload = case.encode("k", NOW, samples())
    if not case.lines:
        assert reason_of(case.codec(), "k", payload[:-cut]) in fuzz_codecs.REASONS


def test_nesting_is_bounded(case: Case) -> None:
    bombs = [b"[" * 200_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 40_000, b"\x81" * 200_000, b"\x91" * 200_000]
    for bomb in bombs:
        if not case.name.startswith(("raw", "pcm")):  # to which any bytes are numbers
            assert reason_of(case.codec(), "k", bomb) in fuzz_codecs.REASONS


def test_lengths_that_the_payload_does_not_hold_are_refused(case: Case) -> None:
    bombs = [head + b"\x3f" + b"\xff" * 7 for head in (b"\x9b", b"\xbb", b"\x5b")] + [b"\xdd\xff\xff\xff\xff"]
    for bomb in bombs:
        assert reason_of(case.codec(), "k", bomb) in fuzz_codecs.REASONS


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    x=st.lists(st.lists(st.integers(-30000, 30000), min_size=3, max_size=3), min_size=1, max_size=20),
    t=st.integers(2**28 * 1000, 253_402_300_000_000),
)
def test_what_is_encoded_is_decoded(x: list[list[int]], t: int) -> None:
    values = (np.array(x) / 100).astype(np.float32)
    for case in CASES:
        (reading,) = case.codec().decode("k", case.encode("k", t / 1e3, values), NOW)
        assert reading.values.shape == values.shape
        np.testing.assert_allclose(reading.values, values, rtol=0, atol=1e-4)
        np.testing.assert_allclose(np.asarray(reading.t).ravel()[0], t / 1e3, rtol=0, atol=1e-3)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_noise_gives_readings_or_a_reason(noise: bytes) -> None:
    for target in fuzz_codecs.targets():
        try:
            readings = target.codec.decode("k", noise, NOW)
        except InputError as error:
            assert error.reason in fuzz_codecs.REASONS  # noqa: PT017 - either is right
        else:
            fuzz_codecs.check(readings)


def test_five_thousand_hostile_messages_give_readings_or_a_reason() -> None:
    seen, _ = fuzz_codecs.fuzz(5000, seed=20240229)
    for target in fuzz_codecs.targets():
        assert seen[target.codec.name, "ok"], f"mutants of {target.codec.name} are never accepted: the test is blind"
        assert any(seen[target.codec.name, reason] for reason in fuzz_codecs.REASONS)
