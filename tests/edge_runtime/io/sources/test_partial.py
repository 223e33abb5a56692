"""Recordings of several sensors, each with stamps of its own, give the windows that training cuts of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.io.sources.build import brings_parts
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.recorded import Table, cut_tables
from edge_runtime.signal.windowing.window import Window
from tests.edge_runtime.io.sources.player import Player

NAMES = ("ax", "ay", "temperature")
CONTRACT = InputContract(
    channels=(
        Channel(name="ax", unit="g"),
        Channel(name="ay", unit="g"),
        Channel(name="temperature", unit="Cel", resample="previous", max_age_s=3.0),
    ),
    rate_hz=10,
    window=20,
    hop=10,
)
START = 1_700_000_000.0


def tables(seed: int, seconds: float) -> list[Table]:
    """An accelerometer at 10 Hz, and a thermometer at about 1 Hz that began later."""
    rng = np.random.default_rng(seed)
    fast = START + np.arange(int(10 * seconds)) / 10
    slow = START + 0.5 + np.cumsum(rng.uniform(0.5, 1.5, int(seconds)))
    motion = (rng.integers(-1000, 1000, (len(fast), 2)) / 1000).astype(np.float32)
    warmth = (rng.integers(150, 300, (len(slow), 1)) / 10).astype(np.float32)
    return [Table((0, 1), fast, motion), Table((2,), slow, warmth)]


def rows(found: list[Table]) -> list[tuple[float, dict[str, float]]]:
    """All samples in the order of their stamps."""
    every = [
        (float(t), {NAMES[column]: float(x) for column, x in zip(columns, values, strict=True)})
        for columns, stamps, block in found
        for t, values in zip(stamps, block, strict=True)
    ]
    return sorted(every, key=lambda row: row[0])


def two_csv_files(folder: Path, found: list[Table]) -> list[Path]:
    paths = []
    for columns, stamps, values in found:
        names = [NAMES[column] for column in columns]
        paths.append(folder / f"{names[-1]}.csv")
        lines = [f"{t!r},{','.join(map(repr, row))}\n" for t, row in zip(stamps.tolist(), values.tolist(), strict=True)]
        paths[-1].write_text(f"t,{','.join(names)}\n" + "".join(lines))
    return paths


def two_npz_files(folder: Path, found: list[Table]) -> list[Path]:
    for columns, stamps, values in found:
        np.savez(folder / f"{columns[0]}.npz", x=values, t=stamps, channels=[NAMES[column] for column in columns])
    return [folder / "*.npz"]


def one_csv_file_with_empty_cells(folder: Path, found: list[Table]) -> list[Path]:
    lines = [f"{t!r},{','.join(str(row.get(name, '')) for name in NAMES)}\n" for t, row in rows(found)]
    (folder / "wide.csv").write_text(f"t,{','.join(NAMES)}\n" + "".join(lines))
    return [folder / "wide.csv"]


def json_lines(folder: Path, found: list[Table]) -> list[Path]:
    (folder / "rows.jsonl").write_bytes(b"\n".join(orjson.dumps({"t": t} | row) for t, row in rows(found)))
    return [folder / "rows.jsonl"]


FORMATS = [two_csv_files, two_npz_files, one_csv_file_with_empty_cells, json_lines]


def played(files: list[Path]) -> list[Window]:
    config = RecordingConfig(files=tuple(files), partial=True, key="k")
    assert brings_parts(config)
    windower = windower_of(CONTRACT, WindowConfig(parts=True))
    windows: list[Window] = []
    player = Player(config, contract=CONTRACT).play()
    assert not +player.metrics.dropped
    for reading in player.readings:
        windows += windower.push([reading])
    return windows + windower.flush()


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), seconds=st.floats(3.0, 40.0), write=st.sampled_from(FORMATS))
def test_tables_of_several_sensors_give_the_windows_of_training(
    seed: int, seconds: float, write: Callable[[Path, list[Table]], list[Path]]
) -> None:
    found = tables(seed, seconds)
    with tempfile.TemporaryDirectory() as folder:
        windows = played(write(Path(folder), found))
    expected = cut_tables(CONTRACT, "k", found)
    assert [window.id for window in windows] == [window.id for window in expected]
    for ours, theirs in zip(windows, expected, strict=True):
        np.testing.assert_array_equal(ours.samples, theirs.samples)


def test_one_sensor_s_file_may_have_the_labels(tmp_path: Path) -> None:
    paths = two_csv_files(tmp_path, tables(0, 10.0))
    rows = paths[1].read_text().split()
    paths[1].write_text("\n".join(f"{row},{'what' if not i else 'warm'}" for i, row in enumerate(rows)))
    found: list[str] = []
    for path in paths:
        layout = RecordingLayout(partial=True, label="what")
        list(
            iter_readings(path, CONTRACT, layout, on_labels=lambda _key, _t, labels: found.extend(filter(None, labels)))
        )
    assert found == ["warm"] * (len(rows) - 1)


def test_without_partial_a_missing_channel_is_an_error(tmp_path: Path) -> None:
    paths = two_csv_files(tmp_path, tables(0, 10.0))
    with pytest.raises(ConfigError, match=r"column 'temperature' \(channel temperature\) is missing"):
        Player(RecordingConfig(files=tuple(paths)), contract=CONTRACT).play()


def test_a_file_without_any_channel_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("t,x\n1,2\n")
    with pytest.raises(ConfigError, match="column 'ax'"):
        list(iter_readings(tmp_path / "other.csv", CONTRACT, RecordingLayout(partial=True)))
