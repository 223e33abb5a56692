"""Other people's files become recordings, or an error that names the file and what to do."""

from __future__ import annotations

import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edge_export.data.dataset import Dataset
from edge_export.data.labels import label_windows
from edge_export.data.readers import Events, NpzReader, Origin, Reader, Sensor, TableReader, WavReader, read
from edge_export.package.evaluation_file import RECORDINGS, write_evaluation

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.window import Windower

ORIGIN = Origin(name="made up", source="this test", licence="CC0")
CHANNELS = (Channel(name="ax", unit="g"), Channel(name="ay", unit="g"))
SOUND = (Channel(name="sound", unit="1"),)


def of(reader: Reader, where: Path, channels: tuple[Channel, ...] = CHANNELS, rate_hz: float = 10.0) -> Dataset:
    return read(reader, where, channels=channels, classes=("no", "yes"), rate_hz=rate_hz)


def npz(**settings: object) -> NpzReader:
    return NpzReader(key="d", origin=ORIGIN, **{"label": "y", **settings})  # type: ignore[arg-type]


def save(path: Path, **arrays: object) -> None:
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]


def test_npz_with_a_label_per_sample(tmp_path: Path) -> None:
    save(tmp_path / "p1.npz", x=np.ones((6, 2)), y=[0, 0, 1, 1, 1, 0], t=[0, 10, 20, 30, 40, 50])
    (one,) = of(npz(time="t", time_unit="ms"), tmp_path).recordings
    assert (one.name, one.group) == ("p1", "p1")
    assert one.marks is not None
    assert one.marks.tolist() == [0, 0, 1, 1, 1, 0]
    assert one.t is not None
    np.testing.assert_allclose(one.t, np.arange(6) / 100)


def test_npz_with_boundaries_and_a_label_per_recording(tmp_path: Path) -> None:
    save(tmp_path / "p1.npz", x=np.arange(10).reshape(5, 2), y=[1, 0], offset=[0, 2, 5])
    first, second = of(npz(boundaries="offset", scale=(0.5,)), tmp_path).recordings
    assert (first.name, first.label, second.label) == ("p1-0", 1, 0)
    np.testing.assert_array_equal(second.values, np.arange(4, 10).reshape(3, 2) / 2)


def test_npz_is_cut_where_the_run_changes(tmp_path: Path) -> None:
    save(tmp_path / "p1.npz", x=np.ones((5, 2)), y=[0] * 5, run=[1, 1, 2, 2, 2])
    assert [len(r.values) for r in of(npz(run="run"), tmp_path).recordings] == [2, 3]


def test_npz_with_events_and_gain(tmp_path: Path) -> None:
    save(tmp_path / "p1.npz", x=np.full(6, 200), beat=[1, 4], odd=[4], gain=100.0)
    events = (Events(label="no", array="beat"), Events(label="yes", array="odd"))
    reader = npz(label="", events=events, divide_by="gain", reach_s=0.1)
    (one,) = of(reader, tmp_path, SOUND).recordings
    assert one.marks is not None
    assert one.marks.tolist() == [0, 0, 0, 1, 1, 1]
    assert set(one.values[:, 0].tolist()) == {2.0}


