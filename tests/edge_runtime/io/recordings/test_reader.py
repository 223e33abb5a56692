"""Recordings in every format give the same readings, and their mistakes are named by place."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, EdgeError, InputError
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.recordings import csv_file
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import columns_of, expand, iter_readings
from edge_runtime.io.recordings.tables import ROWS
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.types import Reading

CONTRACT = InputContract(
    channels=(Channel(name="ax", unit="g"), Channel(name="ay", unit="g")), rate_hz=50, window=10, hop=5
)
START = 1_700_000_000.0
X = (np.arange(200, dtype=np.float32).reshape(100, 2) / 8).astype(np.float32)
T = START + np.arange(100) / 50

FORMATS = ["jsonl", "csv", "parquet", "npz"]


def write(path: Path, x: Any = X, t: Any = T, **more: Any) -> Path:
    """The same rows in the format of the path."""
    rows = list(zip(t, *x.T, strict=True))
    match path.suffix:
        case ".jsonl":
            lines = [orjson.dumps({"t": float(t), "values": [[float(a), float(b)]]}) for t, a, b in rows]
            path.write_bytes(b"\n".join(lines))
        case ".csv":
            path.write_text("t,ax,ay\n" + "".join(f"{t!r},{a!r},{b!r}\n" for t, a, b in np.array(rows).tolist()))
        case ".parquet":
            pq.write_table(pa.table({"ay": x[:, 1], "t": t, "ax": x[:, 0]} | more), path)
        case ".npz":
            np.savez_compressed(path, x=x, t=t, **more)
    return path


def read(path: Path, layout: RecordingLayout | None = None, **keywords: Any) -> list[Reading]:
    return list(iter_readings(path, CONTRACT, layout, **keywords))


def joined(readings: list[Reading]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
    return np.concatenate([np.atleast_1d(r.t) for r in readings]), np.concatenate([r.values for r in readings])


def error_of(path: Path, layout: RecordingLayout | None = None) -> str:
    with pytest.raises(EdgeError) as caught:
        read(path, layout)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_samples(kind: str, tmp_path: Path) -> None:
    readings = read(write(tmp_path / f"rec.{kind}"))
    t, values = joined(readings)
    np.testing.assert_allclose(t, T, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(values, X)
    assert values.dtype == np.float32
    assert {reading.key for reading in readings} == {"rec"}


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_tables_are_cut_by_time(kind: str, tmp_path: Path) -> None:
    readings = read(write(tmp_path / f"rec.{kind}"), RecordingLayout(chunk_s=0.5))
    assert [len(reading.values) for reading in readings] == [25, 25, 25, 25]
    assert all(reading.values.flags.c_contiguous for reading in readings)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_key_for_all_comes_from_the_layout(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"rec.{kind}")
    assert {reading.key for reading in read(path, RecordingLayout(key="watch-1"))} == {"watch-1"}
    assert {reading.key for reading in read(path, key="fallback")} == {"fallback"}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_missing_file_is_said_so(kind: str, tmp_path: Path) -> None:
    assert "no such file" in error_of(tmp_path / f"rec.{kind}")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_noise_is_an_error_and_no_traceback(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rec.{kind}"
    path.write_bytes(np.random.default_rng(3).bytes(3000))
    error_of(path)
    path.write_bytes(b"")
    if kind == "jsonl":
        assert read(path) == []
    else:
        error_of(path)


def test_a_table_in_another_encoding_says_which_is_read(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes("t,key,c0,c1,c2\n0,Müller,1,2,3\n".encode("cp1252"))
    assert error_of(path).endswith("cannot be read to its end: it is not UTF-8 text; save it as CSV in UTF-8")
    with pytest.raises(ConfigError, match="cannot be read: it is not UTF-8 text; save it as CSV in UTF-8"):
        columns_of(path)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_a_file_cut_short_is_an_error(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"rec.{kind}")
    path.write_bytes(path.read_bytes()[:-300])
    error_of(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_named_or_left_out(kind: str, bad: float, tmp_path: Path) -> None:
    x = X.copy()
    x[7, 1] = bad
    path = write(tmp_path / f"rec.{kind}", x)
    place = "line 9" if kind == "csv" else "row 8"
    assert f"{place}: channel ay" in error_of(path)
    refused: list[InputError] = []
    t, values = joined(read(path, on_refused=refused.append))
    assert [error.reason for error in refused] == ["not_finite"]
    np.testing.assert_array_equal(values, np.delete(X, 7, axis=0))
    np.testing.assert_allclose(t, np.delete(T, 7))


@pytest.mark.parametrize("kind", FORMATS)
def test_absurd_stamps_are_named(kind: str, tmp_path: Path) -> None:
    refused: list[InputError] = []
    path = write(tmp_path / f"rec.{kind}", t=np.where(np.arange(100) == 3, 1e15, T))
    assert len(joined(read(path, on_refused=refused.append))[0]) == 99
    assert [error.reason for error in refused] == ["bad_time"]
    assert "line 4" in str(refused[0]) or "line 5" in str(refused[0]) or "row 4" in str(refused[0])


def test_an_unknown_suffix_asks_for_the_format(tmp_path: Path) -> None:
    path = write(tmp_path / "rec.csv").rename(tmp_path / "rec.dat")
    assert "set format" in error_of(path)
    assert read(path, RecordingLayout(format="csv"))


# -- JSONL ------------------------------------------------------------------------------------------------------------


def test_a_line_s_own_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    path.write_bytes(b'{"key":"a","t":1,"values":[1,2]}\r\n\n  \n{"t":2,"values":[3,4]}\n')
    assert [(reading.key, reading.t) for reading in read(path)] == [("a", 1.0), ("rec", 2.0)]
    assert [reading.key for reading in read(path, RecordingLayout(key="all"))] == ["all", "all"]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    path.write_bytes(b'{"t":1,"values":[1,2]}\n{"t":1,"values":[1,null]}\n{"t":2,"values":[3,4]}\n')
    assert "line 2: values must be numbers, got null" in error_of(path)
    refused: list[InputError] = []
    assert len(read(path, on_refused=refused.append)) == 2
    assert [error.reason for error in refused] == ["not_a_number"]


def test_a_giant_line_is_skipped_without_being_kept(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    good = b'{"t":1,"values":[1,2]}'
    path.write_bytes(good + b"\n" + b"x" * 5000 + b"\n" + good + b"\n" + b"y" * 5000)
    refused: list[InputError] = []
    layout = RecordingLayout(codec=JsonConfig(max_bytes=100))
    assert len(read(path, layout, on_refused=refused.append)) == 2
    assert [error.reason for error in refused] == ["too_large", "too_large"]
    assert "line 2" in str(refused[0])
    assert "line 4" in str(refused[1])


def test_lines_may_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    path.write_bytes(b'{"ts":1000,"x":1,"y":2}')
    layout = RecordingLayout(codec=JsonConfig(time="ts", time_unit="ms", channels={"ax": "x", "ay": "y"}))
    assert read(path, layout)[0].values.tolist() == [[1, 2]]


def test_lines_may_be_of_another_codec(tmp_path: Path) -> None:
    path = tmp_path / "rec.txt"
    path.write_text('[{"bn":"w:","bt":1.7e9,"n":"ax","v":1},{"n":"ay","v":2}]\n')
    (reading,) = read(path, RecordingLayout(format="lines", codec=SenmlConfig()))
    assert (reading.key, reading.values.tolist()) == ("w", [[1, 2]])


def test_lines_without_stamps_follow_the_rate_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    path.write_text('{"key":"a","values":[[1,2],[3,4]]}\n{"key":"b","values":[1,2]}\n{"key":"a","values":[5,6]}\n')
    readings = read(path, RecordingLayout(codec=JsonConfig(time=""), rate_hz=10))
    assert [(r.key, r.t, r.period_s) for r in readings] == [("a", 0.0, 0.1), ("b", 0.0, 0.1), ("a", 0.2, 0.1)]


def test_lines_with_a_field_for_each_channel_are_rows_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl"
    path.write_text(
        '{"who":"a","time_ms":1500,"imu":{"ax [g]":1,"ay":2},"tags":[{"ax":9}]}\n'
        '{"who":"b","time_ms":1600,"imu":{"ax [g]":3,"ay":4}}\n'
    )
    layout = RecordingLayout(
        columns={"ax": "imu.ax [g]", "ay": "imu.ay"}, key_column="who", units={"ay": "mg", "ax": "g"}
    )
    first, second = read(path, layout)
    assert (first.key, first.t, second.key, second.t) == ("a", 1.5, "b", 1.6)
    np.testing.assert_allclose([first.values[0], second.values[0]], [[1, 0.002], [3, 0.004]], rtol=1e-6)
    path.write_text('{"ax":1,"ay":2,"date":"2023-11-14T22:13:20Z"}\n')
    (reading,) = read(path)
    assert (reading.key, reading.t, reading.values.tolist()) == ("rec", START, [[1, 2]])
    path.write_text('{"ax":1,"ay":2}\n')
    assert "set time or rate_hz" in error_of(path)


# -- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "jsonl"])
def test_labels_come_with_the_stamps_of_their_samples(kind: str, tmp_path: Path) -> None:
    path, names = tmp_path / f"rec.{kind}", ["walk", "run", "run", ""]
    if kind == "csv":
        path.write_text("t,key,ax,ay,what\n" + "".join(f"{i},a,1,2,{name}\n" for i, name in enumerate(names)))
    elif kind == "parquet":
        column = {"key": ["a"] * 4, "t": np.arange(4.0), "ax": np.ones(4), "ay": np.ones(4), "what": [*names[:3], None]}
        pq.write_table(pa.table(column), path)
    elif kind == "npz":
        np.savez(path, t=np.arange(4.0), x=np.ones((4, 2)), what=names, key=["a"])
    else:
        lines = [{"key": "a", "t": i, "values": [1, 2], "note": {"what": name}} for i, name in enumerate(names)]
        path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    found: list[tuple[str, float, str]] = []

    def labelled(key: str, t: npt.NDArray[np.float64], labels: Sequence[str]) -> None:
        found.extend((key, float(at), label) for at, label in zip(t, labels, strict=True))

    read(path, RecordingLayout(label="note.what" if kind == "jsonl" else "what"), on_labels=labelled)
    assert found == [("a", float(i), name) for i, name in enumerate(names)]


def test_an_npz_may_have_a_label_for_each_recording(tmp_path: Path) -> None:
    path = tmp_path / "rec.npz"
    np.savez(path, x=np.ones((5, 2)), offset=[0, 2, 5], y=[1, 0])
    found: dict[str, list[str]] = {}
    read(path, RecordingLayout(label="y"), on_labels=lambda key, _t, labels: found.update({key: list(labels)}))
    assert found == {"rec-0": ["1"] * 2, "rec-1": ["0"] * 3}
    np.savez(path, x=np.ones((5, 2)), y=[1, 0])
    with pytest.raises(ConfigError, match="must hold a label for each of 1 recordings or of 5 rows"):
        read(path, RecordingLayout(label="y"))


# -- CSV --------------------------------------------------------------------------------------------------------------


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rec.csv"
    path.write_text(text)
    return path


LAID_OUT: dict[str, tuple[str, dict[str, Any], list[float], list[list[float]]]] = {
    **{
        f"{delimiter!r} between": ("time,label,ax,ay\n1,rest,2,3\n".replace(",", delimiter), {}, [1], [[2, 3]])
        for delimiter in ",;\t|"
    },
    "quotes, a byte order mark, spaces, an empty line": (
        '\ufeff"t", "ax" ,ay\n"1"," 2 ",3\n\n2,4,5\n', {}, [1, 2], [[2, 3], [4, 5]],
    ),
    **{
        f"the moment {stamp}": (f"timestamp,ax,ay\n{stamp},1,2\n", {}, [START], [[1, 2]])
        for stamp in ("2023-11-14 22:13:20", "2023-11-14T22:13:20Z", '"2023-11-14 22:13:20+00:00"')
    },
    "another unit of time": (
        "ms,ax,ay\n1700000000123,1,2\n", {"time": "ms", "time_unit": "ms"}, [1700000000.123], [[1, 2]],
    ),
    "a rate in place of stamps": ("ax,ay\n1,2\n3,4\n", {"rate_hz": 10}, [0, 0.1], [[1, 2], [3, 4]]),
    "no column of stamps": ("t,ax,ay\n7,1,2\n9,3,4\n", {"time": "-", "rate_hz": 10}, [0, 0.1], [[1, 2], [3, 4]]),
    "units behind the names": ("t,ay [g],ax (g)\n1,2,3\n", {}, [1], [[3, 2]]),
    "other units behind the names": ("t,ax (m/s2),ay (mg)\n1,9.80665,500\n", {}, [1], [[1, 0.5]]),
    "other names and a scale": (
        "t,x mg,y mg\n1,1000,500\n", {"columns": {"ax": "x mg", "ay": "y mg"}, "scale": (0.001,)}, [1], [[1, 0.5]],
    ),
    "R's column of row names": ('"t","ax","ay"\n"1",5,1,2\n"2",6,3,4\n', {}, [5, 6], [[1, 2], [3, 4]]),
}  # fmt: skip


@pytest.mark.parametrize("name", LAID_OUT)
def test_a_table_of_text_is_read_as_it_is_laid_out(name: str, tmp_path: Path) -> None:
    text, layout, stamps, rows = LAID_OUT[name]
    t, values = joined(read(csv(tmp_path, text), RecordingLayout(**layout)))
    assert t.tolist() == stamps
    np.testing.assert_allclose(values, rows, rtol=1e-6)


def test_rows_without_stamps_are_counted_for_each_key(tmp_path: Path) -> None:
    path = csv(tmp_path, "key,ax,ay\na,1,2\nb,3,4\na,5,6\nb,7,8\n")
    readings = read(path, RecordingLayout(rate_hz=10))
    assert {reading.key: np.asarray(reading.t).tolist() for reading in readings} == {"a": [0, 0.1], "b": [0, 0.1]}


@pytest.mark.parametrize("name", ["key", "Key"])
def test_a_column_called_key_parts_the_rows_unless_a_key_is_set(name: str, tmp_path: Path) -> None:
    path = csv(tmp_path, f"t,{name},ax,ay\n1.0,a,1,2\n1.1,b,3,4\n")
    assert [reading.key for reading in read(path)] == ["a", "b"]
    assert {reading.key for reading in read(path, RecordingLayout(key="all"))} == {"all"}


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_numbers_in_another_unit_are_converted(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"rec.{kind}")
    values = joined(read(path, RecordingLayout(units={"ax": "m/s2"}, scale=(2.0,))))[1]
    np.testing.assert_allclose(values, 2 * X * [1 / 9.80665, 1], rtol=1e-6)
    with pytest.raises(ConfigError, match="channel ay comes in 'V', the model wants 'g': 'V' is a unit of voltage"):
        read(path, RecordingLayout(units={"ay": "V"}))
    with pytest.raises(ConfigError, match="units names az"):
        read(path, RecordingLayout(units={"az": "g"}))


def test_a_key_column_parts_the_rows(tmp_path: Path) -> None:
    path = csv(tmp_path, "t,who,ax,ay\n1.0,a,1,2\n1.1,b,3,4\n1.2,a,5,6\n")
    a, b = read(path, RecordingLayout(key_column="who"))
    assert (a.key, a.values.tolist(), np.asarray(a.t).tolist()) == ("a", [[1, 2], [5, 6]], [1.0, 1.2])
    assert (b.key, b.values.tolist()) == ("b", [[3, 4]])


CELLS = st.sampled_from(
    ["1", "-2.5e3", " 3.25", "4 ", "", "nan", "inf", "-Infinity", "x", "1_0", "0x10", "1e", '"5"', '"6\n"', "7,8"]
)


def samples_of(path: Path, rows: int) -> tuple[list[str], list[list[float]]]:
    """What is refused, and samples with their stamps, with blocks of so many rows."""
    refused: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "ROWS", rows)
        readings = read(path, on_refused=lambda error: refused.append(str(error)))
    return sorted(refused), [
        [t, *v] for r in readings for t, v in zip(np.atleast_1d(r.t), r.values.tolist(), strict=True)
    ]


@pytest.mark.slow
@given(st.lists(st.one_of(st.just("1.5,2.5"), st.tuples(CELLS, CELLS).map(",".join), st.sampled_from(["", " ", ","]))))
@settings(deadline=None, max_examples=200)
def test_lines_that_numpy_reads_are_those_that_the_csv_module_reads(rows: list[str]) -> None:
    """The first rows of a file are cut by the module; with blocks of three, numpy reads what follows, where it can."""
    ends = ("\n", "\r\n")
    text = "t,ax,ay\n" + "".join(f"{START + i / 50},{row}{ends[i % 2]}" for i, row in enumerate(rows))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rec.csv"
        path.write_bytes(text.encode())
        assert samples_of(path, 3) == samples_of(path, 100_000)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("2,x,3", "line 3: column 'ax': 'x' is not a number"),
        ("2,,3", "line 3: channel ax is missing"),
        (",2,3", "line 3: time stamp nan s lies outside"),
        ("now,2,3", "line 3: column 't': 'now' is not a number"),
        ("2,3", "line 3: 2 cells, the header has 3"),
        ("2,3,4,5", "line 3: 4 cells, the header has 3"),
    ],
)
def test_bad_rows_are_named_or_left_out(row: str, told: str, tmp_path: Path) -> None:
    path = csv(tmp_path, f"t,ax,ay\n1,1,1\n{row}\n3,3,3\n")
    assert told in error_of(path)
    refused: list[InputError] = []
    assert joined(read(path, on_refused=refused.append))[0].tolist() == [1, 3]
    assert len(refused) == 1


def test_a_bad_text_stamp_or_key_is_named(tmp_path: Path) -> None:
    text = "date,who,ax,ay\n2024-01-01,a,1,2\nyesterday,a,1,2\n2024-01-02,,1,2\n2024-01-03,a,1,2\n"
    refused: list[InputError] = []
    readings = read(csv(tmp_path, text), RecordingLayout(key_column="who"), on_refused=refused.append)
    assert [error.reason for error in refused] == ["bad_time", "no_key"]
    assert "line 3" in str(refused[0])
    assert "line 4" in str(refused[1])
    assert len(readings) == 2


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("t,ax,az", "column 'ay' (channel ay) is missing"),
        ("t,ax,ay,ax", "column 'ax' (channel ax) is there twice"),
        ("t,ay,ax (g),ax [g]", "column 'ax' (channel ax) is missing"),
        ("ax,ay,az", "set time or rate_hz"),
        ("time,date,ax,ay", "which is the time, time or date? set time"),
        ("", "must name the columns"),
    ],
)
def test_headers_that_do_not_fit_are_refused(header: str, told: str, tmp_path: Path) -> None:
    assert told in error_of(csv(tmp_path, f"{header}\n1,2,3\n"))


def test_a_mapping_of_unknown_channels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="maps az"):
        read(write(tmp_path / "rec.csv"), RecordingLayout(columns={"az": "t"}))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rec.csv"
    path.write_bytes(b"t,ax,ay\n1,2,3\n" + b"2,3,\xff\n")
    assert "cannot be read to its end" in error_of(path)


def test_many_rows_come_in_bounded_pieces(tmp_path: Path) -> None:
    n = 10_000
    path = csv(tmp_path, "t,ax,ay\n" + "".join(f"{i / 1000},{i},{-i}\n" for i in range(n)))
    readings = read(path, RecordingLayout(chunk_s=3600))
    assert max(len(reading.values) for reading in readings) <= ROWS
    np.testing.assert_array_equal(joined(readings)[1][:, 0], np.arange(n, dtype=np.float32))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet='tax y,;\n"0123456789.eNI-\r\t', max_size=80))
def test_any_text_gives_readings_or_an_error(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rec.csv"
        path.write_text("t,ax,ay\n" + text)
        refused: list[InputError] = []
        for reading in iter_readings(path, CONTRACT, on_refused=refused.append):
            assert np.isfinite(reading.values).all()


# -- Parquet ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_parquet_s_own_time_types_are_what_they_are(unit: str, tmp_path: Path) -> None:
    per_s = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    stamps = pa.array([int(START) * per_s, int(START + 1) * per_s], pa.timestamp(unit))  # type: ignore[attr-defined, unused-ignore]
    pq.write_table(pa.table({"ax": [1, 2], "ay": [3.0, None], "time": stamps}), tmp_path / "rec.parquet")
    refused: list[InputError] = []
    (reading,) = read(tmp_path / "rec.parquet", on_refused=refused.append)
    assert np.asarray(reading.t).tolist() == [START]
    assert "row 2: channel ay is missing" in str(refused[0])


def test_parquet_texts_and_keys(tmp_path: Path) -> None:
    table = {
        "ax": [1, 2, 3],
        "ay": [4, 5, 6],
        "t": ["2023-11-14T22:13:20Z", "x", "2023-11-14T22:13:21Z"],
        "id": [7, 7, None],
    }
    pq.write_table(pa.table(table), tmp_path / "rec.parquet")
    refused: list[InputError] = []
    (reading,) = read(tmp_path / "rec.parquet", RecordingLayout(key_column="id"), on_refused=refused.append)
    assert (reading.key, reading.values.tolist(), np.asarray(reading.t).tolist()) == ("7", [[1, 4]], [START])
    assert sorted(error.reason for error in refused) == ["bad_time", "no_key"]


def test_parquet_columns_hold_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "rec.parquet", ax=["a"] * 100)
    assert "numbers are needed" in error_of(path)


def test_parquet_without_pyarrow_names_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "rec.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert 'pip install "edge-runtime[parquet]"' in error_of(path)


# -- NPZ --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_arrays_in_either_order(order: Any, save: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    save(tmp_path / "rec.npz", x=np.asarray(x, order=order), rate=np.array(100.0))
    t, values = joined(read(tmp_path / "rec.npz"))
    np.testing.assert_array_equal(values, x)
    np.testing.assert_allclose(t, np.arange(5000) / 100)


def test_npz_without_stamps_or_rate_has_the_model_s_rate(tmp_path: Path) -> None:
    np.savez(tmp_path / "rec.npz", x=X)
    np.testing.assert_allclose(joined(read(tmp_path / "rec.npz"))[0], np.arange(100) / 50)


def test_npz_recordings_become_keys_with_silence_between(tmp_path: Path) -> None:
    np.savez(tmp_path / "rec.npz", x=X, offset=np.array([0, 40, 100]), who=np.array(["ann", "bob"]))
    readings = read(tmp_path / "rec.npz", RecordingLayout(key_column="who"))
    assert {reading.key for reading in readings} == {"ann", "bob"}
    t = joined(readings)[0]
    assert t[40] - t[39] > CONTRACT.max_gap_s
    assert {reading.key for reading in read(tmp_path / "rec.npz")} == {"rec-0", "rec-1"}


def test_npz_columns_are_found_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "rec.npz", x=np.array([[1, 2, 3]], np.int16), channels=np.array(["ay", "temp", "ax"]))
    assert read(tmp_path / "rec.npz")[0].values.tolist() == [[3, 1]]


@pytest.mark.parametrize(("scale", "first"), [([0.5, 10.0], [0.5, 20.0]), (2.0, [2.0, 4.0])])
def test_npz_factors_make_values_physical(scale: Any, first: list[float], tmp_path: Path) -> None:
    path = tmp_path / "rec.npz"
    np.savez(path, x=np.array([[1, 2], [3, 4]], np.int16), scale=np.array(scale, np.float32))
    assert joined(read(path))[1][0].tolist() == first
    assert joined(read(path, RecordingLayout(scale=(1.0,))))[1][0].tolist() == [1, 2]
    np.savez(path, x=np.array([[1, 2]], np.int16), channels=np.array(["ay", "ax"]), scale=np.array([1, 10], np.float32))
    assert joined(read(path))[1][0].tolist() == [20, 1]


def test_npz_never_loads_a_pickle(tmp_path: Path) -> None:
    np.savez(tmp_path / "rec.npz", x=np.array([{"a": 1}], dtype=object))
    assert "pickle" in error_of(tmp_path / "rec.npz")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"y": X}, "array 'x' is missing"),
        ({"x": X[:, :1]}, "has 1 columns"),
        ({"x": np.array(["a", "b"])}, "must hold numbers"),
        ({"x": np.zeros((2, 2, 2), np.float32)}, "3 dimensions"),
        ({"x": np.float32(1)}, "must hold numbers"),
        ({"x": X, "t": T[:50]}, "one number for each of 100 rows"),
        ({"x": X, "offset": np.array([0, 70, 40, 100])}, "must rise from 0 to 100"),
        ({"x": X, "offset": np.array([0, 40])}, "must rise from 0 to 100"),
    ],
)
def test_npz_files_that_do_not_fit_are_refused(arrays: Any, told: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "rec.npz", **arrays)
    assert told in error_of(tmp_path / "rec.npz")


def test_an_array_shorter_than_its_header_is_noticed(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", x=X)
    with zipfile.ZipFile(tmp_path / "whole.npz") as whole, zipfile.ZipFile(tmp_path / "rec.npz", "w") as cut:
        cut.writestr("x.npy", whole.read("x.npy")[:-100])
    assert "cut short" in error_of(tmp_path / "rec.npz")


def test_real_recordings_of_ten_people(shared: Path) -> None:
    names = ("ax", "ay", "az", "wx", "wy", "wz")
    contract = InputContract(channels=tuple(Channel(name=n, unit="1") for n in names), rate_hz=50, window=100, hop=50)
    path = shared / "data" / "exercise-watch-seglearn" / "watch.npz"
    readings = list(iter_readings(path, contract))
    with np.load(path) as npz:
        np.testing.assert_array_equal(np.concatenate([reading.values for reading in readings]), npz["x"])
    assert len({reading.key for reading in readings}) == 98


# -- several files ----------------------------------------------------------------------------------------------------


def test_patterns_expand_in_order_and_keys_differ(tmp_path: Path) -> None:
    for name in ("b/1.csv", "a/1.csv", "a/2.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert expand([tmp_path / "a" / "*.csv", tmp_path / "b" / "1.csv"]) == [
        (tmp_path / "a" / "1.csv", "a/1"),
        (tmp_path / "a" / "2.csv", "2"),
        (tmp_path / "b" / "1.csv", "b/1"),
    ]
    with pytest.raises(ConfigError, match="no file fits"):
        expand([tmp_path / "c" / "*.csv"])


@pytest.mark.parametrize(
    "wrong", [{"chunk_s": -1}, {"rate_hz": -1}, {"delimiter": ";;"}, {"scale": (0.0,)}, {"codec": RawConfig()}]
)
def test_layouts_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        RecordingLayout(**wrong)
