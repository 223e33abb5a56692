"""A file read for training gives the samples that ``edge-runtime replay`` plays, in every format."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pytest
from edge_export.data.labels import label_windows
from edge_export.data.readers import Origin, TableReader, read
from edge_export.recipe.auto import Hints, infer_recipe, scan_folder
from edge_export.recipe.auto.infer import Order
from edge_export.recipe.recipe import load
from edge_export.recipe.splits import read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.io.recordings.csv_file import csv_columns
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.manifest import Channel, InputContract
from tests.edge_runtime.io.recordings.wav_files import write as write_wav
from tests.edge_runtime.io.sources import test_partial as several

Floats = npt.NDArray[np.float64]
START = 1_700_000_000.0
RATE = 50
CLASSES = ("rest", "walk")


def csv(path: Path, t: Floats, x: Floats, label: str) -> None:
    rows = zip((t * 1e3).tolist(), *x.T.tolist(), strict=True)
    path.write_text("time_ms;label;ax (g);ay (g)\n" + "".join(f"{at!r};{label};{a!r};{b!r}\n" for at, a, b in rows))


def csv_of_dates(path: Path, t: Floats, x: Floats, label: str) -> None:
    stamps = np.datetime_as_string((t * 1e6).round().astype("datetime64[us]"))
    rows = [f'"{at}Z",{label},{a!r},"{b!r}"\n' for at, a, b in zip(stamps, *x.T.tolist(), strict=True)]
    rows[7] = f'"{stamps[7]}Z",{label},,1\n'  # an empty cell: the row is left out
    path.write_text('\ufeff"datetime", activity ,"ax","ay"\n' + "\n".join(rows))


def csv_without_stamps(path: Path, t: Floats, x: Floats, label: str) -> None:
    path.write_text("ax,ay,class\n" + "".join(f"{a!r},{b!r},{label}\n" for a, b in x.tolist()))


def parquet(path: Path, t: Floats, x: Floats, label: str) -> None:
    arrow = pytest.importorskip("pyarrow", reason='needs pyarrow: pip install "edge-runtime[parquet]"')
    pq = pytest.importorskip("pyarrow.parquet")
    stamps = arrow.array((t * 1e6).round().astype("datetime64[us]"))
    pq.write_table(arrow.table({"ay": x[:, 1], "t": stamps, "ax": x[:, 0], "label": [label] * len(t)}), path)


def npz(path: Path, t: Floats, x: Floats, label: str) -> None:
    """Whole numbers with a scale, as recordings are stored to be small."""
    numbers = np.round(x * 1000).astype(np.int32)
    np.savez(path, x=numbers, scale=np.float32(0.001), t=t, label=label, channels=["ax", "ay"])


def jsonl(path: Path, t: Floats, x: Floats, label: str) -> None:
    rows = zip(t.tolist(), *x.T.tolist(), strict=True)
    lines = [orjson.dumps({"ts": at, "imu": {"ax": a, "ay": b}, "label": label}) for at, a, b in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")


def wav(path: Path, t: Floats, x: Floats, label: str) -> None:
    write_wav(path, np.tile(np.clip(x[:, 0], -0.99, 0.99), 40).astype(np.float32), rate=16_000)


FORMATS: dict[str, tuple[str, Callable[[Path, Floats, Floats, str], None], Hints]] = {
    "csv": ("csv", csv, Hints(group_files=True)),
    "csv of dates": ("csv", csv_of_dates, Hints(group_files=True, units={"*": "g"})),
    "csv without stamps": ("csv", csv_without_stamps, Hints(group_files=True, units={"*": "g"}, rate_hz=RATE)),
    "parquet": ("parquet", parquet, Hints(group_files=True, units={"*": "g"})),
    "npz": ("npz", npz, Hints(group_files=True, units={"*": "g"}, rate_hz=RATE)),
    "jsonl": ("jsonl", jsonl, Hints(group_files=True, units={"*": "g"})),
    "wav": ("wav", wav, Hints(group_files=True, rate_hz=8000, label=r"^([a-z]+)/")),
}


def folder(where: Path, suffix: str, write: Callable[[Path, Floats, Floats, str], None]) -> list[Path]:
    """Six recordings, each of a person of its own."""
    rng = np.random.default_rng(5)
    paths = []
    for person in range(6):
        label = CLASSES[person % 2]
        n = 400 + 20 * person
        path = where / label / f"{person}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        t = START + 1000 * person + np.arange(n) / RATE
        write(path, t, np.round(rng.uniform(-1, 1, (n, 2)), 3), label)
        paths.append(path)
    return paths


@pytest.mark.parametrize("name", FORMATS)
def test_training_and_replay_read_the_same_samples(name: str, tmp_path: Path) -> None:
    suffix, write, hints = FORMATS[name]
    paths = folder(tmp_path / "data", suffix, write)
    found = scan_folder(tmp_path / "data", hints)
    order = Order(name="same", targets=("any",), created="2026-11-01", window_s=1.0)
    (tmp_path / "recipe.toml").write_text(infer_recipe(found, order).text)
    recipe = load(tmp_path / "recipe.toml")
    dataset, _ = read_all(recipe, {"same": tmp_path / "data"})
    assert recipe.classes == CLASSES
    assert len(dataset.recordings) == len(paths)
    layout = RecordingLayout(rate_hz=RATE) if name == "csv without stamps" else None
    for recording in dataset.recordings:
        path = next(
            path for path in paths if path.relative_to(tmp_path / "data").with_suffix("").as_posix() == recording.name
        )
        readings = list(iter_readings(path, recipe.window.contract(), layout, on_refused=lambda _: None))
        values = np.concatenate([reading.values for reading in readings])
        np.testing.assert_array_equal(recording.values, values)
        played = np.concatenate([np.atleast_1d(reading.t) for reading in readings])
        trained = np.arange(len(values)) / dataset.rate_hz if recording.t is None else recording.t
        np.testing.assert_array_equal(trained, played)
        rows = 400 + 20 * int(path.stem)
        assert len(values) == {"wav": 20 * rows, "csv of dates": rows - 1}.get(name, rows)


@pytest.mark.parametrize("seed", range(3))
def test_training_and_replay_cut_the_same_windows_of_sensors_that_send_on_their_own(seed: int, tmp_path: Path) -> None:
    found = several.tables(seed, 30.0)
    paths = several.one_csv_file_with_empty_cells(tmp_path, found)
    path = paths[0]
    path.write_text(
        "".join(f"{line},{'class' if not i else 'walk'}\n" for i, line in enumerate(path.read_text().split()))
    )
    origin = Origin(name="made up", source="this test", licence="CC0")
    reader = TableReader(key="d", origin=origin, files="*.csv", time="t", label_column="class", partial=True)
    dataset = read(reader, tmp_path, channels=several.CONTRACT.channels, classes=CLASSES, rate_hz=10)
    trained = label_windows(dataset, several.CONTRACT, rule="majority")
    played = several.played(paths)
    assert len(played) > 5
    assert trained.start.tolist() == [window.slot for window in played]
    np.testing.assert_array_equal(trained.x, np.stack([window.samples.T for window in played]))


CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=RATE, window=10, hop=5)
cells = st.text(st.characters(codec="ascii", exclude_characters="\r\n\0"), max_size=6)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), cells), min_size=1, max_size=20), st.sampled_from(",;\t|"))
def test_quoted_cells_of_a_csv_file_are_read_alike(rows: list[tuple[float, str]], delimiter: str) -> None:
    """Whatever stands in another column, in quotes as RFC 4180 has them."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.csv"
        quoted = ['"' + text.replace('"', '""') + '"' for _, text in rows]
        path.write_text(
            f"t{delimiter}note{delimiter}ax\n"
            + "".join(
                f"{i}{delimiter}{note}{delimiter}{x!r}\n"
                for i, (note, (x, _)) in enumerate(zip(quoted, rows, strict=True))
            )
        )
        played = np.concatenate([reading.values for reading in iter_readings(path, CONTRACT)])[:, 0]
        assert played.tolist() == [np.float32(text) for text in csv_columns(path)["ax"]]
        assert csv_columns(path)["note"] == [text for _, text in rows]
