"""Keys that fail a check: said once, counted, and marked on the windows that it concerns."""

from __future__ import annotations

import dataclasses
import itertools
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SimulatedClock
from edge_runtime.manifest import Channel, InputContract, Manifest, Reference
from edge_runtime.metrics import Metrics
from edge_runtime.signal.intake.config import CHECKS, Check, IntakeConfig
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.intake.lines import LINES, LINES_S
from edge_runtime.signal.windowing.join import JoinedWindower
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Float32, Float64, Reading
from tests.edge_runtime.batches import marks_after
from tests.edge_runtime.manifests import manifest

RATE = 50.0
WATCH = dataclasses.replace(
    manifest(),
    input=InputContract(
        channels=tuple(Channel(name=f"a{axis}", unit="g") for axis in "xyz"), rate_hz=RATE, window=100, hop=50
    ),
)
Marks = dict[tuple[str, int], str]


class Device:
    """An intake and the windower behind it."""

    def __init__(self, *checks: Check, described: Manifest = WATCH, max_keys: int = 100) -> None:
        self.metrics, self.clock = Metrics(), SimulatedClock()
        self.intake = Intake(IntakeConfig(checks=checks or CHECKS), max_keys, self.metrics, self.clock)
        self.intake.use(described)
        self.windower: Windower | JoinedWindower = Windower(described.input)
        self.windows: list[tuple[str, int]] = []
        self.marks: Marks = {}

    def take(self, *readings: Reading) -> None:
        self.intake.read(readings)
        windows = self.windower.push(readings)
        self.windows += [(window.key, window.slot) for window in windows]
        self.marks |= marks_after(self.intake, windows)

    @property
    def counts(self) -> dict[str, float]:
        return {
            name: n for name, n in (self.metrics.counts | self.metrics.gauges).items() if name.startswith("suspect")
        }


REFERENCES = (Reference(channels=("ax", "ay", "az"), quantiles=(0.1, 0.3, 0.5, 0.8, 1, 1.1, 1.4, 1.6, 2), span_s=10.0),)
"""Of `motion`, whose axes may rest."""
MEASURED = dataclasses.replace(WATCH, schema_version=2, references=REFERENCES)


