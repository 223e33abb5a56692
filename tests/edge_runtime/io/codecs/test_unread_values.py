"""A value that is not read refuses no message; a standard one that is read is understood."""

from __future__ import annotations

import struct
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import cbor2
import numpy as np
import orjson
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.cbor import CborConfig
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.csv import CsvConfig
from edge_runtime.io.codecs.influx import InfluxConfig
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.msgpack import MsgpackConfig
from edge_runtime.io.codecs.numbers import MAX_ODD_BYTES
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.codecs.sparkplug import SparkplugConfig
from edge_runtime.manifest import Channel
from tests.edge_runtime.io.codecs.sparkplug_messages import block, metric, payload

NOW = 1_700_000_000.0
CHANNELS = (Channel(name="temperature", unit="Cel"), Channel(name="humidity", unit="%RH"))
MAPPED = {"temperature": "temperature", "humidity": "humidity"}
STAMP = datetime.fromtimestamp(NOW, timezone.utc)


def made(config: CodecConfig, told: list[str] | None = None) -> Codec:
    return load_codec(config, CHANNELS, notice=None if told is None else lambda name, _: told.append(name))


def readings(config: CodecConfig, message: bytes, told: list[str] | None = None) -> list[Any]:
    """Stamp, values and channels of each reading, plain."""
    found = made(config, told).decode("k", message, NOW)
    return [(one.t, one.values.tolist(), one.channels) for one in found]


def refusal(config: CodecConfig, message: bytes) -> str:
    with pytest.raises(InputError) as caught:
        made(config).decode("k", message, NOW)
    return caught.value.reason


WHOLE = [(NOW, [[21.5, 40.0]], None)]

# -- MessagePack, written by its specification: the encoder at hand writes no extensions of its own ------------------


def mp_text(text: bytes) -> bytes:
    return bytes([0xA0 | len(text)]) + text


MP_STAMPS = {
    "32 bits": b"\xd6\xff" + struct.pack(">I", int(NOW)),
    "64 bits": b"\xd7\xff" + struct.pack(">Q", 500_000_000 << 34 | int(NOW)),
    "96 bits": b"\xc7\x0c\xff" + struct.pack(">Iq", 500_000_000, int(NOW)),
}
MP_ATOMS = st.one_of(
    st.sampled_from(
        [*MP_STAMPS.values(), b"\xc0", b"\xc3", b"\xcb\x7f\xf8" + bytes(6), b"\xcf" + b"\xff" * 8, b"\xa2\xff\xfe"]
    ),
    st.builds(lambda kind, data: bytes([0xC7, len(data), kind]) + data, st.integers(0, 255), st.binary(max_size=20)),
    st.builds(lambda kind, data: bytes([0xD8, kind]) + data, st.integers(0, 127), st.binary(min_size=16, max_size=16)),
    st.builds(lambda text: b"\xd9" + bytes([len(text)]) + text, st.binary(max_size=40)),
    st.builds(lambda data: b"\xc5" + struct.pack(">H", len(data)) + data, st.binary(max_size=40)),
)
MP_KEYS = st.sampled_from([b"\x01", b"\xe0", b"\xa1\xff", b"\xc4\x02ab", b"\xc0", b"\xcb" + struct.pack(">d", 1.5)])
MP_VALUES = st.recursive(
    MP_ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda some: bytes([0x90 | len(some)]) + b"".join(some)),
        st.tuples(MP_KEYS, inner).map(lambda pair: b"\x81" + pair[0] + pair[1]),
    ),
    max_leaves=6,
)


def mp_message(unread: bytes, *, key: bytes = b"\xa1x", t: bytes = b"\xcb" + struct.pack(">d", NOW)) -> bytes:
    temperature = mp_text(b"temperature") + b"\xcb" + struct.pack(">d", 21.5)
    return b"\x84" + key + unread + mp_text(b"t") + t + temperature + mp_text(b"humidity") + b"\x28"


@given(unread=MP_VALUES, key=MP_KEYS | st.just(b"\xa1x"))
def test_any_messagepack_value_may_stand_in_a_field_that_is_not_read(unread: bytes, key: bytes) -> None:
    assert readings(MsgpackConfig(channels=MAPPED), mp_message(unread, key=key)) == WHOLE


