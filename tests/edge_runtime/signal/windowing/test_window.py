"""Windows are a function of the set of samples: checked against a slow, literal reading of the rules."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Float32, Reading

RATE = 10.0
Samples = list[tuple[float, float]]
Cut = list[tuple[int, float, tuple[float, ...]]]


def contract(**changes: object) -> InputContract:
    values: dict[str, object] = {
        "channels": (Channel(name="a", unit="1"),),
        "rate_hz": RATE,
        "window": 8,
        "hop": 4,
        "snap": 0.25,
        "max_gap_s": 0.5,
    }
    return InputContract(**(values | changes))  # type: ignore[arg-type]


def by_the_rules(samples: Samples, c: InputContract) -> Cut:
    """Rules 1 to 5 of the module's docstring, one sample at a time."""
    period, snap = 1 / c.rate_hz, c.snap / c.rate_hz
    ordered = sorted(dict(reversed(samples)).items())
    segments: list[Samples] = []
    for sample in ordered:
        if not segments or sample[0] - segments[-1][-1][0] > c.max_gap:
            segments.append([])
        segments[-1].append(sample)
    cuts: Cut = []
    for segment in segments:
        anchor = segment[0][0]
        grid: list[float] = []
        for k in itertools.count():
            value = value_at(segment, anchor + k * period, period, snap, c.resample)
            if value is None:
                break
            grid.append(value)
        base = round(anchor * c.rate_hz)
        for k in range(len(grid) - c.window + 1):
            if (base + k) % c.hop == 0:
                cuts.append((base + k, round(anchor + k * period, 9), tuple(grid[k : k + c.window])))
    return cuts


def value_at(segment: Samples, point: float, period: float, snap: float, resample: str) -> float | None:
    before = [s for s in segment if s[0] < point - snap]
    after = [s for s in segment if s[0] >= point - snap]
    if resample == "mean":
        if segment[-1][0] < point - period / 2:
            return None
        inside = [v for t, v in segment if point - period / 2 <= t < point + period / 2]
        if inside:
            return sum(inside) / len(inside)
        before = [s for s in segment if s[0] < point - period / 2]
        after = [s for s in segment if s[0] >= point - period / 2]
    elif after and after[0][0] <= point + snap:
        return after[0][1]
    if not after:
        return None
    (t0, v0), (t1, v1) = before[-1], after[0]
    return v0 if resample == "previous" else v0 + (point - t0) / (t1 - t0) * (v1 - v0)


def windows_of(windower: Windower, readings: list[Reading]) -> list[Window]:
    found = [window for reading in readings for window in windower.push([reading])]
    return found + windower.flush()


def as_cut(windows: list[Window]) -> Cut:
    return [(w.slot, round(w.start, 9), tuple(w.samples[:, 0].tolist())) for w in windows]


def column(values: list[float]) -> Float32:
    return np.array(values, np.float32)[:, np.newaxis]


def assert_same(found: Cut, expected: Cut) -> None:
    assert [(slot, start) for slot, start, _ in found] == [(slot, start) for slot, start, _ in expected]
    for (_, _, a), (_, _, b) in zip(found, expected, strict=True):
        assert a == pytest.approx(b, abs=1e-3)


# Steps in thousandths of the period, away from the exact edges of the rules where rounding alone decides.
steps = st.lists(
    st.one_of(st.integers(901, 1099), st.integers(301, 449), st.integers(1501, 2990), st.integers(6001, 9000)),
    min_size=1,
    max_size=80,
)


def stamps(deltas: list[int], start: float) -> list[float]:
    return [start + total * 1e-3 / RATE for total in itertools.accumulate(deltas, initial=0)]


def not_on_an_edge(times: list[float], c: InputContract) -> bool:
    """No sample within a millionth of a place where `<=` would turn on the last bit of a float."""
    anchor = times[0]
    for i, t in enumerate(times):
        if i and t - times[i - 1] > c.max_gap:
            anchor = t
        phase = (t - anchor) * c.rate_hz % 1.0
        if any(abs(phase - edge) < 1e-6 for edge in (c.snap, 1 - c.snap, 0.5)):
            return False
    return True


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    deltas=steps,
    start=st.sampled_from([0.0, 0.037, 1234.56]),
    resample=st.sampled_from(["linear", "previous", "mean"]),
    cuts=st.lists(st.integers(0, 80), max_size=10),
)
def test_windows_follow_the_rules_however_samples_are_split_into_messages(
    deltas: list[int], start: float, resample: str, cuts: list[int]
) -> None:
    c = contract(resample=resample)
    times = stamps(deltas, start)
    if not not_on_an_edge(times, c):
        return
    values = [float(i % 17) for i in range(len(times))]
    bounds = sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})
    readings = [Reading("k", np.array(times[a:b]), column(values[a:b])) for a, b in itertools.pairwise(bounds) if a < b]
    assert_same(as_cut(windows_of(Windower(c), readings)), by_the_rules(list(zip(times, values, strict=True)), c))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(deltas=steps, seed=st.integers(0, 2**32 - 1), lateness=st.sampled_from([0.35, 1.0]))