def motion(seconds: float, rate_hz: float = RATE, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(0.5, 0.3, (round(rate_hz * seconds), 3)).astype(np.float32)


def times(n: int, rate_hz: float = RATE, t: float = 1000.1) -> Float64:
    return t + np.arange(n) / rate_hz


def send(device: Device, key: str, stamps: Float64, values: Float32, size: int = 10) -> None:
    for at in range(0, len(stamps), size):
        device.take(Reading(key, stamps[at : at + size], values[at : at + size]))


def test_a_good_stream_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    with caplog.at_level(logging.INFO):
        send(device, "w", times(3000), motion(60))
    assert device.windows
    assert not device.marks
    assert not caplog.records
    assert not any(device.counts.values())


def test_a_wrong_rate_is_said_once_marked_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    values = motion(60)
    with caplog.at_level(logging.INFO):
        send(device, "w", times(500, 25), values[:500])
        assert device.counts['suspect_keys{reason="rate"}'] == 1
        send(device, "w", times(2000, RATE, 1020.1), values[500:2500])
    begun, ended = caplog.records
    assert begun.levelno == logging.WARNING
    assert begun.getMessage() == (
        "intake: samples came at another rate than the model's: key=w rate_hz=25 expected_hz=50: set the sensor to "
        "that rate; if a message has one stamp for several samples, state their rate as rate_hz under [source.codec] "
        "(its windows are hard until this ends)"
    )
    assert ended.getMessage() == "intake: samples came at the model's rate again: key=w"
    assert set(device.marks.values()) == {"rate"}
    marked = sorted(slot / RATE for _, slot in device.marks)
    assert marked[0] <= 1000.1 + 10
    assert 1020 <= marked[-1] <= 1020.1 + 7.6
    assert device.counts == {
        'suspect_keys{reason="rate"}': 0,
        'suspect_keys_total{reason="rate"}': 1,
        'suspect_windows_total{reason="rate"}': len(marked),
    }


def test_only_the_key_that_fails_is_marked() -> None:
    device = Device()
    good, bad = motion(40), motion(40, seed=1)
    bad[500:, 1] = 0.125
    for at in range(0, 2000, 10):
        for key, values in (("good", good), ("bad", bad)):
            device.take(Reading(key, times(2000)[at : at + 10], values[at : at + 10]))
    assert {key for key, _ in device.marks} == {"bad"}
    assert set(device.marks.values()) == {"stuck"}
    assert device.counts['suspect_keys_total{reason="stuck"}'] == 1


def test_a_window_says_all_that_its_key_fails() -> None:
    device = Device()
    values = motion(60)
    values[:, 2] = 0
    send(device, "w", times(1500, 25), values[:1500])
    assert device.marks[device.windows[-1]] == "rate,stuck"


def test_another_unit_is_said_with_its_cause_marked_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    device = Device(described=MEASURED)
    values = motion(60)
    values[:1500] *= 9.80665
    with caplog.at_level(logging.INFO):
        send(device, "w", times(3000), values)
    begun, ended = caplog.messages
    assert begun.startswith("intake: values were of another size than in training: key=w channels=ax,ay,az median=")
    assert 'm/s2 instead of g? Then write units = {ax = "m/s2", ay = "m/s2", az = "m/s2"} under' in begun
    assert ended == "intake: values were of the size of training again: key=w"
    assert set(device.marks.values()) == {"unit"}
    marked = sorted(slot / RATE - 1000.1 for _, slot in device.marks)
    assert marked[0] <= 10
    assert 25 <= marked[-1] <= 50
    assert device.counts['suspect_keys_total{reason="unit"}'] == 1
    assert device.counts['suspect_keys{reason="unit"}'] == 0


def test_a_second_sensor_in_another_unit_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    channels = tuple(Channel(name=f"{kind}{axis}", unit="g") for kind in "ab" for axis in "xyz")
    again = dataclasses.replace(REFERENCES[0], channels=("bx", "by", "bz"))
    two = dataclasses.replace(
        MEASURED, input=dataclasses.replace(WATCH.input, channels=channels), references=(*REFERENCES, again)
    )
    device = Device(described=two)
    values = np.hstack([motion(90), motion(90, seed=1)])
    values[:, :3] *= 9.8
    values[1500:, 3:] *= 9.8
    send(device, "w", times(4500), values)
    assert ["channels=ax,ay,az" in line for line in caplog.messages] == [True, False]
    assert ["channels=bx,by,bz" in line for line in caplog.messages] == [False, True]
    assert device.counts['suspect_keys_total{reason="unit"}'] == 1


@pytest.mark.parametrize("part", [1, 7, 400])
def test_sensors_in_messages_of_their_own_are_checked_once_they_are_joined(part: int) -> None:
    """Acceleration and rotation on topics of their own; one is in another unit."""
    channels = tuple(Channel(name=f"{kind}{axis}", unit="g") for kind in "ab" for axis in "xyz")
    contract = dataclasses.replace(WATCH.input, channels=channels)
    again = dataclasses.replace(REFERENCES[0], channels=("bx", "by", "bz"))
    device = Device(described=dataclasses.replace(MEASURED, input=contract, references=(*REFERENCES, again)))
    device.windower = JoinedWindower(contract)
    first, second = motion(60), motion(60, seed=1)
    second[:1000] *= 9.8
    stamps = times(3000)
    for at in range(0, 3000, part):
        some = slice(at, at + part)
        device.take(Reading("w", stamps[some], first[some], 0.0, (0, 1, 2)))
        device.take(Reading("w", stamps[some], second[some], 0.0, (3, 4, 5)))
    assert set(device.marks.values()) == {"unit"}
    ends = [slot / RATE - 1000.1 + 2 for _, slot in device.marks]
    assert min(ends) <= 13
    assert 20 <= max(ends) <= 45


def test_a_frozen_value_is_stuck_and_in_no_other_unit() -> None:
    """An axis that freezes at 8 g makes the norm eight times too large."""
    never_rests = (dataclasses.replace(REFERENCES[0], still_s=0.1),)
    device = Device(described=dataclasses.replace(MEASURED, references=never_rests))
    values = motion(90)
    values[1000:, 1] = 8
    send(device, "w", times(4500), values)
    assert set(device.marks.values()) == {"stuck"}


def test_other_references_are_another_model() -> None:
    device = Device(described=MEASURED)
    send(device, "w", times(1000), motion(20) * np.float32(9.8))
    assert device.counts['suspect_keys{reason="unit"}'] == 1
    device.intake.use(WATCH)
    assert device.counts['suspect_keys{reason="unit"}'] == 0


def test_checks_can_be_left_out() -> None:
    values = motion(60)
    values[:, 2] = 0
    for checks, reasons in ((("rate",), {"rate"}), (("stuck",), {"stuck"})):
        device = Device(*checks)  # type: ignore[arg-type]
        send(device, "w", times(1500, 25), values[:1500])
        assert set(device.marks.values()) == reasons
    metrics = Metrics()
    intake = Intake(IntakeConfig(checks=()), 10, metrics, SimulatedClock())
    intake.use(WATCH)
    readings = [Reading("w", times(1500, 25), values[:1500])]
    intake.read(readings)
    assert not marks_after(intake, Windower(WATCH.input).push(readings))


def test_a_rate_at_which_no_window_is_completed_is_said_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    for t in times(60, 5):
        device.take(Reading("w", float(t), motion(1)[:2]))
    assert not device.windows
    assert "rate_hz=10 expected_hz=50" in caplog.text


def test_a_flood_of_keys_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    device = Device(max_keys=1000)
    for i in range(50):
        send(device, f"w{i}", times(300, 25), motion(6), size=300)
    assert len(caplog.records) == LINES
    device.clock.advance(LINES_S)
    send(device, "last", times(300, 25), motion(6), size=300)
    assert caplog.messages[-1].endswith(f"; {50 - LINES} lines about other keys were left out")
    assert device.counts['suspect_keys{reason="rate"}'] == 51


def test_keys_that_leave_are_not_counted_any_more() -> None:
    device = Device(max_keys=10)
    for i in range(50):
        send(device, f"w{i}", times(300, 25), motion(6), size=300)
    assert device.counts['suspect_keys{reason="rate"}'] == 10
    device.intake.use(dataclasses.replace(WATCH, input=dataclasses.replace(WATCH.input, hop=25)))
    assert device.counts['suspect_keys{reason="rate"}'] == 0


def test_the_same_model_again_changes_nothing() -> None:
    device = Device()
    send(device, "w", times(300, 25), motion(6))
    device.intake.use(dataclasses.replace(WATCH, version=9))
    assert device.counts['suspect_keys{reason="rate"}'] == 1


def test_a_clock_that_goes_back_is_looked_at_again() -> None:
    device = Device("stuck")
    values = motion(40)
    values[1000:, 0] = 0.5
    send(device, "w", times(1000, t=5000.0), values[:1000])
    send(device, "w", times(1000, t=1000.0), values[1000:])
    assert set(device.marks.values()) == {"stuck"}


@pytest.mark.slow
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    rates=st.lists(st.sampled_from([25.0, 50.0, 80.0]), min_size=1, max_size=3),
    frozen=st.tuples(st.integers(0, 2), st.floats(0, 1), st.floats(0, 1)),
    scale=st.sampled_from([1.0, 9.8, 0.001]),
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=6),
    order=st.integers(0, 2**32 - 1),
)
def test_any_split_of_the_readings_marks_the_same_windows(
    seed: int, rates: list[float], frozen: tuple[int, float, float], scale: float, sizes: list[int], order: int
) -> None:
    """Two keys, their messages in any order: one by one, or an hour in one message."""
    streams: dict[str, tuple[Float64, Float32]] = {}
    for i, key in enumerate(("a", "b")):
        parts, t = [], 1000.1
        for rate_hz in rates[i:] + rates[:i]:
            parts.append(times(round(20 * rate_hz), rate_hz, t))
            t += 20
        stamps = np.concatenate(parts)
        values = np.random.default_rng([seed, i]).normal(0.5, 0.3, (len(stamps), 3)).astype(np.float32)
        values[: len(values) // (i + 1)] *= np.float32(scale)
        column, begin, end = frozen
        values[int(begin * len(stamps)) : int(end * len(stamps)) + 1, column] = 0.25
        streams[key] = stamps, values
    never_rests = tuple(dataclasses.replace(reference, still_s=0.1) for reference in REFERENCES)
    described = dataclasses.replace(MEASURED, references=never_rests)
    alone, split = Device(described=described), Device(described=described)
    for key, (stamps, values) in streams.items():
        for t, row in zip(stamps, values, strict=True):
            alone.take(Reading(key, float(t), row[None]))
    turns, left = itertools.cycle(sizes), dict.fromkeys(streams, 0)
    rng = np.random.default_rng(order)
    while left:
        key = str(rng.choice(sorted(left)))
        at, size = left[key], next(turns)
        stamps, values = streams[key]
        split.take(Reading(key, stamps[at : at + size], values[at : at + size]))
        left[key] += size
        if left[key] >= len(streams[key][0]):
            del left[key]
    assert split.marks == alone.marks
    assert {k: v for k, v in split.counts.items() if v} == {k: v for k, v in alone.counts.items() if v}


def test_values_at_the_end_of_the_range_are_said_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    device = Device("clipped")
    values = motion(120)
    values[500:1500, 1] = np.minimum(values[500:1500, 1], 0.6)
    with caplog.at_level(logging.INFO):
        send(device, "w", times(len(values)), values)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "a channel sticks to the end of its range: key=w channel=ay value=0.6: " in lines[0]
    assert "set the sensor to a larger range" in lines[0]
    assert lines[1] == "intake: no channel sticks to the end of its range now: key=w"
    assert set(device.marks.values()) == {"clipped"}
    assert 5 <= len(device.marks) <= 22, "its windows of 20 s, from the second one on"
    assert device.counts['suspect_keys_total{reason="clipped"}'] == 1
    assert device.counts['suspect_keys{reason="clipped"}'] == 0
