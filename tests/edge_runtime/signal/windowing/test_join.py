"""Joined windows: the whole stream's own where channels come apart, and rules for sensors with rates of their own."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import JoinedWindower
from edge_runtime.signal.windowing.recorded import Table, cut_tables
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.store.durable.reading_log_records import decode_snapshot, encode_snapshot
from edge_runtime.types import Float32, Reading
from tests.edge_runtime.signal.windowing.joined import RATE, contract, played, same, stream, torn

# -- the whole stream's own windows ------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    resample=st.sampled_from(["linear", "mean", "previous"]),
    context=st.sampled_from([0, 12]),
    lateness=st.sampled_from([0.0, 0.7]),
    jumps=st.booleans(),
)
def test_readings_with_all_channels_give_the_very_windows_and_counts_of_the_other_windower(
    seed: int, resample: str, context: int, lateness: float, jumps: bool
) -> None:
    """Late and repeated samples and clocks that jump included."""
    spec, config = contract(resample=resample, context=context), WindowConfig(lateness_s=lateness)
    readings = stream(seed, jumps=jumps)
    for i in range(0, len(readings) - 1, 7):  # neighbours change places, and one comes again
        readings[i], readings[i + 1] = readings[i + 1], readings[i]
    readings += readings[-1:]
    whole, joined = Metrics(), Metrics()
    expected = played(Windower(spec, config, whole), readings)
    same(played(JoinedWindower(spec, config, joined), readings), expected)
    assert joined.dropped == whole.dropped
    assert joined.counts == whole.counts


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    resample=st.sampled_from(["linear", "mean", "previous"]),
    context=st.sampled_from([0, 12]),
    delay=st.sampled_from([0.0, 2.0]),
)
def test_channels_in_messages_of_their_own_give_the_whole_streams_windows(
    seed: int, resample: str, context: int, delay: float
) -> None:
    """In any grouping that changes as it goes, shuffled and late within the bounds."""
    spec, rng, metrics = contract(resample=resample, context=context), random.Random(seed), Metrics()
    readings = stream(seed)
    found = played(JoinedWindower(spec, WindowConfig(lateness_s=delay + 1), metrics), torn(readings, rng, delay))
    same(found, played(Windower(spec), readings))
    assert not metrics.dropped


def test_one_value_a_message_is_ready_with_the_last_channel_of_the_last_sample() -> None:
    """Nothing waits that need not: with three topics, the window leaves with the third one's value."""
    spec = contract()
    windower = JoinedWindower(spec)
    for i in range(8):
        for column in (2, 0, 1):
            value = np.full((1, 1), i, np.float32)
            windows = windower.push([Reading("k", 1000.2 + i / RATE, value, 0.0, (column,))], received=float(i))
            assert len(windows) == (i == 7 and column == 1)
    assert windows[0].received == 7.0


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000), cuts=st.lists(st.integers(0, 120), max_size=3), lateness=st.sampled_from([0.0, 1.0])
)
def test_a_restored_windower_goes_on_as_if_nothing_had_happened(seed: int, cuts: list[int], lateness: float) -> None:
    """Mutation that this finds: any field left out of the state, or of the snapshot's bytes."""
    spec, config = RULES[seed % len(RULES)], WindowConfig(lateness_s=lateness, wait_s=2.0)
    readings = torn(stream(seed, 30, jumps=True), random.Random(seed), 1.5)
    whole = JoinedWindower(spec, config)
    found: list[Window] = []
    windower = JoinedWindower(spec, config)
    for begin, end in itertools.pairwise([0, *sorted(min(cut, len(readings)) for cut in cuts), len(readings)]):
        found += windower.push(readings[begin:end])
        _, states = decode_snapshot(encode_snapshot([], windower.state()))
        windower = JoinedWindower(spec, config)
        windower.restore(states)
    same(found + windower.flush(), whole.push(readings) + whole.flush())


# -- rules 6 to 9, read literally --------------------------------------------------------------------------------------

RULES = (
    contract(channels=(Channel(name="a", unit="1"), Channel(name="b", unit="1", resample="previous", max_age_s=0.93),
                       Channel(name="c", unit="1", resample="mean"))),
    contract(channels=(Channel(name="a", unit="1", max_age_s=1.4), Channel(name="b", unit="1", missing="last"),
                       Channel(name="c", unit="1", resample="previous", max_age_s=60.03)), context=12),
    contract(channels=(Channel(name="a", unit="1"), Channel(name="b", unit="1", missing="last"),
                       Channel(name="c", unit="1", mask_of="b"))),
)  # fmt: skip

Samples = list[tuple[float, float]]