def test_windows_do_not_depend_on_arrival_order_within_the_lateness_bound(
    deltas: list[int], seed: int, lateness: float
) -> None:
    c = contract()
    times = stamps(deltas, 0.0)
    if not not_on_an_edge(times, c):
        return
    values = [float(i % 17) for i in range(len(times))]
    rng = random.Random(seed)
    # Each sample is delayed by less than the bound, so it arrives before any sample that would make it late.
    arrival = sorted(range(len(times)), key=lambda i: times[i] + rng.uniform(0, lateness * 0.99))
    repeated = [i for i in arrival for _ in range(rng.choice([1, 1, 1, 2]))]
    metrics = Metrics()
    windower = Windower(c, WindowConfig(lateness_s=lateness), metrics)
    shuffled = windows_of(windower, [Reading("k", times[i], column([values[i]])) for i in repeated])
    straight = windows_of(Windower(c), [Reading("k", np.array(times), column(values))])
    assert as_cut(shuffled) == as_cut(straight)
    assert metrics.dropped["late"] == 0


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=20), offset=st.floats(-0.2, 0.2))
def test_the_fast_path_gives_what_the_slow_path_gives(sizes: list[int], offset: float) -> None:
    """Blocks with one stamp at the model's rate, each off the grid by less than the snap."""
    c = contract()
    fast, slow = Windower(c), Windower(c)
    at, rng = 0, random.Random(repr(sizes))
    readings_fast, readings_slow = [], []
    for size in sizes:
        t = 100.0 + at / RATE + (rng.uniform(-1, 1) * abs(offset)) / RATE
        values = column([float(v % 23) for v in range(at, at + size)])
        readings_fast.append(Reading("k", t, values))
        readings_slow.append(Reading("k", t + np.arange(size) / RATE, values))
        at += size
    got = windows_of(fast, readings_fast)
    assert as_cut(got) == as_cut(windows_of(slow, readings_slow))
    for window in got:
        assert (window.context[-c.window :] == window.samples).all()


@pytest.mark.parametrize("size", [1, 7, 8, 21, 60])
@pytest.mark.parametrize("period_s", [0.0, 1 / RATE])
def test_a_keys_first_reading_by_rate_leaves_what_stamps_of_each_sample_leave(size: int, period_s: float) -> None:
    c = contract()
    values = column([float(v) for v in range(size)])
    by_rate, by_stamps = Windower(c), Windower(c)
    at_once = by_rate.push([Reading("k", 123.4, values, period_s)])
    assert as_cut(at_once) == as_cut(by_stamps.push([Reading("k", 123.4 + np.arange(size) / RATE, values)]))
    ((one,), (other,)) = by_rate.state(), by_stamps.state()
    assert one.newest == pytest.approx(other.newest, abs=1e-9)
    assert one.segment is not None
    assert other.segment is not None
    assert one.segment[:4] == other.segment[:4]
    np.testing.assert_array_equal(one.segment.rows, other.segment.rows)


def test_window_views_stay_as_they_were_while_the_stream_goes_on() -> None:
    c = contract(context=16)
    windower = Windower(c)
    kept: list[tuple[Window, Float32]] = []
    for i in range(200):
        for window in windower.push([Reading("k", i * 0.3, column([3.0 * i, 3.0 * i + 1, 3.0 * i + 2]))]):
            kept.append((window, window.context.copy()))
    assert len(kept) == (600 - 8) // 4 + 1
    assert all((window.context == copy).all() for window, copy in kept)
    assert [len(w.context) for w, _ in kept[:4]] == [8, 12, 16, 16]


def test_late_and_repeated_samples_are_counted_apart() -> None:
    metrics = Metrics()
    windower = Windower(contract(), WindowConfig(), metrics)
    first = Reading("k", 0.0, column([0, 1, 2, 3]))
    windower.push([first])
    windower.push([first])
    assert metrics.dropped == {"duplicate": 4}
    windower.push([Reading("k", 0.1, column([9.0]))])
    assert metrics.dropped == {"duplicate": 4, "late": 1}


@pytest.mark.parametrize(("lateness_s", "parts"), [(0.0, False), (0.0, True), (0.5, False)])
def test_messages_that_repeat_more_than_the_grid_remembers_are_no_late_samples(lateness_s: float, parts: bool) -> None:
    metrics, rng = Metrics(), np.random.default_rng(1)
    windower = windower_of(contract(), WindowConfig(lateness_s=lateness_s, parts=parts), metrics)
    times = 1000 + np.arange(200) * 0.1 + rng.uniform(-0.03, 0.03, 200)
    values, columns = rng.normal(size=(200, 1)).astype(np.float32), (0,) if parts else None
    for end in range(100, 201, 5):
        part = slice(end - 100, end)
        windower.push([Reading("k", times[part], values[part], 0.0, columns)])
    assert metrics.dropped == {"duplicate": 20 * 95}


