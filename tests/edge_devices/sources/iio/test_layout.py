"""Records as the kernel lays them out, and the units of its channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_devices.sources.iio.layout import ScanElement, factor_between, record_dtype, unit_of
from hypothesis import given, settings
from hypothesis import strategies as st

G = 9.80665


@pytest.mark.parametrize(
    ("text", "stored", "expected"),
    [
        ("le:s16/16>>0", "ff7f 0080 ffff", [32767, -32768, -1]),
        ("be:s12/16>>4", "7ff0 8000 fff0", [2047, -2048, -1]),
        ("be:s12/16>>4", "7fff 800f fff7", [2047, -2048, -1]),  # what stands in the spare bits is not ours
        ("le:u10/16>>2", "fc0f 0000", [1023, 0]),
        ("le:u24/32>>8", "00ffffff", [16777215]),
        ("be:s24/32>>0", "00800000 ffffffff", [-8388608, -1]),
        ("le:s64/64>>0", "ffffffffffffffff", [-1]),
        ("le:u8/8", "80 ff", [128, 255]),
    ],
)
def test_a_scan_element_gives_the_numbers_that_the_sensor_counted(text: str, stored: str, expected: list[int]) -> None:
    element = ScanElement.parse(text)
    data = np.frombuffer(bytes.fromhex(stored), element.dtype)
    assert element.numbers(data).ravel().tolist() == expected


@given(
    big=st.booleans(), signed=st.booleans(), width=st.sampled_from([8, 16, 32, 64]), data=st.data(),
)  # fmt: skip
@settings(deadline=None, max_examples=200, derandomize=True)
def test_every_number_survives_shift_sign_and_byte_order(big: bool, signed: bool, width: int, data: Any) -> None:
    bits = data.draw(st.integers(1, min(width, 52)))  # beyond 2**53 a float64 has no room
    shift = data.draw(st.integers(0, width - bits))
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    numbers = data.draw(st.lists(st.integers(low, high), min_size=1, max_size=5))
    noise = data.draw(st.integers(0, (1 << width) - 1))
    mask = ((1 << bits) - 1) << shift
    element = ScanElement.parse(f"{'be' if big else 'le'}:{'s' if signed else 'u'}{bits}/{width}>>{shift}")
    stored = b"".join(
        ((number << shift) & mask | noise & ~mask).to_bytes(width // 8, "big" if big else "little")
        for number in numbers
    )
    assert element.numbers(np.frombuffer(stored, element.dtype)).ravel().tolist() == numbers


def test_records_are_aligned_as_the_kernel_aligns_them() -> None:
    s16, s32, s64, s8 = (ScanElement.parse(f"le:s{n}/{n}>>0") for n in (16, 32, 64, 8))
    for elements, offsets, size in [
        ([s16, s16, s16, s64], [0, 2, 4, 8], 16),
        ([s16, s16, s16], [0, 2, 4], 6),
        ([s8, s32, s8], [0, 4, 8], 12),
        ([ScanElement.parse("le:s16/16X4>>0"), s64], [0, 8], 16),
        ([s16, ScanElement.parse("le:s32/32X4>>0"), s64], [0, 16, 32], 48),
    ]:
        dtype = record_dtype([(f"c{i}", element) for i, element in enumerate(elements)])
        assert [dtype.fields[f"c{i}"][1] for i in range(len(elements))] == offsets  # type: ignore[index]
        assert dtype.itemsize == size


@pytest.mark.parametrize(
    "text", ["", "le:s16", "le:x16/16>>0", "le:s17/16>>0", "le:s12/16>>5", "le:s12/24>>0", "le:s16/16X0>>0"]
)
def test_a_scan_element_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="scan element"):
        ScanElement.parse(text)


def test_units_are_those_of_the_kernel_s_interface() -> None:
    assert unit_of("accel_x") == "m/s2"
    assert unit_of("voltage0") == "mV"
    assert unit_of("temp") == "mCel"
    assert unit_of("count0") == ""
    assert factor_between("m/s2", "g") == pytest.approx(1 / G)
    assert factor_between("rad/s", "deg/s") == pytest.approx(57.29578)
    assert factor_between("kPa", "hPa") == 10
    assert factor_between("m/s2", "m/s^2") == 1
    assert factor_between("m/s2", "K") is None
    assert factor_between("", "") is None
