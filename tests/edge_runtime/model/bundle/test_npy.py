"""Arrays on disk: numpy's own format, one way to write each, nothing executed."""

from __future__ import annotations

import io
import pickle  # noqa: TID251 - to show that it is refused
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edge_runtime.model.bundle import npy

arrays = hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=8, min_side=0, max_side=3))


@given(array=arrays)
@settings(derandomize=True, deadline=None)
def test_arrays_come_back_as_they_went_in(array: npy.Floats) -> None:
    back = npy.parse(npy.dump(array))
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, array)
    assert not back.flags.writeable


@given(array=hnp.arrays(np.float16, hnp.array_shapes(min_dims=1, max_dims=8, min_side=0, max_side=3)))
@settings(derandomize=True, deadline=None)
def test_halves_come_back_as_floats(array: np.ndarray[Any, np.dtype[np.float16]]) -> None:
    data = npy.dump(array)
    back = npy.parse(data)
    assert back.dtype == np.float32
    assert not back.flags.writeable
    np.testing.assert_array_equal(back, array.astype(np.float32))
    np.testing.assert_array_equal(np.load(io.BytesIO(data), allow_pickle=False), array)


@given(array=arrays)
@settings(derandomize=True, deadline=None)
def test_numpy_reads_what_we_write(array: npy.Floats) -> None:
    np.testing.assert_array_equal(np.load(io.BytesIO(npy.dump(array)), allow_pickle=False), array)


def test_the_same_array_in_another_order_gives_the_same_bytes() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert npy.dump(np.asfortranarray(array)) == npy.dump(array) == npy.dump(array[::-1][::-1])


def _saved(array: Any, **more: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), **more)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00" + bytes(200),
        pickle.dumps([1.0]),
        _saved(np.zeros((2, 2), np.float64)),
        _saved(np.zeros((2, 2), ">f4")),
        _saved(np.zeros((2, 2), np.int32)),
        _saved(np.asfortranarray(np.zeros((2, 3), np.float32))),
        _saved(np.array([None]), allow_pickle=True),
        _saved(np.zeros(2, [("a", "f4")])),
        _saved(np.zeros((2, 2), np.float32), version=(2, 0)),
        npy.dump(np.zeros((2, 2), np.float32))[:-1],
        npy.dump(np.zeros((2, 2), np.float32)) + b"\0",
        npy.dump(np.zeros((2, 2), np.float32)).replace(b"(2, 2)", b"(2, 3)"),
        npy.dump(np.zeros((2, 2), np.float32)).replace(b"(2, 2), }", b"(2,02), }"),
        npy.dump(np.zeros((10, 10), np.float32)).replace(b"(10, 10)", b"(9999999999, 9999999999)"),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"npy|plain|bytes"):
        npy.parse(data)


@given(place=st.integers(0, 127), value=st.integers(1, 255))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_no_other_header_is_read(place: int, value: int) -> None:
    good = npy.dump(np.ones((3, 5), np.float32))
    mutant = bytearray(good)
    mutant[place] ^= value
    with pytest.raises(ValueError):
        npy.parse(bytes(mutant))
