"""A recipe from a folder: what is found, what is asked for, what is refused; and that the recipe builds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from edge_export.cli import main
from edge_export.recipe.auto import Hints
from edge_export.recipe.auto.contents import Content, content_of
from edge_export.recipe.auto.labels import find_labels, label_pattern
from edge_export.recipe.auto.rate import time_column
from edge_export.recipe.auto.scan import Piece
from edge_export.recipe.auto.stratified_split import stratified_split
from edge_export.recipe.feature_spec import StatisticsSpec
from edge_export.recipe.network_spec import Forest, SeparableCnn1d
from edge_export.recipe.recipe import Recipe, load, parse
from edge_export.recipe.splits import read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.columns import OTHER_TIME_COLUMNS, TIME_COLUMNS, unit_of
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.manifest import Channel, InputContract
from tests.edge_export.recipe.auto import recordings


def written(folder: Path, out: Path, *options: str) -> Recipe:
    assert main(["auto", str(folder), "-o", str(out), "--recipe-only", *options]) == 0
    return load(out / "recipe.toml")


def refused(folder: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["auto", str(folder), "-o", str(out), "--recipe-only", *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


# -- what is found -----------------------------------------------------------------------------------------------------


def test_a_folder_per_class_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = written(
        recordings.csv_folders(tmp_path / "Motion data"),
        tmp_path / "out",
        "--target",
        "raspberry-pi-4",
        "--target",
        "cpu",
    )
    assert recipe.name == "motion-data"
    assert recipe.classes == ("rest", "run", "walk")
    assert recipe.targets == ("raspberry-pi-4", "cpu")
    assert [(channel.name, channel.unit) for channel in recipe.window.channels] == [
        ("ax", "m/s2"),
        ("ay", "m/s2"),
        ("az", "m/s2"),
    ]
    assert (recipe.window.rate_hz, recipe.window.samples, recipe.window.hop) == (50, 100, 50)
    assert recipe.augmentation.triads == (("ax", "ay", "az"),)
    assert recipe.references is not None
    assert (len(recipe.split.validation), len(recipe.split.test)) == (1, 1)
    assert set(recipe.split.validation) | set(recipe.split.test) < {f"p{i}" for i in range(5)}
    said = capsys.readouterr().out
    assert "p0, p1, p2, p3, ... in the paths is called like a person" in said
    assert "median step of column 'time' in s gives 50 Hz" in said
    assert re.search(r"train: \d+ windows; rest \d+, run \d+, walk \d+", said)


@pytest.mark.slow
def test_one_table_with_columns_for_class_and_person(tmp_path: Path) -> None:
    recipe = written(recordings.one_table(tmp_path / "data"), tmp_path / "out", "--unit", "g")
    (reader,) = recipe.data
    assert reader.type == "table"
    assert (reader.label_column, reader.group_column, reader.time) == ("activity", "subject", "time")
    assert {channel.unit for channel in recipe.window.channels} == {"g"}
    assert recipe.window.label == "majority"


def test_sound_becomes_clips_with_a_spectrogram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = written(recordings.wav_folders(tmp_path / "tones"), tmp_path / "out")
    assert (recipe.window.rate_hz, recipe.window.clip_s, recipe.window.samples) == (8000, 1.0, 8000)
    assert len(recipe.front_end) == 1
    assert set(recipe.split.validation) | set(recipe.split.test) < {"anna", "ben", "cleo", "dan"}
    assert "part 2 of each file's name, anna, ben, cleo, dan, is taken for a person's name" in capsys.readouterr().out


def test_sounds_of_several_rates_meet_at_one_that_all_can_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recordings.wav_folders(tmp_path / "tones", takes=10)
    recordings.tone(folder / "low" / "low_anna_99.wav", 300, rate_hz=16_000, seed=7)
    assert written(folder, tmp_path / "out").window.rate_hz == 8000
    assert "8000, 16000 Hz in the files" in capsys.readouterr().out
    recordings.tone(folder / "low" / "low_ben_99.wav", 300, rate_hz=11_025, seed=8)
    assert written(folder, tmp_path / "other").window.rate_hz == 8000
    recordings.tone(folder / "low" / "low_ben_99.wav", 300, rate_hz=11_027, seed=8)
    assert "low/low_ben_99.wav: sound at 11027 Hz cannot become 8000 Hz" in refused(folder, tmp_path / "out", capsys)


def test_a_table_of_labels_names_the_class_of_each_file(tmp_path: Path) -> None:
    folder = tmp_path / "tones"
    lines = ["file,label"]
    for take in range(30):
        for who in ("anna", "ben", "cleo"):
            for label, hertz in (("low", 300), ("high", 1500)):
                name = f"{who}-{take}{label[0]}.wav"
                recordings.tone(folder / name, hertz, seconds=0.4, seed=len(lines))
                lines.append(f"{name},{label}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    recipe = written(folder, tmp_path / "out", "--labels", str(tmp_path / "labels.csv"), "--group", r"^(\w+)-")
    assert recipe.classes == ("high", "low")
    assert recipe.window.clip_s == 0.5


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    files = [Content(name=name, columns={}, samples=1, rate_hz=16_000) for name in ("p1/a.wav", "p2/a.wav", "b.wav")]
    hints = Hints(labels=table)
    table.write_text("file,label\np1/a.wav,dog\ntones/p2/a.wav,cat\n./b.wav,cat\np3/a.wav,bird\n")
    assert find_labels("wav", files, hints).of == {"p1/a.wav": "dog", "p2/a.wav": "cat", "b.wav": "cat"}
    table.write_text("file,label\na.wav,dog\na.wav,cat\nb.wav,cat\n")
    with pytest.raises(ConfigError, match=r"p1/a.wav: labels.csv names several labels for it, cat, dog; write the"):
        find_labels("wav", files, hints)
    table.write_text("file,label\np1/a.wav,dog\np3/a.wav,cat\nb.wav,cat\n")
    with pytest.raises(ConfigError, match=r"p2/a.wav: labels.csv names no label for it"):
        find_labels("wav", files, hints)


@pytest.mark.parametrize("names", [False, True])
def test_numpy_files_with_a_label_for_each_sample(tmp_path: Path, names: bool) -> None:
    folder = recordings.npz_files(tmp_path / "data", names=names)
    recipe = written(folder, tmp_path / "out", "--unit", "m/s2", "--channels", "ax,ay,az")
    assert recipe.classes == (("rest", "run", "walk") if names else ("0", "2", "3"))
    (reader,) = recipe.data
    assert reader.type == "npz"
    assert reader.time_unit == "ms"
    assert recipe.window.rate_hz == 50


def test_what_is_said_wins_over_what_is_found(tmp_path: Path) -> None:
    folder = recordings.csv_folders(tmp_path / "data", rate_hz=20, seconds=40)
    recipe = written(
        folder, tmp_path / "out", "--channels", "az (m/s2)", "--unit", "az=g", "--window", "4", "--name", "mine",
        "--max-bytes", "9000", "--max-forwarded", "0.25", "--group", r"(p\d)_", "--licence", "CC0",
    )  # fmt: skip
    assert recipe.name == "mine"
    assert [(channel.name, channel.unit) for channel in recipe.window.channels] == [("az", "g")]
    assert recipe.window.samples == 80
    assert recipe.limits.max_bytes == 9000
    assert isinstance(recipe.student.network, SeparableCnn1d)
    assert recipe.student.network.width == 0.5
    text = (tmp_path / "out" / "recipe.toml").read_text("utf-8")
    grown = re.sub(r"^network = .*\n(?=training)", "", text, flags=re.MULTILINE).replace("# network", "network")
    of_trees = parse(grown.replace("# front_end", "front_end"), tmp_path / "recipe.toml").student
    assert (of_trees.network, of_trees.front_end) == (Forest(), (StatisticsSpec(),)), "as its comment says"
    assert recipe.gate.max_forwarded == 0.25
    assert recipe.data[0].origin.licence == "CC0"


def test_unbalanced_classes_are_judged_by_macro_f1(tmp_path: Path) -> None:
    folder = recordings.csv_folders(tmp_path / "data")
    for person in range(5):
        x = recordings.movement("rest", person, 2500, 50)
        recordings.write_csv(
            folder / "rest" / f"p{person}_1.csv", np.arange(2500) / 50, x, ["ax (m/s2)", "ay (m/s2)", "az (m/s2)"]
        )
    assert written(folder, tmp_path / "out").metric == "macro_f1"


def test_the_same_folder_gives_the_same_recipe(tmp_path: Path) -> None:
    folder = recordings.csv_folders(tmp_path / "data")
    written(folder, tmp_path / "a")
    written(folder, tmp_path / "b")
    assert (tmp_path / "a" / "recipe.toml").read_bytes() == (tmp_path / "b" / "recipe.toml").read_bytes()


@pytest.mark.slow
def test_the_recipe_builds(tmp_path: Path) -> None:
    for module in ("torch", "onnxscript", "sklearn"):
        pytest.importorskip(module, reason="the export toolchain's networks need torch (edge-export[train])")
    folder = recordings.csv_folders(tmp_path / "data")
    written(folder, tmp_path / "out")
    path = tmp_path / "out" / "recipe.toml"
    # As found, but for minutes of training.
    path.write_text(path.read_text().replace("steps = 500", "steps = 30").replace("steps = 1200", "steps = 60"))
    assert main(["build", str(path), "--data", f"data={folder}", "-o", str(tmp_path / "built")]) == 0
    assert (tmp_path / "built" / "data-x86_64.edge").is_file()


# -- stamps, rates, cells and units ----------------------------------------------------------------------------------


def iso(row: int, step_s: float = 0.02) -> str:
    return datetime.fromtimestamp(1_700_000_000 + row * step_s, timezone.utc).isoformat(
        sep=" ", timespec="milliseconds"
    )


@pytest.mark.parametrize(
    ("header", "stamp", "options", "found"),
    [
        ("time", lambda row: row * 0.02, (), ("time", "s", 50)),
        ("t", lambda row: row * 20, (), ("t", "ms", 50)),
        ("t", lambda row: row * 20_000, (), ("t", "us", 50)),
        ("time_ms", lambda row: row * 20, (), ("time_ms", "ms", 50)),
        ("Time [s]", lambda row: row * 0.02, (), ("Time [s]", "s", 50)),
        ("seconds", lambda row: row, (), ("seconds", "s", 1)),
        ("t", lambda row: row, ("--time-unit", "s"), ("t", "s", 1)),
        ("t", lambda row: row, ("--rate", "50"), ("", "s", 50)),
        ("t", lambda row: row, ("--rate", "1000"), ("t", "ms", 1000)),
        ("timestamp", lambda row: 1_700_000_000_000 + row * 20, (), ("timestamp", "ms", 50)),
        ("timestamp", lambda row: 1_700_000_000 + row, (), ("timestamp", "s", 1)),
        ("datetime", iso, (), ("datetime", "iso8601", 50)),
        ("Date", lambda row: iso(row)[:23].replace(" ", "T") + "Z", (), ("Date", "iso8601", 50)),
        ("datetime", lambda row: iso(row)[:19], ("--rate", "50"), ("", "s", 50)),
    ],
)
def test_the_unit_of_stamps_is_found(
    header: str, stamp: Callable[[int], object], options: tuple[str, ...], found: tuple[str, str, float], tmp_path: Path
) -> None:
    folder = recordings.stamped(tmp_path / "data", stamp, header=header)
    window = {1: "40", 50: "0.64", 1000: "0.1"}[int(found[2])]
    recipe = written(folder, tmp_path / "out", "--window", window, *options)
    (reader,) = recipe.data
    assert reader.type == "table"
    assert (reader.time, reader.time_unit, recipe.window.rate_hz) == found


@pytest.mark.parametrize(
    ("header", "stamp", "message"),
    [
        ("t", lambda row: row, "say --time-unit s (1 Hz) or ms (1000 Hz), or --rate HZ if it counts rows"),
        ("t", lambda row: row * 60, "--time-unit s (0.01667 Hz) or ms (16.67 Hz)"),
        ("t", lambda row: row * 1000, "ms (1 Hz) or us (1000 Hz)"),
        ("datetime", lambda row: iso(row)[:19], "stands still for about 5"),
        ("time", lambda row: f"day {row}", "column 'time': row 1: 'day 0' is not an ISO 8601 date and time"),
        ("time,ts", lambda row: f"{row * 0.02},{row}", "which are the stamps, time or ts? say --time-column COLUMN"),
    ],
)
def test_stamps_that_can_be_read_in_two_ways_are_asked_for(
    header: str, stamp: Callable[[int], object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recordings.stamped(tmp_path / "data", stamp, header=header)
    assert message in refused(folder, tmp_path / "out", capsys)


def test_what_is_assumed_of_stamps_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(recordings.stamped(tmp_path / "data", lambda row: row * 20, header="t"), tmp_path / "out")
    assert "ms is assumed, other units would give 0.05 or 5e+04 Hz" in capsys.readouterr().out


def test_a_person_with_another_rate_is_named_and_one_with_another_unit_of_time_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = recordings.stamped(tmp_path / "mixed", lambda row: row * 0.01, odd=lambda row: row * 0.02)
    assert written(mixed, tmp_path / "out").window.rate_hz == 50
    said = capsys.readouterr().out
    assert re.search(r"files differ: 50 Hz \(\w+/p3.csv\) to 100 Hz", said)
    assert re.search(r"recordings have 50 Hz \(\w+/p3\) to 100 Hz .*; windows have 50 Hz", said)
    torn = recordings.stamped(tmp_path / "torn", lambda row: row * 0.02, odd=lambda row: row * 20)
    assert "p3.csv: its stamps give 0.05 Hz, those of others 50 Hz" in refused(torn, tmp_path / "out2", capsys)


def test_a_person_in_metres_a_second_squared_among_people_in_g_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recordings.csv_folders(tmp_path / "data")
    for path in folder.glob("*/p2_0.csv"):
        header, *lines = path.read_text().splitlines()
        rows = [line.split(",") for line in lines]
        turned = [",".join([*row[:2], *(f"{float(value) / 9.80665:.5f}" for value in row[2:])]) for row in rows]
        path.write_text("\n".join([header, *turned]) + "\n")
    error = refused(folder, tmp_path / "out", capsys)
    assert "group p2: its values in m/s2 are" in error
    assert "which is the ratio of m/s2 and g: is it in another unit?" in error


def empty_some(folder: Path, every: int, column: int = 3) -> Path:
    for path in folder.glob("*/p1_0.csv"):
        rows = [line.split(",") for line in path.read_text().splitlines()]
        for row in rows[5::every]:
            row[column] = ""
        path.write_text("\n".join(map(",".join, rows)) + "\n")
    return folder


def test_rows_with_an_empty_cell_are_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = empty_some(recordings.csv_folders(tmp_path / "data"), 100)
    recipe = written(folder, tmp_path / "out")
    assert [channel.name for channel in recipe.window.channels] == ["ax", "ay", "az"]
    said = capsys.readouterr().out
    assert "rows with an empty cell are left out: rest/p1_0.csv: 6 of 600 rows" in said
    assert "18 rows of 3 files were left out, since a cell was empty" in said
    dataset, _ = read_all(recipe, {"data": folder})
    (one,) = [recording for recording in dataset.recordings if recording.name == "walk/p1_0"]
    assert len(one.values) == 594
    assert one.t is not None
    assert np.diff(one.t).max() == pytest.approx(0.04)


def test_empty_cells_without_stamps_or_almost_everywhere_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = empty_some(recordings.csv_folders(tmp_path / "data"), 1)
    assert "rows have an empty cell, most in 'ay (m/s2)'" in refused(folder, tmp_path / "out", capsys)
    folder = empty_some(recordings.csv_folders(tmp_path / "more"), 100)
    for path in folder.glob("*/*.csv"):
        path.write_text(path.read_text().replace("index,time", "index,row", 1))
    error = refused(folder, tmp_path / "out", capsys, "--rate", "50", "--channels", "ax (m/s2),ay (m/s2),az (m/s2)")
    assert "without stamps no row can be left out" in error


def test_few_windows_of_a_class_are_said_and_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recordings.csv_folders(tmp_path / "data", seconds=2.5)
    assert written(folder, tmp_path / "out", "--window", "2").window.samples == 100
    assert re.search(r"train: class 'run' has \d windows; 20 are needed to rely on it", capsys.readouterr().out)


@pytest.mark.parametrize("name", [*TIME_COLUMNS, *OTHER_TIME_COLUMNS, "Time (s)", "timestamp_ms"])
def test_a_column_of_stamps_is_known_to_auto_and_to_replay_by_the_same_names(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rec.csv"
    path.write_text(f"{name},ax\n" + "".join(f"{row * 20},1\n" for row in range(100)))
    files = [content_of("table", path, path.name)]
    assert time_column(files, Hints()) == name
    contract = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=50, window=10, hop=10)
    stamps = np.concatenate([np.atleast_1d(reading.t) for reading in iter_readings(path, contract)])
    assert stamps[1] == pytest.approx(20 / {"s": 1, "ms": 1e3}[unit_of(name, 0.0)])


# -- what is asked for, and what is refused ----------------------------------------------------------------------------


@pytest.mark.slow
def test_units_and_rates_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recordings.one_table(tmp_path / "data")
    assert "channel 'ax': in which unit? say --unit ax=UNIT" in refused(folder, tmp_path / "out", capsys)
    for path in folder.glob("*.csv"):
        path.write_text(path.read_text().replace("time", "when", 1))
    error = refused(folder, tmp_path / "out", capsys, "--unit", "g", "--channels", "ax,ay,az")
    assert "has no column of stamps; say --rate HZ, or --time-column COLUMN" in error
    recipe = written(folder, tmp_path / "out", "--unit", "g", "--channels", "ax,ay,az", "--rate", "50")
    assert recipe.window.rate_hz == 50


def test_one_person_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recordings.one_table(tmp_path / "data", subject=False)
    error = refused(folder, tmp_path / "out", capsys, "--unit", "g", "--group-files")
    assert "the recordings are of 1 groups (all); at least three are needed" in error
    folder = recordings.csv_folders(tmp_path / "two", persons=2)
    assert "of 2 groups (p0, p1)" in refused(folder, tmp_path / "out", capsys, "--group", r"(p\d)_")


def test_a_class_of_too_few_people_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recordings.csv_folders(tmp_path / "data")
    for person in (1, 2, 3):
        (folder / "run" / f"p{person}_0.csv").unlink()
    assert "class 'run' occurs in 2 of 5 groups (p0, p4)" in refused(folder, tmp_path / "out", capsys)


def test_copies_would_be_asked_of_whoever_taught_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recordings.csv_folders(tmp_path / "data")
    (folder / "walk" / "p7_0.csv").write_bytes((folder / "walk" / "p1_0.csv").read_bytes())
    assert "walk/p7_0.csv and walk/p1_0.csv are the same recording" in refused(folder, tmp_path / "out", capsys)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda folder: (folder / "loose.csv").write_text("time,ax\n0,1\n"), (), "loose.csv: which class is it?"),
        (lambda folder: recordings.tone(folder / "rest" / "x.wav", 300), (), "holds several kinds of files"),
        (lambda folder: (folder / "run" / "p0_0.csv").write_text("time,b\n0,1\n"), (), "has no column 'ax"),
        (lambda folder: (folder / "run" / "p0_0.csv").write_text("1,2\n0,1\n"), (), "begins with numbers"),
        (lambda folder: (folder / "run" / "p0_0.csv").write_text(""), (), "the first line must name the columns"),
        (lambda folder: (folder / "run" / "p9_0.CSV").write_text("time,a\n0,1\n"), (), "holds .CSV and .csv files"),
        (lambda _: None, ("--group", "("), "--group '(' is not a regular expression"),
        (lambda _: None, ("--group", r"q(\d)"), "finds nothing in this path"),
        (lambda _: None, ("--target", "toaster"), "--target toaster: unknown; one of: any, cpu"),
        (lambda _: None, ("--window", "60"), "is longer than what is labelled"),
        (lambda _: None, ("--label-column", "mood"), "has no column 'mood' for the label"),
        (lambda _: None, ("--max-forwarded", "2"), "--max-forwarded is a share below 1"),
    ],
)
def test_what_cannot_be_known_ends_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: object, options: tuple[str, ...], message: str
) -> None:
    folder = recordings.csv_folders(tmp_path / "data", seconds=4)
    change(folder)  # type: ignore[operator]
    assert message in refused(folder, tmp_path / "out", capsys, *options)


def test_an_output_among_the_recordings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recordings.csv_folders(tmp_path / "data", seconds=4)
    assert "lies among the recordings" in refused(folder, folder / "out", capsys)
    assert "no such folder" in refused(tmp_path / "none", tmp_path / "out", capsys)
    (tmp_path / "empty").mkdir()
    assert "holds no .wav, .csv, .parquet, .jsonl or .npz file" in refused(tmp_path / "empty", tmp_path / "out", capsys)


# -- names and deals ---------------------------------------------------------------------------------------------------


def test_where_class_and_person_are_both_folders_names_of_people_tell_them_apart() -> None:
    names = [f"{label}/p{person}/{take}.csv" for label in "ab" for person in range(3) for take in range(2)]
    assert label_pattern(names, "")[0] == r"^([^/]+)/"
    turned = [f"p{person}/{label}/{take}.csv" for label in ("walk", "sit") for person in range(3) for take in range(2)]
    assert label_pattern(turned, "")[0] == r"([^/]+)/[^/]+$"
    with pytest.raises(ConfigError, match="which folder is the class"):
        label_pattern([f"{a}/{b}/1.csv" for a in ("x", "y", "z") for b in ("walk", "sit")], "")


@settings(deadline=None)
@given(st.integers(3, 30), st.integers(2, 5))
def test_no_group_is_in_two_sets_and_no_set_lacks_a_class(groups: int, classes: int) -> None:
    pieces = [Piece(label=str(c), group=f"g{g}", samples=10) for g in range(groups) for c in range(classes)]
    split = stratified_split(pieces)
    assert not set(split.validation) & set(split.test)
    assert split.train == groups - len(split.validation) - len(split.test)
    assert min(len(split.validation), len(split.test), split.train) >= 1
    assert stratified_split(list(reversed(pieces))) == split


def test_where_each_group_has_one_class_every_set_gets_all() -> None:
    pieces = [Piece(label=str(g % 4), group=f"g{g}", samples=10) for g in range(24)]
    split = stratified_split(pieces)
    for names in (split.validation, split.test):
        assert {int(name[1:]) % 4 for name in names} == {0, 1, 2, 3}


# -- real recordings ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_spoken_digits_as_a_folder_of_sounds(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four speakers, ten digits: the speaker is found in the names, and told apart from digit and take."""
    folder = tmp_path / "digits"
    for path in sorted((shared / "data" / "spoken-digits-fsdd").glob("*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            pcm, offset, digit, take = (stored[key] for key in ("pcm", "offset", "digit", "take"))
        for i in np.flatnonzero(take < 10).tolist():
            recordings.tone(folder / str(digit[i]) / f"{digit[i]}_{path.stem}_{take[i]}.wav", 1)
            _overwrite(folder / str(digit[i]) / f"{digit[i]}_{path.stem}_{take[i]}.wav", pcm[offset[i] : offset[i + 1]])
    recipe = written(folder, tmp_path / "out")
    assert recipe.classes == tuple("0123456789")
    assert recipe.window.clip_s == 1.0
    held = {*recipe.split.validation, *recipe.split.test}
    assert len(held) == 2
    assert held < {"george", "jackson", "lucas", "theo"}
    assert "train: 200 windows" in capsys.readouterr().out


def _overwrite(path: Path, pcm: np.ndarray) -> None:
    import wave  # noqa: PLC0415

    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(pcm.astype("<i2").tobytes())
