"""Drift of keys: what is found is said once, marked where answers are wrong, and kept over a restart."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreError
from edge_runtime.metrics import Metrics
from edge_runtime.signal.drift.config import DriftConfig
from edge_runtime.signal.drift.latch import CALM, LOOKS
from edge_runtime.signal.drift.monitor import Drift
from tests.edge_runtime.batches import marks_after
from tests.edge_runtime.signal.drift.sensors import (
    Marks,
    described,
    drift_of,
    look,
    reference,
    streamed,
    swapped,
    windows,
)


def test_a_sensor_as_in_training_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    drift, metrics = drift_of()
    with caplog.at_level(logging.INFO):
        assert look(drift, windows(200)) == {}
    assert drift.alarms == []
    assert not caplog.records
    assert not metrics.counts


def test_swapped_axes_are_named_counted_once_marked_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    drift, metrics = drift_of("repair")
    marks = look(drift, windows(20))
    with caplog.at_level(logging.INFO):
        marks = look(drift, swapped(windows(60)), first=20)
    (alarm,) = drift.alarms
    assert (alarm.key, alarm.cause, alarm.detector) == ("w", "orientation", "repair")
    assert "best match: ax and ay swapped" in alarm.message
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "its windows are hard until this ends" in caplog.text
    assert metrics.counts['drift_alarms_total{cause="orientation"}'] == 1
    assert metrics.gauges['drift_alarms{cause="orientation"}'] == 1
    # Marked from the alarm on, those that overlap two looks as well; the alarm came within twice the looks of a mean.
    assert set(marks.values()) == {"orientation"}
    slots = sorted(slot for _, slot in marks)
    assert np.diff(slots).tolist() == [25] * (len(slots) - 1)
    assert slots[0] < (20 + 2 * LOOKS) * 50
    assert metrics.counts['suspect_windows_total{reason="orientation"}'] == len(marks)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        after = look(drift, windows(60, seed=5), first=80)
    assert drift.alarms == []
    assert max(slot for _, slot in after) < (80 + 2 * LOOKS + CALM) * 50
    assert "axes are as in training again" in caplog.text
    assert metrics.gauges['drift_alarms{cause="orientation"}'] == 0


def test_another_unit_says_what_to_write() -> None:
    drift, _ = drift_of()
    look(drift, windows(30) * np.float32(9.80665))
    assert [alarm.cause for alarm in drift.alarms] == ["unit"]
    assert "values look like m/s2 instead of g" in drift.alarms[0].message
    assert 'units = {ax = "m/s2", ay = "m/s2", az = "m/s2"}' in drift.alarms[0].message


def test_windows_that_the_intake_suspects_are_no_looks() -> None:
    drift, _ = drift_of("repair")
    x = swapped(windows(60))
    marks = {("w", window.slot): "stuck" for window in streamed(x)}
    assert set(look(drift, x, marks=marks).values()) == {"stuck"}
    assert drift.alarms == []


def test_a_channel_that_is_stuck_is_not_misnamed() -> None:
    drift, _ = drift_of("repair")
    x = windows(60)
    x[:, :, 0] = x[0, 0, 0]
    assert look(drift, x) == {}
    assert drift.alarms == []


def test_a_reason_of_the_intake_stands_beside_one_of_drift() -> None:
    drift, _ = drift_of("repair")
    look(drift, swapped(windows(30)))
    (window,) = streamed(swapped(windows(1)), first=30)
    marks = {("w", window.slot): "unit"}
    marks_after(drift, [window], marks)
    assert marks == {("w", window.slot): "orientation,unit"}


def test_a_sensor_that_is_not_as_it_began_has_changed_and_its_windows_are_not_marked() -> None:
    drift, metrics = drift_of("changed")
    before = windows(60)
    assert look(drift, before) == {}
    assert drift.alarms == []
    assert look(drift, windows(40, seed=7) * np.array([1, 1, 4], np.float32), first=60) == {}
    (alarm,) = drift.alarms
    assert (alarm.cause, alarm.detector) == ("changed", "changed")
    assert "of az is higher" in alarm.message
    assert metrics.counts['drift_alarms_total{cause="changed"}'] == 1


def test_a_reset_takes_the_sensor_as_it_is_now() -> None:
    drift, metrics = drift_of("changed")
    look(drift, windows(60))
    other = windows(60, seed=7) * np.array([1, 1, 4], np.float32)
    look(drift, other, first=60)
    assert drift.alarms
    assert drift.reset(["w"])
    assert not drift.reset(["w"])
    look(drift, other, first=120)
    assert drift.alarms == []
    assert metrics.gauges['drift_alarms{cause="changed"}'] == 0


def test_alarms_and_beginnings_are_kept_over_a_restart() -> None:
    drift, _ = drift_of()
    look(drift, windows(60))
    look(drift, swapped(windows(40)), first=60)
    again, metrics = drift_of()
    assert again.restore(drift.save())
    assert again.alarms == drift.alarms
    assert again.save() == drift.save()
    assert metrics.gauges['drift_alarms{cause="orientation"}'] == 1
    assert 'drift_alarms_total{cause="orientation"}' not in metrics.counts
    # The windows after it are marked at once, and the alarm is not counted again.
    marks = look(again, swapped(windows(40)), first=100)
    assert len(marks) == len(streamed(windows(40)))
    assert not metrics.counts['drift_alarms_total{cause="orientation"}']


def test_another_reference_begins_again() -> None:
    drift, _ = drift_of()
    look(drift, windows(60))
    other, _ = drift_of(known=described(dataclasses.replace(reference(), own=None)))
    assert not other.restore(drift.save())
    drift.use(described(dataclasses.replace(reference(), own=None)))
    assert drift.save() == other.save()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}"])
def test_bytes_that_are_something_else_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        drift_of()[0].restore(data)


@pytest.mark.parametrize(
    ("place", "value"),
    [("beginning", {"looks": 3, "sum": [1.0]}), ("alarms", [{"cause": "weather"}]), ("beginning", [1])],
)
def test_a_key_that_is_damaged_is_refused(place: str, value: object) -> None:
    import orjson  # noqa: PLC0415 - here alone

    drift, _ = drift_of()
    look(drift, windows(60))
    plain = orjson.loads(drift.save())
    plain["keys"]["w"][place] = value
    with pytest.raises(StoreError, match="cannot be read"):
        drift.restore(orjson.dumps(plain))


def test_the_number_of_keys_is_bounded_and_a_key_that_leaves_takes_its_alarm_along() -> None:
    drift, metrics = drift_of("repair", max_keys=2)
    look(drift, swapped(windows(30)), "first")
    assert metrics.gauges['drift_alarms{cause="orientation"}'] == 1
    look(drift, windows(2), "second")
    look(drift, windows(2), "third")
    assert drift.alarms == []
    assert metrics.gauges['drift_alarms{cause="orientation"}'] == 0


def test_keys_in_one_call_are_as_those_in_many() -> None:
    together, _ = drift_of()
    alone, _ = drift_of()
    streams = [streamed(swapped(windows(30)), "a"), streamed(windows(30, seed=4), "b")]
    mixed = [window for pair in zip(*streams, strict=True) for window in pair]
    at_once: Marks = {}
    marks_after(together, mixed, at_once)
    apart: Marks = {}
    for window in mixed:
        marks_after(alone, [window], apart)
    assert at_once == apart
    assert together.alarms == alone.alarms


def test_without_a_reference_or_a_detector_nothing_is_done() -> None:
    assert not drift_of(known=dataclasses.replace(described(), sensors=None))[0].active
    config = DriftConfig(detectors=())
    silent = Drift(config, 10, Metrics(), SimulatedClock())
    silent.use(described())
    assert not silent.active
    assert look(silent, swapped(windows(30))) == {}
