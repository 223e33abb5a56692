"""Drift by channel: shares of what begins an alarm, and never an alarm that the detectors would not raise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.manifest import SensorReference
from edge_runtime.manifest.drift import OwnPast
from edge_runtime.signal.drift.by_channel import KeyDrift
from edge_runtime.signal.drift.latch import LOOKS
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.signal.drift.own_past import Distance
from tests.edge_runtime.signal.drift.sensors import CHANNELS, described, drift_of, look, reference, swapped, windows


def of(drift: Drift, key: str = "w") -> KeyDrift:
    found = drift.of(key)
    assert found is not None
    assert tuple(one.channel for one in found.channels) == CHANNELS
    return found


@given(
    st.lists(st.floats(-9, 9), min_size=9, max_size=9),
    st.lists(st.floats(-0.1, 0.1), min_size=36, max_size=36),
    st.lists(st.floats(0.1, 9), min_size=9, max_size=9),
)
def test_no_channel_alone_is_farther_than_all_together(
    difference: list[float], correlations: list[float], spread: list[float]
) -> None:
    """So a channel past the bound is an alarm. Mutation: part of the inverse for the inverse of the part."""
    own = OwnPast(windows=1, spread=tuple(spread), correlations=tuple(correlations), threshold=1.0)
    distance = Distance(own)
    row = np.array(difference)
    alone = distance.by_channel(row)
    assert len(alone) == 3
    assert max(alone) <= float(distance.of(row)) * (1 + 1e-9) + 1e-9
    only = np.where(np.arange(9) % 3 == 1, row, 0)  # nothing else differs
    assert distance.by_channel(only)[0::2] == [0, 0]


def test_a_sensor_as_in_training_is_far_from_the_bound() -> None:
    drift, _ = drift_of()
    look(drift, windows(60))
    found = of(drift)
    assert drift.alarms == []
    assert found.past is not None
    assert 0 < found.past < 1
    for one in found.channels:
        assert one.past is not None
        assert 0 < one.past <= found.past
        assert one.mounting == 0


def test_a_channel_that_changed_is_the_one_past_the_bound_when_the_alarm_is_on() -> None:
    drift, _ = drift_of("changed")
    look(drift, windows(60))
    look(drift, windows(40, seed=7) * np.array([1, 1, 4], np.float32), first=60)
    found = of(drift)
    assert [alarm.cause for alarm in drift.alarms] == ["changed"]
    assert found.past is not None
    shares = [one.past or 0.0 for one in found.channels]
    assert shares[2] > 1 > max(shares[:2])
    assert found.past >= shares[2]
    assert found.channels[2].most == "mean is higher"
    assert [one.mounting for one in found.channels] == [None] * 3  # not looked for


def test_swapped_axes_are_the_channels_past_the_bound_of_mounting() -> None:
    drift, _ = drift_of("repair")
    look(drift, swapped(windows(30)))
    found = of(drift)
    assert [alarm.cause for alarm in drift.alarms] == ["orientation"]
    ax, ay, az = found.channels
    assert ax.fault == ay.fault == "ax and ay swapped"
    assert ax.mounting == ay.mounting
    assert (ax.mounting or 0) > 1 > (az.mounting or 0)
    assert (found.past, found.wanted) == (None, 0)


def test_before_there_are_enough_looks_it_says_how_many_there_are() -> None:
    drift, _ = drift_of()
    assert (of(drift).looks, of(drift).past) == (0, None)
    look(drift, windows(LOOKS - 1))
    found = of(drift)
    assert (found.looks, found.wanted, found.past) == (LOOKS - 1, 20, None)
    assert {(one.mounting, one.past) for one in found.channels} == {(None, None)}
    look(drift, windows(1), first=LOOKS - 1)
    assert all(one.mounting is not None for one in of(drift).channels)


@pytest.mark.parametrize("known", [None, dataclasses.replace(reference(), own=None)])
def test_a_bundle_says_what_it_can(known: SensorReference | None) -> None:
    drift, _ = drift_of(known=dataclasses.replace(described(), sensors=known))
    look(drift, windows(40))
    if known is None:
        assert drift.of("w") is None
    else:
        assert (of(drift).past, of(drift).wanted) == (None, 0)
        assert of(drift).channels[0].mounting == 0


def test_asking_changes_nothing() -> None:
    drift, _ = drift_of()
    look(drift, windows(60))
    before = drift.save()
    assert of(drift) == of(drift)
    assert drift.save() == before
