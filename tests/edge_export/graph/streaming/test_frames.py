"""The arithmetic of frames, in small numbers."""

from __future__ import annotations

import numpy as np
from edge_export.graph.streaming.frames import ALWAYS, Demand, Frames, Reach, supply
from hypothesis import given
from hypothesis import strategies as st


def frames(length: int, *, stride: int = 1, begin: int = 0, end: int | None = None) -> Frames:
    return Frames(axis=2, batch=0, length=length, stride=stride, begin=begin, end=length if end is None else end)


@given(
    samples=st.integers(8, 40),
    size=st.integers(1, 5),
    stride=st.integers(1, 3),
    left=st.integers(0, 4),
    right=st.integers(0, 4),
)
def test_frames_that_see_padding_are_exactly_those_outside_begin_and_end(
    samples: int, size: int, stride: int, left: int, right: int
) -> None:
    length = (samples + left + right - size) // stride + 1
    found = Reach(stride=stride, size=size, before=left).after(frames(samples), length)
    padded = np.pad(np.ones(samples), (left, right))
    whole = [bool(padded[j * stride : j * stride + size].all()) for j in range(length)]
    expected = [found.begin <= j < found.end for j in range(length)]
    assert whole == expected
    assert found.stride == stride


def test_a_tensor_without_a_frame_of_its_own_is_new_in_every_window() -> None:
    found = Reach(size=9, before=4).after(frames(6), 6)
    assert (found.begin, found.end) == (6, 6)


def test_a_stream_has_no_begin() -> None:
    found = Reach(stride=2, size=5, before=4).after(frames(16, begin=ALWAYS), 8)
    assert (found.begin, found.end, found.stride) == (ALWAYS, 8, 2)


def test_only_new_frames_are_computed_and_older_ones_kept() -> None:
    demand = Demand(frames(20, stride=2))
    demand.add((16, 20))
    found = supply(demand, 6, keep=True)
    assert found.runs == ((17, 20),)
    assert found.ring == (16, 17)
    assert found.step == 3


def test_frames_that_may_not_be_kept_are_computed() -> None:
    demand = Demand(frames(20, stride=2))
    demand.add((16, 20))
    assert supply(demand, 6, keep=False).runs == ((16, 20),)


def test_edges_are_computed_and_the_frames_between_them_kept() -> None:
    demand = Demand(frames(20, begin=3, end=18))
    demand.add((0, 20))
    found = supply(demand, 4, keep=True)
    assert found.runs == ((0, 3), (14, 20))
    assert found.ring == (3, 14)


def test_frames_that_nobody_reads_are_not_computed() -> None:
    assert supply(Demand(frames(20, begin=3, end=18)), 4, keep=True).runs == ()
    demand = Demand(frames(20, begin=3, end=18))
    demand.add((17, 18))
    assert supply(demand, 4, keep=True).runs == ((17, 18),)
