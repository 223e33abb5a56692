"""Channels that stick to the end of a sensor's range, told from those that have a natural end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract, Reference
from edge_runtime.signal.intake.clipped import CALM_S, SHARE, YOUNG, ClippedCheck, KeyClipped, Rail
from edge_runtime.signal.intake.stuck import LOOK_S
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Float32, Reading

RATE = 50.0
WATCH = InputContract(
    channels=(*(Channel(name=f"a{axis}", unit="g") for axis in "xyz"), Channel(name="flow", unit="l/min")),
    rate_hz=RATE,
    window=100,
    hop=50,
)
LEVELS = (0.1, 0.3, 0.5, 0.8, 1, 1.1, 1.4, 1.6, 2)


def motion(seconds: float, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(0, 1, (round(RATE * seconds), 4)).astype(np.float32)


def looks(
    values: Float32, references: Sequence[Reference] = (), t: float = 1000.0
) -> list[tuple[float, list[Rail], bool]]:
    """For each window that is due the second at which it ends, where it is clipped, and whether the key is."""
    check, key, found = ClippedCheck(WATCH, references), KeyClipped(), []
    assert check.works
    for window in Windower(WATCH).push([Reading("w", t, values)]):
        if window.slot >= key.due:
            clipped = check.run(key, window)
            found.append((window.start + WATCH.window / RATE - t, clipped, key.on))
    return found


def flow(share: float | None) -> tuple[Reference, ...]:
    return (Reference(channels=("flow",), quantiles=LEVELS, span_s=10.0, rail_share=share),)


@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_range_that_is_cut_at_half_is_found_within_two_windows(column: int) -> None:
    values = motion(10)
    values[:, column] = np.clip(values[:, column], -1, 1)
    end, rails, _ = next(one for one in looks(values) if one[1])
    assert end <= 2 * WATCH.window / RATE + 0.1
    assert {(rail.column, abs(rail.value)) for rail in rails} == {(column, 1.0)}
    assert all(rail.share >= SHARE for rail in rails)


def test_one_end_alone_is_enough() -> None:
    values = motion(10)
    values[:, 1] = np.minimum(values[:, 1], 1)
    assert {(rail.column, rail.high, rail.value) for _, rails, _ in looks(values) for rail in rails} == {(1, True, 1.0)}


def test_a_fault_that_comes_later_is_found_and_over_a_minute_after_its_end() -> None:
    values = motion(180)
    values[1000:2000] = np.clip(values[1000:2000], -1, 1)
    found = looks(values)
    first = next(end for end, rails, _ in found if rails)
    assert 20 < first <= 20 + LOOK_S + 3 * WATCH.window / RATE
    over = next(end for end, _, on in found if end > first and not on)
    assert 40 + CALM_S <= over <= 40 + CALM_S + LOOK_S
    assert not any(rails for end, rails, _ in found if end > 43), "windows that do not stick are not marked"


def test_good_streams_are_looked_at_now_and_then_and_never_clipped() -> None:
    found = looks(motion(200))
    assert len(found) == pytest.approx(YOUNG + (200 - YOUNG * LOOK_S) / (4 * LOOK_S), abs=2)
    assert not any(rails for _, rails, _ in found)


def test_what_rests_or_comes_in_coarse_steps_is_not_clipped() -> None:
    coarse = (np.round(motion(60, seed=1)) / 16).astype(np.float32)
    still = (np.random.default_rng(0).integers(0, 2, (3000, 4)) / 16).astype(np.float32)
    held = np.repeat(motion(6), 10, axis=0)
    for values in (coarse, still, held, np.zeros_like(still)):
        assert not any(rails for _, rails, _ in looks(values))


def test_a_peak_of_another_height_each_time_is_no_end_of_a_range() -> None:
    values = motion(60)
    for at in range(0, len(values), 50):
        part = values[at : at + 50, 0]
        values[at : at + 50, 0] = np.minimum(part, 0.5 + 0.01 * at)
    for at in range(0, len(values), 100):
        values[at : at + 100, 1] = np.minimum(values[at : at + 100, 1], 0.2 + 0.0003 * at)
    assert not any(rails for _, rails, _ in looks(values))


@pytest.mark.parametrize(
    ("share", "is_found"), [(None, False), (0.0, True), (0.05, True), (0.3, False), (0.5, False)]
)  # fmt: skip
def test_a_single_channel_is_held_against_its_share_in_training(share: float | None, is_found: bool) -> None:
    """A valve that is closed for 40 % of the time, and one that never was."""
    values = motion(30)
    values[:, 3] = np.maximum(values[:, 3], np.float32(-0.25))
    found = looks(values, flow(share))
    assert any(rails for _, rails, _ in found) == is_found


def test_single_channels_without_a_reference_are_not_looked_at() -> None:
    one = InputContract(channels=(Channel(name="flow", unit="l/min"),), rate_hz=RATE, window=100, hop=50)
    assert not ClippedCheck(one).works
    assert ClippedCheck(one, flow(0.0)).works
    short = InputContract(channels=WATCH.channels, rate_hz=1.0, window=20, hop=10)
    assert not ClippedCheck(short).works, "too few samples beside an end"


@settings(max_examples=30, deadline=None)
@given(end=st.floats(0.3, 1.2), scale=st.floats(1e-3, 1e4), seed=st.integers(0, 99))
def test_every_end_that_a_tenth_of_the_movement_meets_is_found(end: float, scale: float, seed: int) -> None:
    values = np.clip(motion(12, seed), -end, end) * np.float32(scale)
    found = looks(values.astype(np.float32))
    assert any(rails for _, rails, _ in found)
