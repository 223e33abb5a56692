"""Protobuf: fields in order, written as they are read, and a refusal of what is cut short."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system import protobuf
from tests.edge_runtime.io.codecs.sparkplug_messages import block, number, varint


def read(message: bytes) -> list[tuple[int, int, int | bytes]]:
    return [
        (field, wire, bytes(value) if isinstance(value, memoryview) else value)
        for field, wire, value in protobuf.fields(memoryview(message))
    ]


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 2**29 - 1), st.integers(0, 2**64 - 1) | st.binary(max_size=40)), max_size=8))
def test_fields_come_back_in_order_and_no_part_of_them_is_a_message_that_ends_elsewhere(
    fields: list[tuple[int, int | bytes]],
) -> None:
    parts = [number(field, value) if isinstance(value, int) else block(field, value) for field, value in fields]
    expected = [(field, 0 if isinstance(value, int) else 2, value) for field, value in fields]
    message = b"".join(parts)
    assert read(message) == expected
    ends = {sum(map(len, parts[:i])) for i in range(len(parts) + 1)}
    for cut in range(len(message)):
        if cut in ends:
            assert read(message[:cut]) == expected[: sorted(ends).index(cut)]
        else:
            with pytest.raises(ValueError, match="cut short"):
                read(message[:cut])


@given(st.integers(1, 2**29 - 1), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.binary(max_size=300))
def test_what_is_written_is_read(field: int, whole: int, real: float, data: bytes) -> None:
    message = protobuf.uint(field, whole) + protobuf.double(field, real) + protobuf.block(field, data)
    assert message == number(field, whole % 2**64) + varint(field << 3 | 1) + struct.pack("<d", real) + block(
        field, data
    )
    assert read(message) == [(field, 0, whole % 2**64), (field, 1, struct.pack("<d", real)), (field, 2, data)]


def test_fixed_sizes_are_read_as_bytes() -> None:
    assert read(varint(1 << 3 | 5) + b"abcd" + varint(2 << 3 | 1) + b"abcdefgh") == [
        (1, 5, b"abcd"),
        (2, 1, b"abcdefgh"),
    ]


@pytest.mark.parametrize("message", [b"\x0b", b"\x0c", b"\x00", b"\xff" * 11, b"\x80" * 3, b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="protobuf"):
        read(message)