def test_npz_stamps_that_stand_still_are_left_out_as_the_runtime_does(tmp_path: Path) -> None:
    save(tmp_path / "p1.npz", x=np.arange(8).reshape(4, 2), y=[0, 0, 1, 0], t=[0.0, 0.1, 0.1, 0.2])
    (one,) = of(npz(time="t"), tmp_path).recordings
    assert one.values[:, 0].tolist() == [0, 2, 6]
    assert one.marks is not None
    assert one.marks.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        ({"x": np.ones((3, 2))}, {}, r"p1\.npz: array 'y' is missing; the file has x"),
        ({"x": np.ones((3, 3)), "y": [0] * 3}, {}, "array 'x' has 3 columns, the model has 2"),
        ({"x": np.ones((3, 2)), "y": [0, 1]}, {}, r"array 'y' has shape \(2,\); it needs one label"),
        ({"x": np.ones((3, 2)), "y": [0, 1, 2]}, {}, "array 'y' holds 2, but only 2 labels are named"),
        ({"x": np.ones((3, 2)), "y": ["no", "yes", "maybe"]}, {}, "label 'maybe' is none of the recipe's classes"),
        ({"x": [[1, 2], [3, np.nan]], "y": [0]}, {}, "sample 1 of channel ay is not a finite number"),
        ({"x": np.ones((3, 2)), "y": [0], "o": [0, 9]}, {"boundaries": "o"}, "must rise from 0 to 3"),
        ({"x": np.ones((3, 2)), "y": [0], "t": [0, 1]}, {"time": "t"}, "one number for each of 3 rows"),
        ({"x": np.ones((3, 2)), "y": [0]}, {"scale": (1.0, 2.0, 3.0)}, "scale needs 1 or 2 factors"),
        ({"x": np.ones((3, 2)), "y": [0]}, {"group": "(q)"}, "the pattern for the group, '\\(q\\)', finds nothing"),
    ],
)
def test_npz_that_does_not_fit_is_named(
    tmp_path: Path, arrays: dict[str, object], settings: dict[str, object], message: str
) -> None:
    save(tmp_path / "p1.npz", **arrays)
    with pytest.raises(ConfigError, match=message):
        of(npz(**settings), tmp_path)


def test_a_damaged_npz_is_named(tmp_path: Path) -> None:
    (tmp_path / "p1.npz").write_bytes(b"PK\x03\x04 not much of an archive")
    with pytest.raises(ConfigError, match=r"p1\.npz: not a usable \.npz file"):
        of(npz(), tmp_path)


def test_a_missing_folder_and_an_empty_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--data d=.*nowhere: no such folder"):
        of(npz(), tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"no file fits '\*\.npz'"):
        of(npz(), tmp_path)


def table(**settings: object) -> TableReader:
    return TableReader(key="d", origin=ORIGIN, **settings)  # type: ignore[arg-type]


def test_csv_with_a_label_column_and_groups(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("t;ax;second;who;what\n0;1;2;ann;no\n1;3;4;ann;yes\n2;5;6;bob;yes\n")
    reader = table(columns={"ay": "second"}, time="t", group_column="who", label_column="what")
    first, second = of(reader, tmp_path).recordings
    assert (first.group, second.group) == ("ann", "bob")
    assert first.marks is not None
    assert first.marks.tolist() == [0, 1]
    np.testing.assert_array_equal(second.values, [[5, 6]])


def test_csv_with_the_label_in_its_path(tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes" / "ann-1.csv").write_text("ax,ay\n1,2\n3,4\n")
    (one,) = of(table(label=r"^([^/]+)/", group=r"/(\w+)-"), tmp_path).recordings
    assert (one.label, one.group, one.t) == (1, "ann", None)


def test_labels_in_paths_of_tables_may_be_named_and_others_left_out(tmp_path: Path) -> None:
    for folder in ("nein", "ja", "vielleicht"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p1-1.csv").write_text("ax,ay\n1,2\n3,4\n")
    names = {"nein": "no", "ja": "yes"}
    found = of(table(label=r"^([^/]+)/", group=r"/(\w+)-", label_names=names), tmp_path)
    assert [(one.name, found.classes[one.label]) for one in found.recordings] == [
        ("ja/p1-1", "yes"),
        ("nein/p1-1", "no"),
    ]
    with pytest.raises(ValueError, match="a column holds the classes themselves"):
        table(label_column="c", label_names=names)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason='needs pyarrow: pip install "edge-runtime[parquet]"')
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"ax": [1.0, 2.0], "ay": [3.0, 4.0], "y": ["no", "yes"]}), tmp_path / "p.parquet")
    (one,) = of(table(files="*.parquet", label_column="y"), tmp_path).recordings
    np.testing.assert_array_equal(one.values, [[1, 3], [2, 4]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ax,ay,y\n1,2,no\n1,oops,no\n", r"day\.csv: line 3: column 'ay': 'oops' is not a number"),
        ("ax,y\n1,no\n", "column 'ay' .channel ay. is missing; the file has ax, y"),
        ("ax,ay,y\n1,2\n", "line 2: 2 cells, the header has 3"),
        ("ax,ay,y\n", "holds no rows"),
        ("ax,ay,y\n1,2,maybe\n", "label 'maybe' is none of the recipe's classes"),
    ],
)
def test_csv_that_does_not_fit_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "day.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        of(table(label_column="y"), tmp_path)


