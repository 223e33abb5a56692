"""Real sensors in messages of their own: the joined file's windows, and those of training's own cut."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import JoinedWindower
from edge_runtime.signal.windowing.recorded import Table, cut_recording, cut_tables
from edge_runtime.types import Float32, Float64, Reading
from tests.edge_runtime.signal.windowing.joined import contract, played, same
from tests.long_tier import some

SENSORS = ("Temperature", "Humidity", "Light", "CO2", "HumidityRatio")


def room(shared: Path, file: str = "datatraining.csv") -> tuple[Float64, Float32]:
    """One sample a minute, a second off now and then, of five sensors."""
    with (shared / "data/occupancy-room" / file).open() as lines:
        rows = list(csv.DictReader(lines, ["number", "date", *SENSORS, "occupancy"]))[1:]
    stamps = [datetime.fromisoformat(row["date"]).replace(tzinfo=timezone.utc).timestamp() for row in rows]
    values = [[float(row[name]) for name in SENSORS] for row in rows]
    return np.array(stamps), np.array(values, np.float32)


def room_contract(**changes: Channel) -> InputContract:
    channels = tuple(changes.get(name, Channel(name=name, unit="1")) for name in SENSORS)
    return InputContract(channels=channels, rate_hz=1 / 60, window=10, hop=5)


def messages(
    tables: Sequence[Table], rng: random.Random, late_s: float, most: int = 1, silence_s: float = 1.0
) -> list[Reading]:
    """Each table in messages of up to `most` stamps, all of them late by up to `late_s`."""
    arriving: list[tuple[float, int, Reading]] = []
    for columns, t, values in tables:
        # Cut where the stamp changes, since of equal ones the first to arrive counts, and at each silence.
        places = np.flatnonzero(np.diff(t) > 0) + 1
        silences = set((np.flatnonzero(np.diff(t) > 1.0) + 1).tolist())
        begin = 0
        for end in [*places.tolist(), len(t)]:
            if end - begin >= rng.randint(1, most) or end in silences or end == len(t):
                part = Reading("key", t[begin:end], values[begin:end], 0.0, columns)
                arriving.append((t[end - 1] + rng.uniform(0, late_s), len(arriving), part))
                begin = end
    return [part for *_, part in sorted(arriving)]


@pytest.mark.slow
@pytest.mark.parametrize("file", some(["datatraining.csv", "datatest.csv"], ["datatest.csv"]))
def test_five_topics_of_a_room_give_the_joined_files_windows(shared: Path, file: str) -> None:
    """Shuffled and up to 50 s late; and with samples that are gone, of the room and of single sensors."""
    spec, rng, (t, values) = room_contract(), random.Random(file), room(shared, file)
    tables = [Table((column,), t, values[:, [column]]) for column in range(len(SENSORS))]
    whole = cut_recording(spec, "key", t, values)
    assert len(whole) == {"datatraining.csv": 1626, "datatest.csv": 531}[file]
    metrics = Metrics()
    same(played(JoinedWindower(spec, WindowConfig(lateness_s=50.0), metrics), messages(tables, rng, 49.0)), whole)
    assert not metrics.dropped

    kept = np.ones(len(t), np.bool_)
    kept[500:520] = kept[900:903] = False  # a silence that ends the segment, and one that does not
    tables = [Table(columns, t[kept], some[kept]) for columns, t, some in tables]
    with_gaps = cut_recording(spec, "key", t[kept], values[kept])
    same(played(JoinedWindower(spec, WindowConfig(lateness_s=50.0)), messages(tables, rng, 49.0)), with_gaps)

    silent = np.r_[np.arange(200), np.arange(600, len(tables[3].t))]  # one sensor, for 400 minutes
    tables[3] = Table((3,), tables[3].t[silent], tables[3].values[silent])
    found = played(JoinedWindower(spec, WindowConfig(lateness_s=50.0), metrics), messages(tables, rng, 49.0))
    known = {window.id: window for window in with_gaps}
    same(found, [known[window.id] for window in found])
    assert metrics.dropped["incomplete"] == len(with_gaps) - len(found) > 70


@pytest.mark.slow
def test_a_slower_sensor_of_a_room_gives_the_windows_of_trainings_own_cut(shared: Path) -> None:
    """CO2 every fifth minute: on the line between its samples, which no other sensor has to wait for in training."""
    t, values = room(shared)
    spec = room_contract(CO2=Channel(name="CO2", unit="[ppm]", max_age_s=700.0))
    tables = [Table((column,), t, values[:, [column]]) for column in range(len(SENSORS))]
    tables[3] = Table((3,), t[::5], values[::5, [3]])
    expected = cut_tables(spec, "key", tables)
    assert len(expected) > 1620
    config, metrics = WindowConfig(lateness_s=50.0, wait_s=400.0, max_jump_s=500.0), Metrics()
    same(played(JoinedWindower(spec, config, metrics), messages(tables, random.Random(5), 49.0)), expected)
    assert metrics.dropped.keys() <= {"incomplete"}
    points = np.concatenate([window.start + 60.0 * np.arange(10) for window in expected])
    on_lines = np.interp(points, t[::5], values[::5, 3])
    found = np.concatenate([window.samples[:, 3] for window in expected])
    assert np.abs(found - on_lines).max() < 0.25 * 60 * np.abs(np.diff(values[::5, 3]) / np.diff(t[::5])).max() + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("resample", "rate_hz"), [("mean", 50.0), ("linear", 100.0), ("previous", 50.0)])
def test_phone_and_watch_as_streams_of_their_own_give_the_windows_of_trainings_own_cut(
    shared: Path, resample: str, rate_hz: float
) -> None:
    """Two clocks that tick at rates of their own; the phone's samples come in bursts with equal stamps."""
    channels = tuple(Channel(name=f"{device}_{axis}", unit="1") for device in ("sp", "sw") for axis in range(6))
    spec = contract(
        channels=channels, rate_hz=rate_hz, window=64, hop=32, resample=resample, max_gap_s=0.5, context=128
    )
    with np.load(shared / "data/har-phone-watch/s01.npz") as stored:
        tables = [
            Table(tuple(range(first, first + 6)), stored[f"{device}_t_ms"] / 1e3, stored[f"{device}_x"])
            for device, first in (("sp", 0), ("sw", 6))
        ]
    expected = cut_tables(spec, "key", tables)
    assert len(expected) > 50
    metrics = Metrics()
    shuffled = messages(tables, random.Random(1), 1.9, most=30)
    same(played(JoinedWindower(spec, WindowConfig(lateness_s=2.5), metrics), shuffled), expected)
    assert metrics.dropped.keys() <= {"incomplete", "duplicate", "same_stamp"}
    single = [
        one._replace(values=one.values[:, [place]].copy(), channels=(column,))
        for one in messages(tables, random.Random(2), 0.0, most=30)
        for place, column in enumerate(one.channels or ())
    ]
    same(played(JoinedWindower(spec, WindowConfig(lateness_s=1.0)), single), expected)
