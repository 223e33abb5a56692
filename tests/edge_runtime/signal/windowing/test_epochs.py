"""Ids name one window for ever, and a clock that steps costs the windows around the step alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.epochs import NEVER, Epochs, Given, parse_id, window_id
from edge_runtime.signal.windowing.join import AnyWindower, windower_of
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.durable.reading_log_records import decode_snapshot, encode_snapshot
from edge_runtime.types import Reading

RATE, NOW = 10.0, 1_700_000_000.0
STEPS = [-1.9e9, -7200.0, -80.0, -60.0, -59.0, -30.0, -5.0, -2.0, 5.0, 59.0, 7200.0]


def contract(window: int = 8, hop: int = 4, resample: str = "linear") -> InputContract:
    channels = (Channel(name="a", unit="1"), Channel(name="b", unit="1"))
    return InputContract(channels=channels, rate_hz=RATE, window=window, hop=hop, resample=resample)  # type: ignore[arg-type]


def sample(t: float, value: float, *, parts: bool = False) -> list[Reading]:
    values = np.array([[value, -value]], np.float32)
    if not parts:
        return [Reading("k", t, values)]
    return [Reading("k", t, values[:, :1], 0.0, (0,)), Reading("k", t, values[:, 1:], 0.0, (1,))]


def windower(metrics: Metrics | None = None, *, parts: bool = False, **config: float) -> AnyWindower:
    return windower_of(contract(), WindowConfig(**config), metrics, parts=parts)  # type: ignore[arg-type]


def assert_ids_are_unique(windows: Sequence[Window]) -> None:
    contents: dict[str, bytes] = {}
    for window in windows:
        assert contents.setdefault(window.id, window.samples.tobytes()) == window.samples.tobytes(), window.id
    assert len(contents) == len(windows)
    assert len({window.place for window in windows}) == len(windows)


@given(
    steps=st.lists(st.sampled_from(STEPS), max_size=5),
    parts=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    restart=st.booleans(),
)
@pytest.mark.slow
@settings(max_examples=40, deadline=None)
def test_a_stream_with_steps_gives_all_windows_outside_of_them_under_ids_of_their_own(
    steps: list[float], parts: bool, seed: int, restart: bool
) -> None:
    """Stamps jitter, readings come late and twice, and the clock steps between stretches of ten seconds."""
    rng = np.random.default_rng(seed)
    one, windows = windower(parts=parts, lateness_s=0.3), []
    stretch, clock = 100, NOW
    for number in range(len(steps) + 1):
        clock += 0.0 if not number else steps[number - 1]
        order = np.arange(stretch)
        for at in rng.choice(stretch - 1, 8, replace=False):  # a reading comes before the one before it
            order[at], order[at + 1] = order[at + 1], order[at]
        places = np.sort(rng.integers(5, stretch, 8))
        arriving = np.insert(order, places, order[places - 4])  # and one once more
        jitter = rng.uniform(-0.004, 0.004, stretch)
        for i in arriving.tolist():
            t = clock + (number * stretch + i) / RATE + float(jitter[i])
            windows += one.push(sample(t, 1.0 + number * stretch + i, parts=parts))
        if restart:
            _, states = decode_snapshot(encode_snapshot([], one.state()))
            one = windower(parts=parts, lateness_s=0.3)
            one.restore(states)
    windows += one.flush()
    assert_ids_are_unique(windows)
    whole = [{int(v) for v in window.samples[:, 0]} for window in windows if (np.diff(window.samples[:, 0]) == 1).all()]
    for number in range(len(steps) + 1):
        inside = set(range(1 + number * stretch, 1 + (number + 1) * stretch))
        found = sum(values <= inside for values in whole)
        # 24 fit; readings of the step that come twice, or in another order, may take a few at its two ends.
        assert found >= 18, (number, found)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("step", [-1.9e9, -7200.0, -80.0, -60.0, -59.0, -30.0, -5.0])
def test_a_step_back_loses_no_sample_and_is_said(step: float, parts: bool, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    one = windower(metrics, parts=parts)
    with caplog.at_level(logging.WARNING):
        times = [NOW + i / RATE + (step if i >= 200 else 0.0) for i in range(400)]
        windows = [w for i, t in enumerate(times) for w in one.push(sample(t, i % 13, parts=parts))]
    assert not metrics.dropped.total()
    assert len(windows) >= 97
    assert caplog.messages[0].startswith("window: the clock of a key went back: key=k by_s=")
    assert_ids_are_unique(windows)


@pytest.mark.parametrize("away_s", [1.0, 30.0, 59.0, -3.0, -59.0, 1e6])
def test_one_absurd_stamp_costs_the_windows_around_it(away_s: float) -> None:
    metrics = Metrics()
    one = windower(metrics)
    windows = one.push([r for i in range(400) for r in sample(NOW + i / RATE + away_s * (i == 200), i % 13)])
    assert len(windows) >= 95
    assert metrics.dropped.total() <= 10
    assert_ids_are_unique(windows)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("resample", ["linear", "mean", "previous"])
@pytest.mark.parametrize(("begin", "end"), [(380, 400), (300, 400), (100, 400), (300, 340), (150, 190)])
def test_a_burst_that_is_delivered_again_is_no_step(begin: int, end: int, resample: str, parts: bool) -> None:
    """However old, between the points of the grid, and after restarts before it, too."""
    rng = np.random.default_rng(begin)
    times, values = NOW + np.arange(600) / RATE + rng.uniform(0, 0.09, 600), rng.normal(size=600)
    again = np.r_[0:400, begin:end, 400:600]

    def cut(places: Sequence[int], restarts: Sequence[int] = ()) -> list[str]:
        one, found = windower_of(contract(resample=resample), parts=parts), []
        for at, i in enumerate(places):
            if at in restarts:
                _, states = decode_snapshot(encode_snapshot([], one.state()))
                one = windower_of(contract(resample=resample), parts=parts)
                one.restore(states)
            for reading in sample(float(times[i]), float(values[i]), parts=parts):
                found += [window.id for window in one.push([reading])]
        return found

    alone = cut(range(600))
    assert all(cut(again.tolist(), restarts) == alone for restarts in [(), (355, 400)])


def test_an_id_says_key_number_and_epoch_whatever_the_key() -> None:
    for key in ("a", "a@1", "a~2", "a@1~2", "~@~"):
        for number, epoch in ((5, 0), (-7, 3), (89_768_588_650, 2**31)):
            assert parse_id(window_id(key, number, epoch)) == (key, number, epoch)
    assert window_id("me", 50, 0) == "me@50"
    assert window_id("me", 50, 1) == "me@50~1"


def test_a_key_that_left_goes_on_in_its_epoch_and_one_that_is_forgotten_above_all() -> None:
    epochs = Epochs(max_keys=2)
    epochs.keep("a", Given(3, 40))
    epochs.keep("b", Given(0, 40))
    assert epochs.pop("a") == Given(3, 40)
    epochs.keep("a", Given(3, 48))
    epochs.keep("c", Given(0, 8))  # b is forgotten
    assert (epochs.pop("b"), epochs.pop("new")) == (Given(1, NEVER), Given(1, NEVER))
    epochs.keep("d", Given(0, 8))  # a is forgotten
    assert epochs.pop("a") == Given(4, NEVER)


def test_evicted_keys_have_new_ids_where_their_clock_begins_again() -> None:
    one = windower(max_keys=1)
    windows: list[Window] = []
    for _ in range(3):
        for key in ("a", "b"):
            values = np.random.default_rng(len(windows)).normal(size=(40, 2)).astype(np.float32)
            windows += one.push([Reading(key, 0.0, values)])
    assert len(windows) == 54
    assert_ids_are_unique(windows)


def test_another_bundle_takes_the_epochs_over() -> None:
    before = windower()
    windows = before.push([Reading("k", 100.0, np.ones((40, 2), np.float32))])
    after = windower_of(contract(window=4, hop=2))
    after.succeed(before)
    windows += after.push([Reading("k", 50.0, np.ones((40, 2), np.float32))])
    assert [window.epoch for window in windows] == [0] * 9 + [1] * 19


def test_after_a_crash_the_outbox_tells_a_repeat_from_another_window() -> None:
    values = np.random.default_rng(1).normal(size=(80, 2)).astype(np.float32)
    given_before = windower().push([Reading("k", 0.0, values)])
    claims = [(window.id, window.digest) for window in given_before]
    again, other = windower(), windower()
    for one in (again, other):
        one.epochs.claim(claims)
    assert [w.id for w in again.push([Reading("k", 0.0, values)])] == [w.id for w in given_before]
    found = other.push([Reading("k", 0.0, values[::-1].copy())])
    assert {w.id for w in found}.isdisjoint(w.id for w in given_before)
    assert {w.epoch for w in found} == {1}
    assert other.push([Reading("k", 8.0, values)])[0].epoch == 1
    assert not other.epochs.claims


def test_claims_of_earlier_releases_and_of_other_programs_are_taken_as_they_are() -> None:
    one = windower()
    one.epochs.claim([("k@0", None), ("no window", 5), ("k@x", 5)])
    (first, *_) = one.push([Reading("k", 0.0, np.ones((40, 2), np.float32))])
    assert first.id == "k@0"
