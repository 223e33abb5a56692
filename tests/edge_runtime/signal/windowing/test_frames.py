"""Each whole picture is a window; ids, drops, clocks, restarts: rules of `edge_runtime.signal.windowing.frames`."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.frames import Frame, frame_names
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.frames import FrameWindower
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.durable.reading_log_records import (
    decode_readings,
    decode_snapshot,
    encode_readings,
    encode_snapshot,
)
from edge_runtime.types import Reading

FRAME = Frame(height=3, width=5)
RATE_HZ = 10.0
CONTRACT = InputContract(
    channels=tuple(Channel(name=name, unit="1") for name in frame_names("rgb")),
    rate_hz=RATE_HZ * 15,
    window=15,
    hop=15,
    frame=FRAME,
)
NOW = 1_700_000_000.0


def frame(t: float, key: str = "door") -> Reading:
    return Reading(key, t, np.full((15, 3), t % 251, np.float32))


def windower(**config: float) -> tuple[FrameWindower, Metrics]:
    metrics = Metrics()
    made = windower_of(CONTRACT, WindowConfig(**config), metrics)  # type: ignore[arg-type]
    assert isinstance(made, FrameWindower)
    return made, metrics


def test_a_frame_is_a_window_with_its_stamp_and_pixels() -> None:
    one, metrics = windower()
    reading = frame(NOW)
    (window,) = one.push([reading], 7.0)
    assert (window.key, window.start, window.received) == ("door", NOW, 7.0)
    assert window.samples is reading.values
    assert window.context is reading.values
    assert one.flush() == []
    assert (metrics.counts["samples_total"], metrics.counts["windows_total"]) == (1, 1)


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=80))
def test_frames_are_answered_at_the_rate_at_most_and_each_has_an_id_of_its_own(offsets: list[float]) -> None:
    one, metrics = windower()
    windows = one.push([frame(NOW + offset) for offset in offsets])
    for earlier, later in itertools.pairwise(windows):
        assert later.epoch > earlier.epoch or later.start - earlier.start >= 0.75 / RATE_HZ - 1e-6
    assert len({window.id for window in windows}) == len(windows)
    assert len(windows) + metrics.dropped.total() == len(offsets)
    first = [window for window in windows if not window.epoch]
    again = windower()[0].push([frame(window.start) for window in first])
    assert [window.id for window in again] == [window.id for window in first]


def test_a_camera_at_the_rate_itself_loses_no_frame_to_jitter() -> None:
    jitter = np.random.default_rng(3).uniform(-0.012, 0.012, 500)
    one, metrics = windower()
    assert len(one.push([frame(NOW + i / RATE_HZ + float(late)) for i, late in enumerate(jitter)])) == 500
    assert not metrics.dropped.total()


@pytest.mark.parametrize(
    ("t", "reason"), [(NOW, "duplicate"), (NOW - 1.0, "late"), (NOW + 0.07, "frame_rate"), (NOW - 59.0, "late")]
)
def test_what_is_not_answered_is_counted_by_its_reason(t: float, reason: str) -> None:
    one, metrics = windower()
    one.push([frame(NOW)])
    assert one.push([frame(t)]) == []
    assert dict(metrics.dropped) == {reason: 1}


@pytest.mark.parametrize("back_s", [1.0, 30.0, 59.0, 7200.0, 1.7e9])
def test_a_camera_whose_clock_steps_back_loses_one_frame_and_no_id_comes_twice(back_s: float) -> None:
    one, metrics = windower()
    times = [NOW + i / RATE_HZ for i in range(20)]
    windows = one.push([frame(t) for t in times] + [frame(t + 1.1 / RATE_HZ - back_s) for t in times[-10:]])
    assert len(windows) >= 29
    assert len({window.id for window in windows}) == len(windows)
    assert metrics.counts["clock_jumps_total"] == 1


def test_frames_that_are_delivered_again_are_no_step_back() -> None:
    one, metrics = windower()
    times = [NOW + i / RATE_HZ for i in range(20)]
    assert len(one.push([frame(t) for t in [*times, *times[5:], NOW + 30 / RATE_HZ]])) == 21
    assert dict(metrics.dropped) == {"duplicate": 15}


def test_pictures_hours_apart_and_a_clock_that_was_set_back_are_answered() -> None:
    one, metrics = windower()
    assert len(one.push([frame(NOW), frame(NOW + 9000), frame(NOW + 100), frame(NOW + 101)])) == 4
    assert metrics.counts["clock_jumps_total"] == 1


@pytest.mark.parametrize(
    "reading",
    [
        Reading("k", NOW, np.zeros((14, 3), np.float32)),
        Reading("k", NOW, np.zeros((15, 1), np.float32)),
        Reading("k", NOW, np.zeros((15, 3), np.float32), 0.0, (0, 1, 2)),
    ],
)
def test_part_of_a_frame_is_refused(reading: Reading) -> None:
    one, metrics = windower()
    assert one.push([reading]) == []
    assert dict(metrics.dropped) == {"wrong_channels": 1}


def test_keys_are_bounded_and_the_one_silent_longest_leaves() -> None:
    one, metrics = windower(max_keys=2)
    one.push([frame(NOW, "a"), frame(NOW, "b"), frame(NOW + 1, "a"), frame(NOW, "c")])
    assert [state.name for state in one.state()] == ["a", "c"]
    assert metrics.counts["keys_evicted_total"] == 1


@given(
    offsets=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=30),
    cut=st.integers(0, 30),
    keys=st.lists(st.sampled_from("ab"), min_size=30, max_size=30),
)
def test_a_restart_changes_no_window(offsets: list[float], cut: int, keys: list[str]) -> None:
    """Readings and state go through the very bytes that the disk gets."""
    readings = [frame(NOW + offset, key) for offset, key in zip(offsets, keys, strict=False)]
    readings = decode_readings(encode_readings(readings))
    whole = windower()[0].push(readings)
    before, _ = windower()
    windows = before.push(readings[:cut])
    held, states = decode_snapshot(encode_snapshot(list(enumerate(windows)), before.state()))
    after, _ = windower()
    after.restore(states)
    windows = [window for _, window in held] + after.push(readings[cut:])
    assert list(map(plain, windows)) == list(map(plain, whole))
    assert cut < len(readings) or encode_snapshot([], after.state()) == encode_snapshot([], before.state())


def plain(window: Window) -> tuple[str, float, bytes]:
    return window.id, window.start, window.samples.tobytes()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"channels": CONTRACT.channels[:1]}, "has 3 channels"),
        ({"channels": tuple(replace(one, resample="mean") for one in CONTRACT.channels)}, "come together"),
        ({"window": 30, "hop": 15}, "height x width, 15"),
        ({"hop": 5}, "height x width, 15"),
        ({"context": 30}, "stands for itself"),
        ({"rate_hz": 2e9}, "of pixels, to 1e9"),
    ],
)
def test_a_contract_that_contradicts_its_frame_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(CONTRACT, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("height", 0), ("width", 10_001), ("padding", 256)])
def test_a_frame_out_of_bounds_is_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        replace(FRAME, **{field: value})  # type: ignore[arg-type]
