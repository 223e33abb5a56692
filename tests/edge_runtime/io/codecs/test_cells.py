"""Single values as people write them."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.cells import MISSING, BlockConfig, Cells


def number(value: Any, **cells: Any) -> float | None:
    return Cells(**cells).number(value, 0, "field 'x'")


def refusal(value: Any, **cells: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        number(value, **cells)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    return caught.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [(21.4, 21.4), (3, 3.0), ("21.4", 21.4), (" -2e3\n", -2000.0), ("+.5", 0.5), ("1.", 1.0), ("007", 7.0)],
)
def test_what_is_clearly_a_number_is_one(value: Any, expected: float) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    "value",
    ["21,4", "1,234.5", "1 234", "0x10", "1e99999", "1_000", "٣", "inf", "1.2.3", "--5", True, [1], {}, b"1", "ON"],
)
def test_what_may_be_read_in_two_ways_is_refused(value: Any) -> None:
    assert refusal(value).reason == ("decimal_comma" if value == "21,4" else "not_a_number")


@pytest.mark.parametrize(
    ("text", "expected"), [("21,5", 21.5), (" -0,25 °C ", -0.25), ("1e3", 1000.0), ("1,5e3", 1500.0)]
)
def test_a_decimal_comma_is_read_where_the_configuration_says_so(text: str, expected: float) -> None:
    assert number(text, decimal=",", stated={0: "Cel"}) == expected
    assert refusal("1,234,5", decimal=",").reason == "not_a_number"


@pytest.mark.parametrize("mark", [*sorted(MISSING), "Unavailable", "NaN", " - ", None])
def test_a_missing_value_is_no_sample(mark: Any) -> None:
    assert number(mark) is None


def test_further_marks_may_be_named_also_numbers() -> None:
    assert number(-127, missing=("-127", "error")) is None
    assert number("Error", missing=("-127", "error")) is None
    assert number(-126, missing=("-127",)) == -126


def test_words_stand_for_numbers() -> None:
    words = {"ON": 1.0, "off": 0.0, "true": 1.0}
    assert [number(value, words=words) for value in ("on", "OFF", True)] == [1.0, 0.0, 1.0]
    assert refusal(False, words=words).reason == "not_a_number"


def test_a_unit_may_follow_where_it_is_the_stated_one() -> None:
    assert number("21.4 °C", stated={0: "C"}) == 21.4
    assert number("21.4C", stated={0: "C"}) == 21.4
    assert "units under [source.codec]" in str(refusal("21.4 °F", stated={0: "Cel"}))
    assert "units under [source.codec]" in str(refusal("21.4 °C"))


def test_a_text_of_a_megabyte_is_no_number() -> None:
    assert "1000000 characters" in str(refusal("1" * 1_000_000))


def test_a_number_beyond_any_float_is_refused() -> None:
    assert refusal(10**400).reason == "not_finite"


@given(st.text(max_size=80))
def test_any_text_is_a_number_missing_or_refused(text: str) -> None:
    try:
        found = number(text)
    except InputError as error:
        found, reason = None, error.reason
    else:
        reason = "not_a_number"
    assert reason in ("not_a_number", "decimal_comma")
    assert found is None or isinstance(found, float)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
)
@pytest.mark.parametrize("order", ["little", "big"])
def test_a_block_is_unpacked_by_type_and_byte_order(dtype: Any, order: Any) -> None:
    values = np.array([0, 1, 2, 100], dtype).astype(np.dtype(dtype).newbyteorder("<" if order == "little" else ">"))
    block = BlockConfig(dtype=dtype, byte_order=order)
    for packed in (values.tobytes(), base64.b64encode(values.tobytes()).decode()):
        assert block.unpack(packed).array().tolist() == [0, 1, 2, 100]
    scaled = BlockConfig(dtype=dtype, byte_order=order, scale=0.5, offset=-1)
    assert scaled.unpack(values.tobytes()).array().tolist() == [-1, -0.5, 0, 49]


def test_base64_without_padding_and_of_urls_is_known() -> None:
    data = np.array([-1.5, 1e10], "<f4").tobytes()
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    assert BlockConfig().unpack(text).array().tolist() == np.frombuffer(data, "<f4").tolist()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.integers(-32768, 32767), max_size=9), st.integers(0, 9), st.integers(1, 9), st.booleans())
def test_a_block_may_be_part_of_a_text(numbers: list[int], start: int, count: int, hexadecimal: bool) -> None:
    """A header before it, a checksum behind it; what is too short is refused."""
    data = b"\xaa" * start + np.array(numbers, ">i2").tobytes()
    text = data.hex() if hexadecimal else base64.b64encode(data).decode()
    encoding: Any = "hex" if hexadecimal else "base64"
    block = BlockConfig(encoding=encoding, dtype="int16", byte_order="big", start=start, count=count)
    if len(numbers) < count:
        with pytest.raises(InputError, match="needs"):
            block.unpack(text)
    else:
        assert block.unpack(text).array().tolist() == numbers[:count]
    assert replace(block, count=0).unpack(data).array().tolist() == numbers


def test_what_is_not_hexadecimal_is_refused() -> None:
    with pytest.raises(InputError, match="not hex"):
        BlockConfig(encoding="hex").unpack("0x10")


@pytest.mark.parametrize("text", ["*", "AAA", "AAAAPw==!", "ä" * 4])
def test_what_is_no_block_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        BlockConfig().unpack(text).array()
    assert caught.value.reason == "malformed"


def test_a_scale_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="scale must not be 0"):
        BlockConfig(scale=0)
    with pytest.raises(ValueError, match="must not be negative"):
        BlockConfig(start=-1)