def value_at(
    samples: Samples, point: float, spec: InputContract, column: int, segment: tuple[float, float]
) -> tuple[float | None, bool]:
    """Rules 8 and 9 for one channel and one grid point: the value, and whether it is missing; None for no value."""
    channel = spec.channels[column]
    rule, age = channel.resample or spec.resample, channel.max_age_s or spec.max_gap
    snap, half = spec.snap / RATE, 0.5 / RATE
    reach = half if rule == "mean" else snap
    near = [v for t, v in samples if point - reach <= t < point + reach]
    before = [s for s in samples if s[0] < point - reach]
    after = [s for s in samples if s[0] >= point + reach and s[0] <= segment[1]]
    last = before[-1][1] if before else None
    if near:
        return (sum(near) / len(near) if rule == "mean" else near[0]), False
    if rule == "previous":
        missing = not before or point - before[-1][0] > age
        return last, missing
    if before and after and before[-1][0] >= segment[0] and after[0][0] - before[-1][0] <= age:
        (t0, v0), (t1, v1) = before[-1], after[0]
        return v0 + (point - t0) / (t1 - t0) * (v1 - v0), False
    return last, True


def by_the_rules(streams: dict[int, Samples], spec: InputContract) -> dict[int, list[list[float]]]:
    """Windows by slot, one sample at a time."""
    union = sorted({t for samples in streams.values() for t, _ in samples})
    segments: list[list[float]] = []
    for t in union:
        if not segments or t - segments[-1][-1] > spec.max_gap:
            segments.append([])
        segments[-1].append(t)
    found: dict[int, list[list[float]]] = {}
    for segment in segments:
        anchor, end, base = segment[0], segment[-1], round(segment[0] * RATE)
        rows: list[list[float]] = []
        for k in range(math.floor((end + spec.snap / RATE - anchor) * RATE + 1e-9) + 1):
            rows.append(row_at(streams, anchor + k / RATE, spec, (anchor, end)))
        for k in range(len(rows) - spec.window + 1):
            window = rows[k : k + spec.window]
            if (base + k) % spec.hop == 0 and not any(math.isnan(value) for row in window for value in row):
                found[base + k] = window
    return found


def row_at(streams: dict[int, Samples], point: float, spec: InputContract, segment: tuple[float, float]) -> list[float]:
    row = [math.nan] * len(spec.channels)
    masks = {spec.channels[i].mask_of: i for i in range(len(spec.channels)) if spec.channels[i].mask_of}
    for column, samples in streams.items():
        channel = spec.channels[column]
        value, missing = value_at(samples, point, spec, column, segment)
        if channel.name in masks:
            row[masks[channel.name]] = float(not missing)
            value = 0.0 if value is None else value
        if value is not None and (not missing or channel.missing == "last"):
            row[column] = value
    return row


def on_an_edge(streams: dict[int, Samples], spec: InputContract) -> bool:
    """A sample where `<=` would turn on the last bit of a float."""
    union = sorted({t for samples in streams.values() for t, _ in samples})
    anchor = union[0]
    for i, t in enumerate(union):
        if i and t - union[i - 1] > spec.max_gap:
            anchor = t
        phase = (t - anchor) * RATE % 1.0
        if any(abs(phase - edge) < 1e-6 for edge in (spec.snap, 1 - spec.snap, 0.5)):
            return True
        for channel in spec.channels:
            age = channel.max_age_s or spec.max_gap
            if channel.resample == "previous" and abs((phase + age * RATE + 0.5) % 1.0 - 0.5) < 1e-6:
                return True
            if any(abs(t - other - age) < 1e-6 for other in union):
                return True
    return False


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    spec=st.sampled_from(RULES),
    rates=st.lists(st.sampled_from([0.25, 0.5, 1.0, 3.0]), min_size=3, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_sensors_at_rates_of_their_own_follow_the_rules(spec: InputContract, rates: list[float], seed: int) -> None:
    """With sensors that are silent now and then, and messages in any order within the bounds."""
    rng = random.Random(seed)
    columns = [i for i in range(3) if not spec.channels[i].mask_of]
    streams: dict[int, Samples] = {}
    for column in columns:
        t, samples = 1000.0 + rng.uniform(0, 1), []
        for _ in range(int(60 * rates[column])):
            samples.append((t, float(rng.randint(-9, 9))))
            t += rng.uniform(0.8, 1.2) / RATE / rates[column] + (rng.uniform(0.5, 4) if rng.random() < 0.04 else 0)
        streams[column] = samples
    if on_an_edge(streams, spec):
        return
    arriving = [(t + rng.uniform(0, 1), t, v, column) for column in columns for t, v in streams[column]]
    readings = [Reading("k", t, np.array([[v]], np.float32), 0.0, (column,)) for _, t, v, column in sorted(arriving)]
    metrics = Metrics()
    found = played(JoinedWindower(spec, WindowConfig(lateness_s=1.5), metrics), readings)
    expected = by_the_rules(streams, spec)
    assert [window.slot for window in found] == sorted(expected)
    for window in found:
        np.testing.assert_allclose(window.samples, expected[window.slot], atol=1e-3)
        assert np.isfinite(window.context).all()
    assert set(metrics.dropped) <= {"incomplete"}
    tables = [Table((c,), np.array([t for t, _ in streams[c]]), column_of(streams[c])) for c in columns]
    same(cut_tables(spec, "k", tables), found)


def column_of(samples: Samples) -> Float32:
    return np.array([[value] for _, value in samples], np.float32)