@pytest.mark.parametrize("kind", MP_STAMPS)
def test_messagepack_s_own_time_stamp_is_a_time_and_no_number(kind: str) -> None:
    config = MsgpackConfig(channels=MAPPED, time_unit="ms")
    ((t, values, _),) = readings(config, mp_message(b"\xc0", t=MP_STAMPS[kind]))
    assert (t, values) == (NOW + 0.5 * (kind != "32 bits"), [[21.5, 40.0]])
    assert (
        refusal(MsgpackConfig(channels={**MAPPED, "humidity": "t"}), mp_message(b"\xc0", t=MP_STAMPS[kind]))
        == "not_a_number"
    )


def test_keys_that_may_collide_are_taken_in_short_messages_alone() -> None:
    assert (
        refusal(MsgpackConfig(channels=MAPPED), mp_message(b"\xc5\x50\x00" + bytes(0x5000), key=b"\x01")) == "malformed"
    )
    colliding = cbor2.dumps({(0, i): 1 for i in range(MAX_ODD_BYTES // 5)} | {"t": NOW, **dict.fromkeys(MAPPED, 1)})
    assert refusal(CborConfig(channels=MAPPED), colliding) == "malformed"


# -- CBOR ------------------------------------------------------------------------------------------------------------

CBOR_ATOMS = st.one_of(
    st.sampled_from(
        [
            STAMP,
            Decimal("21.5"),
            2**70,
            -(2**70),
            cbor2.undefined,
            cbor2.CBORSimpleValue(200),
            float("nan"),
            float("inf"),
            None,
        ]
    ),
    st.builds(
        cbor2.CBORTag,
        st.integers(0, 300) | st.sampled_from([1004, 43000, 55799, 2**32]),
        st.integers() | st.text(max_size=5) | st.binary(max_size=9) | st.lists(st.integers(), max_size=3),
    ),
)
CBOR_KEYS = st.one_of(st.integers(), st.text(max_size=3), st.binary(max_size=3), st.tuples(st.integers()), st.none())
CBOR_VALUES = st.recursive(
    CBOR_ATOMS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CBOR_KEYS, inner, max_size=2), max_leaves=6
)
READ = {"t": NOW, "temperature": 21.5, "humidity": 40}


@given(unread=CBOR_VALUES, key=CBOR_KEYS)
def test_any_cbor_value_may_stand_in_a_field_that_is_not_read(unread: Any, key: Any) -> None:
    assert readings(CborConfig(channels=MAPPED), cbor2.dumps({key: unread} | READ)) == WHOLE


@pytest.mark.parametrize("stamp", [STAMP, cbor2.CBORTag(1, NOW), cbor2.CBORTag(1, int(NOW)), cbor2.CBORTag(55799, NOW)])
@pytest.mark.parametrize("temperature", [Decimal("21.5"), cbor2.CBORTag(5, [-1, 43]), cbor2.CBORTag(55799, 21.5)])
def test_cbor_s_times_and_fractions_are_understood(stamp: Any, temperature: Any) -> None:
    document = READ | {"t": stamp, "temperature": temperature}
    assert readings(CborConfig(channels=MAPPED), cbor2.dumps(cbor2.CBORTag(55799, document))) == WHOLE
    own = {"t": [stamp, stamp], "values": [[temperature, 40], [21.5, 40]]}
    ((t, values, _),) = readings(CborConfig(), cbor2.dumps(own))
    assert (np.asarray(t).tolist(), values) == ([NOW, NOW], [[21.5, 40.0]] * 2)


def test_fields_may_be_called_by_whole_numbers() -> None:
    numbered = {0: NOW, 1: 21.5, -2: 40}
    mapped = {"temperature": "1", "humidity": "-2"}
    assert readings(CborConfig(channels=mapped, time="0"), cbor2.dumps(numbered)) == WHOLE
    message = ormsgpack.packb(numbered, option=ormsgpack.OPT_NON_STR_KEYS)
    assert readings(MsgpackConfig(channels=mapped, time="0"), message) == WHOLE


# -- text ------------------------------------------------------------------------------------------------------------

JSON_ATOMS = st.sampled_from(
    [b"NaN", b"nan", b"-nan", b"-inf", b"Infinity", b"ovf", b"1e999", b"-1e999", b"9" * 400, b'"\\ud800"',
     b'"nan, \\"inf"', b'"\xff\xfe"', b'"a\tb"',
     b"18446744073709551616", b"null", b"true", b'"\\u0000"', b"1E-999", b'{"x":1,"x":nan}']
)  # fmt: skip
JSON_VALUES = st.recursive(
    JSON_ATOMS, lambda inner: st.lists(inner, max_size=3).map(lambda some: b"[" + b",".join(some) + b"]"), max_leaves=6
)
AROUND = st.sampled_from([(b"", b""), (b"\xef\xbb\xbf", b""), (b"", b"\0"), (b"\xef\xbb\xbf", b"\r\n\0\0")])


@given(unread=JSON_VALUES, around=AROUND)
def test_any_json_value_may_stand_in_a_field_that_is_not_read(unread: bytes, around: tuple[bytes, bytes]) -> None:
    message = around[0] + b'{"x":' + unread + b"," + orjson.dumps(READ)[1:] + around[1]
    assert readings(JsonConfig(channels=MAPPED), message) == WHOLE


TEXTS: dict[str, tuple[CodecConfig, bytes]] = {
    "csv": (CsvConfig(), b"t,x,temperature,humidity\n1700000000,%s,21.5,40\n"),
    "influx": (InfluxConfig(), b'm,place=%s x="%s",temperature=21.5,humidity=40i 1700000000000000000\n'),
    "senml": (
        SenmlConfig(check_units=False),
        b'[{"bn":"k:","bt":1700000000,"n":"x","vs":"%s"},{"n":"temperature","v":21.5},{"n":"humidity","v":40}]',
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("unread", [b"plain", b"\xb0C", b"nan", "°C".encode(), b"1e999"])
@pytest.mark.parametrize("around", [(b"", b""), (b"\xef\xbb\xbf", b""), (b"", b"\0")])
def test_any_text_may_stand_in_a_cell_that_is_not_read(kind: str, unread: bytes, around: tuple[bytes, bytes]) -> None:
    config, form = TEXTS[kind]
    assert readings(config, around[0] + form.replace(b"%s", unread) + around[1]) == WHOLE


def test_a_key_that_is_not_utf_8_is_refused() -> None:
    """Two of them would become one key, if a mark stood in for what cannot be read."""
    message = b'{"key":"B\xfcro",' + orjson.dumps(READ)[1:]
    with pytest.raises(InputError) as caught:
        made(JsonConfig(channels=MAPPED)).decode("", message, NOW)
    assert caught.value.reason == "no_key"
    with pytest.raises(InputError) as caught:
        made(InfluxConfig()).decode("", b"m,host=B\xfcro temperature=21.5,humidity=40", NOW)
    assert caught.value.reason == "no_key"


# -- some of the channels --------------------------------------------------------------------------------------------

PARTIAL: list[tuple[CodecConfig, bytes]] = [
    (JsonConfig(partial=True), b'{"t":1700000000,"temperature":21.5,"humidity":%s}'),
    (JsonConfig(partial=True), b'{"t":1700000000,"temperature":[21.5],"humidity":[%s]}'),
    (InfluxConfig(partial=True), b"m temperature=21.5,humidity=%s 1700000000000000000"),
    (CsvConfig(partial=True), b"t,temperature,humidity\n1700000000,21.5,%s"),
]


@pytest.mark.parametrize(("config", "form"), PARTIAL)
@pytest.mark.parametrize("value", [b'"dry"', b"Infinity", b"1e39"])
def test_a_channel_that_cannot_be_read_is_left_out_alone_where_others_come(
    config: CodecConfig, form: bytes, value: bytes
) -> None:
    told: list[str] = []
    message = form.replace(b"%s", value)
    assert readings(config, message, told) == [(NOW, [[21.5]], (0,))]
    assert told == ["values_refused"]
    with pytest.raises(InputError):
        made(config).decode("k", message.replace(b"21.5", value), NOW)


def test_nan_is_no_value_where_others_come() -> None:
    told: list[str] = []
    nan = float("nan")
    for config, message in (
        (JsonConfig(partial=True), b'{"t":1700000000,"temperature":21.5,"humidity":nan}'),
        (CborConfig(partial=True), cbor2.dumps(READ | {"humidity": nan})),
        (CborConfig(partial=True), cbor2.dumps(READ | {"humidity": cbor2.undefined})),
        (MsgpackConfig(partial=True), ormsgpack.packb(READ | {"humidity": nan})),
        (
            SparkplugConfig(partial=True),
            payload(
                metric(21.5, name="temperature"),
                metric(nan, name="humidity"),
                block(2, block(1, b"\xff")),
                ms=int(NOW * 1e3),
            ),
        ),
    ):
        assert readings(config, message, told) == [(NOW, [[21.5]], (0,))], config
    assert told == []
