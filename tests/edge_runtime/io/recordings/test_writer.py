"""Recordings are written so that what reads them elsewhere reads the same samples."""

from __future__ import annotations

import csv
import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.reader import columns_of, iter_readings
from edge_runtime.io.recordings.writer import RecordingWriter
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.types import Float32

CHANNELS = (Channel(name="ax", unit="m/s2"), Channel(name="level", unit="1"))
CONTRACT = InputContract(channels=CHANNELS, rate_hz=50, window=10, hop=5)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)


FORMULAS = st.text("=+-@'1a", min_size=1, max_size=6)


@pytest.mark.slow
@given(
    key=NAMES | FORMULAS,
    label=FORMULAS,
    values=arrays.arrays(
        np.float32, st.tuples(st.integers(1, 20), st.just(2)), elements=st.floats(-(2.0**100), 2.0**100, width=32)
    ),
    start=st.floats(0, 4e9),
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, key: str, label: str, values: Float32, start: float
) -> None:
    """Mutations that this finds: digits cut off, a key with a comma or a quote, columns out of order."""
    path = tmp_path_factory.mktemp("recording") / "walk.csv"
    t = start + np.arange(len(values), dtype=np.float64) * 0.02
    writer = RecordingWriter(path, CHANNELS, labelled=True)
    writer.write(key, t, values, label=label)
    writer.close()
    assert set(columns_of(path)["label"]) == {label}
    readings = list(iter_readings(path, CONTRACT))
    assert {reading.key for reading in readings} == {key}
    assert np.array_equal(np.concatenate([reading.values for reading in readings]), values)
    assert np.concatenate([np.atleast_1d(reading.t) for reading in readings]) == pytest.approx(t, abs=1e-6)


@pytest.mark.parametrize(
    "cell", ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1+1", "\r=1", "\uff1d1", "'=1"]
)
def test_no_cell_is_a_formula_for_a_spreadsheet(tmp_path: Path, cell: str) -> None:
    writer = RecordingWriter(tmp_path / "a.csv", (Channel(name=cell.strip(), unit="1"),), labelled=True)
    writer.write(cell, np.array([1.0]), np.array([[-2.5]], np.float32), label="-1")
    writer.close()
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        header, row = csv.reader(file, strict=True)
    assert (header[-1], row[1], row[2]) == (f"'{cell.strip()}", *[f"'{cell}"] * 2)
    assert row[3:] == ["-1", "-2.5"], "numbers stay numbers"
    assert cell.strip() in columns_of(tmp_path / "a.csv")


def test_units_persons_and_labels_stand_in_the_header_and_rows(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a.csv", CHANNELS, labelled=True)
    writer.write("watch-1", np.array([1.5]), np.array([[0.1, 2]], np.float32), person="anna", label="a, b")
    writer.close()
    assert (tmp_path / "a.csv").read_text("utf-8").splitlines() == [
        "time,key,person,label,ax (m/s2),level",
        '1.500000,watch-1,anna,"a, b",0.1,2.0',
    ]


def test_without_a_person_the_key_stands_for_one_and_without_labels_there_is_no_column(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "a.csv", CHANNELS, labelled=False)
    writer.write("w1", np.array([1.0, 2.0]), np.zeros((2, 2), np.float32))
    writer.close()
    assert (tmp_path / "a.csv").read_text("utf-8").splitlines()[:2] == [
        "time,key,person,ax (m/s2),level",
        "1.000000,w1,w1,0.0,0.0",
    ]


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("precious")
    with pytest.raises(ConfigError, match="exists already"):
        RecordingWriter(tmp_path / "a.csv", CHANNELS, labelled=False)
    assert (tmp_path / "a.csv").read_text() == "precious"


def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation that this finds: a torn row stays at the end, and the file cannot be read by `auto`."""
    writer = RecordingWriter(tmp_path / "a.csv", CHANNELS, labelled=False)
    writer.write("w1", np.array([1.0]), np.zeros((1, 2), np.float32))
    real, calls = os.write, []

    def full(fd: int, data: memoryview) -> int:
        calls.append(fd)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            writer.write("w1", np.arange(10.0), np.ones((10, 2), np.float32))
    writer.write("w1", np.array([2.0]), np.zeros((1, 2), np.float32))
    writer.close()
    assert (tmp_path / "a.csv").read_text().splitlines()[1:] == ["1.000000,w1,w1,0.0,0.0", "2.000000,w1,w1,0.0,0.0"]
