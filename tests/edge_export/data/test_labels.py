"""Labels in time, and windows cut by the runtime's own code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from edge_export.data.dataset import UNLABELLED, Dataset, Recording
from edge_export.data.labels import clip, label_windows, marks_of_events, stamps, window_label
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime import manifest
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel
from edge_runtime.signal.windowing.recorded import cut_recording
from tests.edge_export.recordings import cut_windows


def contract(window: int = 20, hop: int = 10, rate_hz: float = 50.0, context: int = 0) -> manifest.InputContract:
    return manifest.InputContract(
        channels=(manifest.Channel(name="ax", unit="g"),), rate_hz=rate_hz, window=window, hop=hop, context=context
    )


def recording(samples: int, **changes: Any) -> Recording:
    values = np.arange(samples, dtype=np.float32)[:, None]
    return replace(Recording(name="r", group="a", label=1, values=values), **changes)


def dataset(*recordings: Recording) -> Dataset:
    return Dataset(
        name="ramps",
        channels=(Channel(name="ax", unit="g"),),
        rate_hz=50.0,
        classes=("still", "moving"),
        recordings=recordings,
    )


def test_a_sample_takes_the_label_of_the_nearest_moment() -> None:
    events = {0: np.array([2, 10]), 1: np.array([6])}
    assert marks_of_events(12, events, reach=0).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0]


def test_a_moment_reaches_only_so_far() -> None:
    marks = marks_of_events(10, {1: np.array([5])}, reach=1)
    assert marks.tolist() == [-1, -1, -1, -1, 1, 1, 1, -1, -1, -1]


def test_without_moments_nothing_is_labelled() -> None:
    assert set(marks_of_events(5, {0: np.array([], np.int64)}, reach=0).tolist()) == {UNLABELLED}


def test_a_later_label_overrules_an_earlier_one_at_the_same_moment() -> None:
    assert set(marks_of_events(5, {0: np.array([2]), 1: np.array([2])}, reach=0).tolist()) == {1}


@given(
    samples=st.integers(1, 60),
    places=st.lists(st.integers(0, 59), min_size=1, max_size=6, unique=True),
    reach=st.integers(0, 9),
)
def test_marks_are_those_of_a_search_by_hand(samples: int, places: list[int], reach: int) -> None:
    places = [place % samples for place in places]
    labels = {place: number % 2 for number, place in enumerate(places)}
    events = {label: np.array([p for p in places if labels[p] == label], np.int64) for label in (0, 1)}
    expected = []
    for at in range(samples):
        distance, nearest = min((abs(at - place), place) for place in labels)
        expected.append(UNLABELLED if reach and distance > reach else labels[nearest])
    assert marks_of_events(samples, events, reach=reach).tolist() == expected


def test_windows_are_those_that_the_runtime_cuts() -> None:
    jittered = np.arange(200) / 50 + np.random.default_rng(1).uniform(-0.004, 0.004, 200)
    one = recording(200, t=np.sort(jittered))
    windows = label_windows(dataset(one), contract())
    expected = cut_recording(contract(), "r", stamps(one, 50.0), one.values)
    assert [f"r@{slot}" for slot in windows.start.tolist()] == [window.id for window in expected]
    np.testing.assert_array_equal(windows.x, np.stack([window.samples.T for window in expected]))


def test_regular_recordings_give_the_windows_of_plain_slicing() -> None:
    data = dataset(recording(100))
    by_clock, by_index = label_windows(data, contract(context=30)), cut_windows(data, samples=20, hop=10, context=30)
    np.testing.assert_array_equal(by_clock.contexts, by_index.contexts)
    assert by_clock.y.tolist() == by_index.y.tolist() == [1] * 9


def test_no_window_spans_a_gap() -> None:
    t = np.concatenate([np.arange(50), np.arange(50) + 500]) / 50
    windows = label_windows(dataset(recording(100, t=t)), contract())
    assert len(windows) == 8
    assert (np.diff(windows.x[:, 0], axis=1) == 1).all()


def test_another_rate_resamples_as_the_device_does() -> None:
    windows = label_windows(dataset(recording(100)), contract(rate_hz=25.0))
    np.testing.assert_allclose(windows.x[0, 0], np.arange(20) * 2, atol=1e-5)


@pytest.mark.parametrize(("rule", "label"), [("centre", 0), ("end", 1), ("majority", 0)])
def test_the_rule_decides_which_sample_names_the_window(rule: str, label: int) -> None:
    one = recording(10, label=UNLABELLED, marks=np.array([0] * 6 + [1] * 4))
    t = stamps(one, 50.0)
    assert window_label(one, t, t[0], t[-1], rule=rule, purity=0.0) == label  # type: ignore[arg-type]


def test_a_mixed_window_is_left_out_where_purity_is_asked_for() -> None:
    one = recording(10, label=UNLABELLED, marks=np.array([0] * 6 + [1] * 4))
    t = stamps(one, 50.0)
    assert window_label(one, t, t[0], t[-1], rule="majority", purity=0.7) == UNLABELLED
    assert window_label(one, t, t[0], t[-1], rule="majority", purity=0.6) == 0


def test_unlabelled_windows_are_left_out() -> None:
    marks = np.full(100, UNLABELLED)
    marks[45:55] = 1
    windows = label_windows(dataset(recording(100, label=UNLABELLED, marks=marks)), contract(hop=1))
    assert len(windows) == 10
    assert set(windows.y.tolist()) == {1}


def test_no_window_at_all_is_an_error_that_says_what_to_change() -> None:
    with pytest.raises(ConfigError, match=r"no recording of 'ramps' gives a labelled window of 20 samples at 50 Hz"):
        label_windows(dataset(recording(10)), contract())


def test_a_short_recording_lies_in_the_middle_of_its_clip() -> None:
    values = clip(recording(3), 8).values[:, 0]
    assert values.tolist() == [0, 0, 0, 1, 2, 0, 0, 0]


def test_a_long_recording_is_cut_to_its_loudest_stretch() -> None:
    loud = np.zeros((50, 1), np.float32)
    loud[30:34] = 5
    values = clip(recording(50, values=loud), 6).values
    assert len(values) == 6
    assert values.sum() == 20


@pytest.mark.parametrize("changes", [{"t": np.arange(5.0)}, {"marks": np.zeros(5, np.int64)}])
def test_a_stream_is_not_clipped(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="clip_s is for recordings with one label and no stamps"):
        clip(recording(5, **changes), 8)
