"""MessagePack and CBOR: what the common checks of the contract do not reach."""

from __future__ import annotations

from typing import Any

import cbor2
import numpy as np
import ormsgpack
import pytest

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.cbor import CborCodec, CborConfig
from edge_runtime.io.codecs.msgpack import MsgpackCodec, MsgpackConfig

NAMES = ("ax", "ay")
NOW = 1_700_000_000.0


def reason_of(codec: Any, payload: bytes) -> str:
    with pytest.raises(InputError) as caught:
        codec.decode("k", payload, NOW)
    return caught.value.reason


BINARY = [
    pytest.param(MsgpackCodec(MsgpackConfig(), NAMES), ormsgpack.packb, id="msgpack"),
    pytest.param(CborCodec(CborConfig(), NAMES), cbor2.dumps, id="cbor"),
]


@pytest.mark.parametrize(("codec", "dumps"), BINARY)
@pytest.mark.parametrize(
    "values",
    [
        [[True, 2.5]],
        [[0, False]],
        [1.5, True],
        [[1, 2], b"\x01\x02"],
        [[1, 2], "ab"],
        [[1, None]],
        [[1, b"x"]],
        b"12345",
    ],
)
def test_what_is_no_number_is_refused(codec: Any, dumps: Any, values: Any) -> None:
    assert reason_of(codec, dumps({"t": 5, "values": values})) in ("malformed", "not_a_number")


@pytest.mark.parametrize(("codec", "dumps"), BINARY)
def test_zeros_and_ones_are_honest_numbers(codec: Any, dumps: Any) -> None:
    assert codec.decode("k", dumps({"t": 5, "values": [[0, 1], [1.0, 0.0]]}), NOW)[0].values.tolist() == [
        [0, 1],
        [1, 0],
    ]


@pytest.mark.parametrize(("codec", "dumps"), BINARY)
def test_byte_strings_are_little_endian_float32(codec: Any, dumps: Any) -> None:
    x = np.array([[1, 2], [3, 4.5]], "<f4")
    assert codec.decode("k", dumps({"t": 5, "values": x.tobytes()}), NOW)[0].values.tolist() == x.tolist()
    assert reason_of(codec, dumps({"t": 5, "values": x.tobytes()[:12]})) == "wrong_channels"
    assert reason_of(codec, dumps({"t": 5, "values": b""})) == "empty"


@pytest.mark.parametrize("tag", [*range(64, 76), 77, 78, 79, 80, 81, 82, 84, 85, 86])
def test_every_typed_array_of_rfc_8746_is_read(tag: int) -> None:
    kind = "f" if tag & 0b10000 else "i" if tag & 0b01000 else "u"
    width = (2 if kind == "f" else 1) << (tag & 0b11)
    dtype = np.dtype(f"{'<' if tag & 0b100 else '>'}{kind}{width}")
    x = np.array([[1, 2], [3, 4]], dtype)
    payload = cbor2.dumps({"t": 5, "values": cbor2.CBORTag(tag, x.tobytes())})
    assert CborCodec(CborConfig(), NAMES).decode("k", payload, NOW)[0].values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "value",
    [
        cbor2.CBORTag(76, b"\0" * 8),  # reserved by the RFC
        cbor2.CBORTag(83, b"\0" * 32),  # float128
        cbor2.CBORTag(85, [1, 2]),
        cbor2.CBORTag(85, b"\0" * 7),
        cbor2.CBORTag(40, [[1, 2], [3, 4]]),
        cbor2.CBORTag(35, "(a{1000}){1000}"),
        cbor2.CBORTag(36, "MIME-Version: 1.0"),
        cbor2.CBORTag(4, [10**9, 1]),
        cbor2.CBORTag(2, b"\xff" * 4096),
        cbor2.CBORTag(258, [1, 2]),
        cbor2.CBORTag(30, [1, 3]),
    ],
)
def test_tags_that_do_things_to_the_reader_are_refused_where_they_are_read(value: Any) -> None:
    codec = CborCodec(CborConfig(), NAMES)
    document = {"t": 5, "values": [[1, 2]]}
    assert reason_of(codec, cbor2.dumps(document | {"values": value})) == "malformed"
    assert reason_of(codec, cbor2.dumps(document | {"t": value})) in ("malformed", "bad_time")
    assert codec.decode("k", cbor2.dumps(document | {"unused": value}), NOW)[0].values.tolist() == [[1, 2]]


def test_shared_references_are_refused() -> None:
    loop = bytes.fromhex("a2 61 74 05 66 76616c756573 d81c 82 01 d81d00".replace(" ", ""))
    assert reason_of(CborCodec(CborConfig(), NAMES), loop) == "not_a_number"


def test_typed_arrays_serve_as_stamps_and_as_columns() -> None:
    t = cbor2.CBORTag(86, np.array([5.0, 6.0], "<f8").tobytes())
    x = {"ax": cbor2.CBORTag(77, np.array([1, 2], "<i2").tobytes()), "ay": np.array([3, 4], "<f4").tobytes()}
    codec = CborCodec(CborConfig(channels={"ax": "ax", "ay": "ay"}), NAMES)
    (reading,) = codec.decode("k", cbor2.dumps({"t": t, **x}), NOW)
    assert np.asarray(reading.t).tolist() == [5, 6]
    assert reading.values.tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize("field", ["t", "values"])
@pytest.mark.parametrize(("tag", "nan"), [(85, bytes.fromhex("0000a07f")), (86, bytes.fromhex("000000000000f47f"))])
def test_a_signalling_nan_is_refused_without_a_warning(tag: int, nan: bytes, field: str) -> None:
    """Any arithmetic with it raises the processor's flag for invalid operations, which numpy warns about."""
    document: dict[str, Any] = {"t": [1, 2], "values": [[1, 2], [3, 4]]}
    document[field] = cbor2.CBORTag(tag, nan * (2 if field == "t" else 4))
    expected = "bad_time" if field == "t" else "not_finite"
    assert reason_of(CborCodec(CborConfig(), NAMES), cbor2.dumps(document)) == expected


def test_float64_beyond_float32_is_not_finite() -> None:
    payload = cbor2.dumps({"t": 5, "values": cbor2.CBORTag(86, np.array([1e300, 1.0], "<f8").tobytes())})
    assert reason_of(CborCodec(CborConfig(), NAMES), payload) == "not_finite"