def test_npz_says_whose_it_is_for_the_file_a_recording_or_a_sample(tmp_path: Path) -> None:
    x, y = np.arange(12).reshape(6, 2), [0, 0, 0, 1, 1, 1]
    for who, groups in (("ann", ["ann"]), (["ann", "bob"], ["ann", "bob"]), (["a"] * 2 + ["b"] * 4, ["a", "b", "b"])):
        save(tmp_path / "p1.npz", x=x, y=y, who=who, offset=[0, 3, 6])
        found = of(npz(group_column="who", boundaries="offset"), tmp_path).recordings
        if isinstance(who, str):
            assert {recording.group for recording in found} == set(groups)
        else:
            assert [recording.group for recording in found] == groups
        assert np.concatenate([recording.values for recording in found]).tolist() == x.tolist()
    save(tmp_path / "p1.npz", x=x, y=y, who=["a"] * 4)
    with pytest.raises(
        ConfigError, match="array 'who' has 4 entries; it needs one for the file, for each of 1 recordings"
    ):
        of(npz(group_column="who"), tmp_path)


def test_npz_with_one_label_for_all_as_numpy_stores_it(tmp_path: Path) -> None:
    for label in ("yes", np.int64(1)):
        save(tmp_path / "p1.npz", x=np.ones((4, 2)), y=label)
        (one,) = of(npz(), tmp_path).recordings
        assert (one.label, one.marks) == (1, None)


def test_csv_with_dates_ends_a_recording_where_its_clock_begins_again(tmp_path: Path) -> None:
    stamps = [f"2024-05-01 10:00:0{second}.5" for second in (0, 1, 2, 0, 1)]
    rows = "".join(f"{stamp},1,{row}\n" for row, stamp in enumerate(stamps))
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes" / "p1.csv").write_text("datetime,ax,ay\n" + rows)
    reader = table(label_column="", label="^([a-z]+)/", time="datetime", time_unit="iso8601")
    first, second = of(reader, tmp_path).recordings
    assert (first.values[:, 1].tolist(), second.values[:, 1].tolist()) == ([0, 1, 2], [3, 4])
    assert first.t is not None
    assert first.t[0] == 1_714_557_600.5


def test_rows_with_an_empty_cell_are_left_out_where_stamps_show_the_gap(tmp_path: Path) -> None:
    text = "t,activity,who,ax,ay\n0,no,a,1,2\n1,no,a,,2\n,no,a,9,9\n3,yes, b ,3,4\n4, yes ,b,5,NaN\n"
    (tmp_path / "a.csv").write_text(text)
    reader = {"label_column": "activity", "group_column": "who"}
    first, second = of(table(**reader, time="t"), tmp_path).recordings
    assert (first.group, second.group) == ("a", "b")
    assert (first.values.tolist(), second.values.tolist()) == ([[1, 2]], [[3, 4]])
    assert second.marks is not None
    assert second.marks.tolist() == [1]
    assert first.left_out + second.left_out == 3
    with pytest.raises(
        ConfigError, match=r"a\.csv: line 3: channel ax is empty; without stamps no row can be left out"
    ):
        of(table(**reader), tmp_path)