FAR = 5e12
SPANS = [
    [([2, FAR], None), ([1, FAR - 1e7], None), ([FAR - 1e7 + 1, FAR, FAR + 1], None)],
    [([2, FAR, FAR + 1], (1,)), ([1], (1,)), ([0, FAR], (0,)), ([2, FAR - 1e7, FAR + 1], (1,))],
]


@pytest.mark.parametrize("messages", SPANS, ids=["together", "parts"])
def test_a_block_that_spans_ages_costs_no_more_than_its_samples(
    messages: list[tuple[list[float], tuple[int, ...] | None]],
) -> None:
    """Mutation: whether it was delivered again is compared on all grid points between its stamps, terabytes of them."""
    parts = messages[0][1] is not None
    channels = tuple(Channel(name=name, unit="1") for name in ("ab" if parts else "a"))
    config = WindowConfig(lateness_s=0.0, max_jump_s=60.0, parts=parts)
    windower, rng = windower_of(contract(channels=channels), config, Metrics()), np.random.default_rng(0)
    for received, (times, columns) in enumerate(messages):
        values = rng.normal(size=(len(times), 1)).astype(np.float32)
        windower.push([Reading("k", np.array(times, float), values, 0.0, columns)], float(received))


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_a_lone_absurd_stamp_is_dropped_and_the_stream_goes_on(times: int, parts: bool) -> None:
    """Mutation: a message that is delivered again confirms its own stamp, and the key's clock has jumped."""
    metrics = Metrics()
    windower = windower_of(contract(), WindowConfig(parts=parts), metrics)
    windows = []
    for i in range(10):
        t = 4e9 if i == 4 else 1000.0 + i * 0.4
        for _ in range(times if i == 4 else 1):
            windows += windower.push([Reading("k", t, column([0, 1, 2, 3]), 0.0, (0,) if parts else None)])
    assert metrics.dropped == Counter({"stamp_jump": 4, "duplicate": 4 * (times - 1)})
    assert metrics.counts["clock_jumps_total"] == 0
    assert [w.slot for w in windows][-1] == 10_000 + 32


@pytest.mark.parametrize("jump", [-3600.0, 86_400.0, -1000.0])
def test_a_clock_that_really_jumped_starts_the_key_anew(jump: float) -> None:
    metrics = Metrics()
    windower = Windower(contract(), WindowConfig(), metrics)
    windows = []
    for i in range(20):
        t = 5000.0 + i * 0.4 + (jump if i >= 10 else 0.0)
        windows += windower.push([Reading("k", t, column([0, 1, 2, 3]))])
    assert metrics.counts["clock_jumps_total"] == 1
    assert metrics.dropped == {}
    after = [w for w in windows if (w.start - 5000.0) * math.copysign(1, jump) > 500]
    assert len(after) == 9


def test_the_longest_silent_key_leaves_when_there_are_too_many() -> None:
    metrics = Metrics()
    windower = Windower(contract(), WindowConfig(max_keys=2), metrics)
    block = column([0, 1, 2, 3])
    windower.push([Reading("a", 0.0, block), Reading("b", 0.0, block), Reading("a", 0.4, block)])
    windower.push([Reading("c", 0.0, block)])
    assert len(windower) == 2
    assert metrics.counts["keys_evicted_total"] == 1
    assert [w.key for w in windower.push([Reading("a", 0.8, block)])] == ["a"]


def test_a_faster_sensor_is_brought_to_the_models_rate() -> None:
    c = contract(resample="mean")
    t = np.arange(400) / 100.0
    windows = cut_recording(c, "k", t, column(np.sin(2 * np.pi * 0.5 * t).tolist()))
    points = windows[3].start + np.arange(8) / RATE
    # A sample on the edge between two points may fall to either: half a sample, 5 ms, of the fastest slope.
    assert windows[3].samples[:, 0] == pytest.approx(np.sin(2 * np.pi * 0.5 * points), abs=0.005 * np.pi + 0.005)


def test_a_line_between_the_ends_of_float32_stays_finite() -> None:
    windows = cut_recording(contract(), "k", np.arange(20, dtype=np.float64) * 0.16, column([3e38, -3e38] * 10))
    assert windows
    assert all(np.isfinite(window.samples).all() for window in windows)


def test_keys_do_not_disturb_each_other() -> None:
    c = contract()
    both = Windower(c)
    mixed: list[Window] = []
    for i in range(30):
        mixed += both.push(
            [Reading("a", i * 0.3, column([1.0 * i, 2.0, 3.0])), Reading("b", 7.0 + i * 0.2, column([1.0 * i, 5.0]))]
        )
    alone = windows_of(Windower(c), [Reading("b", 7.0 + i * 0.2, column([1.0 * i, 5.0])) for i in range(30)])
    assert as_cut([w for w in mixed if w.key == "b"]) == as_cut(alone)
