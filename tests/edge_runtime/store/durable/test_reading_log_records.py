"""Readings as the reading log writes them: whole ones as ever, and those that hold some channels."""

from __future__ import annotations

import struct

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.store.durable.reading_log_records import decode_readings, encode_readings
from edge_runtime.types import Reading

CHANNELS = 4


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    n = draw(st.integers(1, 3))
    columns = draw(st.none() | st.permutations(range(CHANNELS)).map(tuple).flatmap(_beginning))
    width = CHANNELS if columns is None else len(columns)
    values = np.arange(n * width, dtype=np.float32).reshape(n, width)
    t = np.arange(n, dtype=np.float64) if draw(st.booleans()) else 7.25
    return Reading(draw(st.sampled_from(["a", "b/c"])), t, values, 0.5, columns)


def _beginning(columns: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.integers(1, CHANNELS).map(lambda n: columns[:n])


@pytest.mark.slow
@given(st.lists(readings(), max_size=6))
def test_readings_come_back_as_they_were(written: list[Reading]) -> None:
    read = decode_readings(encode_readings(written))
    assert [(r.key, r.period_s, r.channels) for r in read] == [(w.key, w.period_s, w.channels) for w in written]
    for found, expected in zip(read, written, strict=True):
        np.testing.assert_array_equal(found.t, expected.t)
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("columns", [None, (1,)])
def test_whole_readings_are_written_as_by_earlier_releases(columns: tuple[int, ...] | None) -> None:
    """So a file of the release before opens here, and one without partial readings opens there."""
    width = CHANNELS if columns is None else len(columns)
    values = np.ones((2, width), np.float32)
    head = orjson.dumps([["k", 7.0, 0.0, 2, width, *([] if columns is None else [columns])]])
    body = struct.pack("<I", len(head)) + head + values.tobytes()
    assert encode_readings([Reading("k", 7.0, values, 0.0, columns)]) == body
    assert decode_readings(body)[0].channels == columns
