"""Grid points from samples in order, one segment at a time; `test_window` holds all rules together."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.grid import Grid, Segment
from edge_runtime.types import Float32, Float64

Resample = Literal["linear", "previous", "mean"]
RESAMPLES: list[Resample] = ["linear", "previous", "mean"]


def grid(resample: Resample = "linear", window: int = 4, hop: int = 2) -> Grid:
    channels = (Channel(name="x", unit="1"), Channel(name="y", unit="1"))
    return Grid(InputContract(channels=channels, rate_hz=10, window=window, hop=hop, resample=resample))


def rows(segment: Segment) -> Float32:
    """What the buffer holds of the grid points determined so far."""
    return segment.buffer[: segment.filled - segment.first]


def samples(steps: list[float]) -> tuple[Float64, Float32]:
    times = 100 + np.cumsum(steps)
    return times, np.stack([np.sin(times), np.arange(len(times))], axis=1).astype(np.float32)


STEPS = st.lists(st.sampled_from([0.03, 0.08, 0.1, 0.1, 0.13, 0.25]), min_size=1, max_size=30)


def test_a_segment_begins_at_its_first_sample_and_its_windows_at_numbers_that_divide() -> None:
    segment = grid(hop=4).begin(0.3)
    assert (segment.anchor, segment.base, segment.next_window) == (0.3, 3, 1)


@pytest.mark.parametrize("resample", RESAMPLES)
@given(steps=STEPS, data=st.data())
@settings(deadline=None, max_examples=30, derandomize=True)
def test_points_do_not_depend_on_how_samples_came_together(
    resample: Resample, steps: list[float], data: st.DataObject
) -> None:
    one = grid(resample, window=64, hop=64)  # nothing is let go
    times, values = samples(steps)
    at_once = one.begin(float(times[0]))
    one.fill(at_once, times, values)
    in_pieces = one.begin(float(times[0]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(times)), max_size=5)) - {len(times)})
    for begin, end in itertools.pairwise([0, *cuts, len(times)]):
        one.fill(in_pieces, times[begin:end], values[begin:end])
    one.end(at_once)
    one.end(in_pieces)
    assert at_once.filled == in_pieces.filled > 0
    np.testing.assert_array_equal(rows(at_once), rows(in_pieces))


@pytest.mark.parametrize("resample", RESAMPLES)
@given(steps=STEPS, at=st.integers(0, 30))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_a_restored_segment_goes_on_as_if_nothing_had_happened(resample: Resample, steps: list[float], at: int) -> None:
    one = grid(resample)
    times, values = samples([*steps, 0.1])
    at = min(max(at, 1), len(times) - 1)
    kept = one.begin(float(times[0]))
    one.fill(kept, times[:at], values[:at])
    restored = grid(resample).restore(one.state(kept))
    for segment in (kept, restored):
        one.fill(segment, times[at:], values[at:])
    assert (kept.filled, kept.base, kept.next_window) == (restored.filled, restored.base, restored.next_window)
    held = min(len(rows(kept)), len(rows(restored)))
    np.testing.assert_array_equal(rows(kept)[len(rows(kept)) - held :], rows(restored)[len(rows(restored)) - held :])


def test_room_is_made_without_touching_what_was_handed_out() -> None:
    one = grid()
    times, values = samples([0.1] * 40)
    segment = one.begin(float(times[0]))
    one.fill(segment, times, values)
    view, before = segment.buffer[0:4], segment.buffer[0:4].copy()
    segment.next_window = 36
    at = one.make_room(segment, 50)
    assert (segment.first, at) == (8, 32)
    segment.buffer[:] = -1
    np.testing.assert_array_equal(view, before)


def test_only_a_mean_waits_for_the_sample_after() -> None:
    times, values = samples([0.1] * 3)
    for resample in RESAMPLES:
        one = grid(resample)
        segment = one.begin(float(times[0]))
        one.fill(segment, times, values)
        assert segment.filled == (2 if resample == "mean" else 3)
        one.end(segment)
        assert segment.filled == 3