def write_wav(path: Path, pcm: np.ndarray[tuple[int], np.dtype[np.float64]], rate: int, width: int = 2) -> None:
    path.parent.mkdir(exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes((pcm * 32767).astype("<i2").tobytes())


def test_wav_at_twice_the_rate_loses_what_would_fold_back(tmp_path: Path) -> None:
    t = np.arange(1600) / 1600
    write_wav(
        tmp_path / "yes" / "ann_0.wav", 0.5 * np.sin(2 * np.pi * 50 * t) + 0.4 * np.sin(2 * np.pi * 700 * t), 1600
    )
    reader = WavReader(key="d", origin=ORIGIN, group=r"/(\w+)_")
    (one,) = of(reader, tmp_path, SOUND, rate_hz=800.0).recordings
    assert (one.label, one.group, one.values.shape) == (1, "ann", (800, 1))
    expected = 0.5 * np.sin(2 * np.pi * 50 * t[::2])
    np.testing.assert_allclose(one.values[50:-50, 0], expected[50:-50], atol=0.01)


def test_wav_of_other_words_is_left_out(tmp_path: Path) -> None:
    for word in ("cat", "one"):
        write_wav(tmp_path / word / "ann_0.wav", np.zeros(10), 800)
    reader = WavReader(key="d", origin=ORIGIN, group=r"/(\w+)_", label_names={"one": "yes"})
    assert [r.name for r in of(reader, tmp_path, SOUND, rate_hz=800.0).recordings] == ["one/ann_0"]


def test_wav_of_a_rate_that_no_resampler_reaches_is_refused(tmp_path: Path) -> None:
    write_wav(tmp_path / "yes" / "ann_0.wav", np.zeros(10), 1103)
    with pytest.raises(ConfigError, match="1103 Hz cannot become 800 Hz"):
        of(WavReader(key="d", origin=ORIGIN, group=r"/(\w+)_"), tmp_path, SOUND, rate_hz=800.0)


def test_a_file_that_is_no_wav_is_named(tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes" / "ann_0.wav").write_bytes(b"RIFF, perhaps")
    with pytest.raises(ConfigError, match=r"yes/ann_0\.wav: not a PCM WAV file"):
        of(WavReader(key="d", origin=ORIGIN, group=r"/(\w+)_"), tmp_path, SOUND)


def test_readers_refuse_settings_that_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="needs label or events"):
        NpzReader(key="d", origin=ORIGIN)
    with pytest.raises(ValueError, match="boundaries and run"):
        npz(boundaries="o", run="r")
    with pytest.raises(ValueError, match="not a regular expression"):
        npz(group="(")
    with pytest.raises(ValueError, match="needs label"):
        table()


def sensors_apart(folder: Path) -> tuple[Path, Path]:
    """Two channels as rows of their own in one file, and side by side in another; a label in every row."""
    rows = [(i / 10, float(i), float(i % 7), "yes" if i > 30 else "no") for i in range(60)]
    apart, whole = folder / "apart", folder / "whole"
    for place in (apart, whole):
        place.mkdir()
    lines = [f"{t},{ax},,{label}\n{t},,{ay},{label}" for t, ax, ay, label in rows]
    (apart / "p1.csv").write_text("t,ax,ay,class\n" + "\n".join(lines) + "\n")
    lines = [f"{t},{ax},{ay},{label}" for t, ax, ay, label in rows]
    (whole / "p1.csv").write_text("t,ax,ay,class\n" + "\n".join(lines) + "\n")
    return apart, whole


def test_rows_of_sensors_that_send_on_their_own_are_cut_as_on_a_device(tmp_path: Path) -> None:
    apart, whole = sensors_apart(tmp_path)
    settings = {"key": "d", "origin": ORIGIN, "label_column": "class", "time": "t"}
    contract = InputContract(channels=CHANNELS, rate_hz=10.0, window=8, hop=4)
    expected = label_windows(of(TableReader(**settings), whole), contract)  # type: ignore[arg-type]
    dataset = of(TableReader(**settings, partial=True), apart)  # type: ignore[arg-type]
    (one,) = dataset.recordings
    assert [table.columns for table in one.tables] == [(0,), (1,)]
    assert one.left_out == 0
    found = label_windows(dataset, contract)
    np.testing.assert_array_equal(found.contexts, expected.contexts)
    assert (found.y.tolist(), found.start.tolist()) == (expected.y.tolist(), expected.start.tolist())


def test_a_mask_is_no_column_of_a_file(tmp_path: Path) -> None:
    """It is made when windows are cut: 1 where the other channel has a value."""
    _, whole = sensors_apart(tmp_path)
    channels = (CHANNELS[0], replace(CHANNELS[1], missing="last"), Channel(name="ay there", unit="1", mask_of="ay"))
    reader = TableReader(key="d", origin=ORIGIN, label_column="class", time="t")
    dataset = read(reader, whole, channels=channels, classes=("no", "yes"), rate_hz=10.0)
    windows = label_windows(dataset, InputContract(channels=channels, rate_hz=10.0, window=8, hop=4))
    assert windows.x.shape[1:] == (3, 8)
    assert (windows.x[:, 2] == 1).all()


def test_rows_with_empty_cells_need_stamps_to_stand_for_other_sensors() -> None:
    with pytest.raises(ValueError, match="partial needs time"):
        TableReader(key="d", origin=ORIGIN, label_column="class", partial=True)


def test_the_test_file_of_sensors_apart_gives_the_windows_that_were_evaluated(tmp_path: Path) -> None:
    """Mutation that this finds: rows of the union of stamps, which replay would take for all channels."""
    apart, _ = sensors_apart(tmp_path)
    dataset = of(TableReader(key="d", origin=ORIGIN, label_column="class", time="t", partial=True), apart)
    dataset = replace(dataset, recordings=(dataset.recordings[0], replace(dataset.recordings[0], name="p2")))
    contract = InputContract(channels=CHANNELS, rate_hz=10.0, window=8, hop=4)
    windows = label_windows(dataset, contract)
    write_evaluation(tmp_path, dataset, windows, contract)
    readings = list(iter_readings(tmp_path / RECORDINGS, contract))
    windower = Windower(contract)
    played = [window for reading in readings for window in windower.push([reading])] + windower.flush()
    np.testing.assert_array_equal(np.stack([w.samples.T for w in sorted(played, key=lambda w: w.key)]), windows.x)


def test_an_npz_of_two_sensors_is_cut_by_the_run_of_the_first(tmp_path: Path) -> None:
    """Each with stamps of its own; and the one of another rate is joined by its channel's rule."""
    t = np.concatenate((np.arange(30) / 10, 100 + np.arange(30) / 10))
    save(
        tmp_path / "p1.npz",
        phone=np.arange(60), phone_ms=t * 1000, y=[0] * 30 + [1] * 30, run=[1] * 30 + [2] * 30,
        watch=np.arange(60)[::2], watch_ms=t[::2] * 1000,
    )  # fmt: skip
    sensors = (
        Sensor(channels=("ay",), values="phone", time="phone_ms"),
        Sensor(channels=("ax",), values="watch", time="watch_ms"),
    )
    dataset = of(npz(sensors=sensors, run="run", time_unit="ms"), tmp_path)
    assert [[len(table.t) for table in one.tables] for one in dataset.recordings] == [[30, 15], [30, 15]]
    assert [table.columns for table in dataset.recordings[0].tables] == [(1,), (0,)]
    windows = label_windows(dataset, InputContract(channels=CHANNELS, rate_hz=10.0, window=8, hop=4))
    assert sorted(set(windows.y.tolist())) == [0, 1]
    assert len(windows) > 8
    np.testing.assert_allclose(windows.x[:, 0], windows.x[:, 1], atol=1e-5)  # a line between every other sample


@pytest.mark.parametrize(
    ("sensors", "message"),
    [
        ((Sensor(channels=("ax",), values="x", time="t"),), "sensors bring ax; the recipe's channels are ax, ay"),
        ((Sensor(channels=("ax", "ay"), values="x", time="u"),), r"array 'u' must hold one number for each of 4"),
    ],
)
def test_sensors_that_do_not_fit_the_recipe_are_refused(
    tmp_path: Path, sensors: tuple[Sensor, ...], message: str
) -> None:
    save(tmp_path / "p1.npz", x=np.ones((4, len(sensors[0].channels))), t=np.arange(4), u=np.arange(3), y=[0] * 4)
    with pytest.raises(ConfigError, match=message):
        of(npz(sensors=sensors), tmp_path)
