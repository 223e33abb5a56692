"""Pictures of a folder as a recording: keys, stamps, labels by folder, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime.base.media import picture as pictures
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings.labels import labels_for
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import iter_blocks, iter_readings
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.frames import Frame, frame_names
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.types import Reading
from tests.edge_runtime.base.media.pictures import jpeg, picture, png

FRAME = Frame(height=6, width=8)
CONTRACT = InputContract(
    channels=tuple(Channel(name=name, unit="1") for name in frame_names("rgb")),
    rate_hz=5 * 48,
    window=48,
    hop=48,
    frame=FRAME,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(("cats/2.jpg", "cats/1.jpg", "dogs/1.JPEG")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(picture(6, 8, seed=i)))
    (tmp_path / "cats" / "readme.txt").write_text("no picture")
    return tmp_path


def readings(path: Path, **layout: object) -> list[Reading]:
    return list(iter_readings(path, CONTRACT, RecordingLayout(**layout)))  # type: ignore[arg-type]


def test_each_picture_below_a_folder_has_a_key_of_its_own(folder: Path) -> None:
    found = readings(folder)
    assert [(one.key, one.t) for one in found] == [("cats/1.jpg", 0.0), ("cats/2.jpg", 0.0), ("dogs/1.JPEG", 0.0)]
    assert len(windower_of(CONTRACT).push(found)) == 3


@pytest.mark.parametrize(("rate_hz", "step_s"), [(0.0, 0.2), (2.0, 0.5)])
def test_with_one_key_they_follow_each_other(folder: Path, rate_hz: float, step_s: float) -> None:
    found = readings(folder, key="door", rate_hz=rate_hz)
    assert [(one.key, one.t) for one in found] == [("door", i * step_s) for i in range(3)]
    assert len(windower_of(CONTRACT).push(found)) == 3


def test_a_single_picture_is_called_as_its_file(folder: Path) -> None:
    assert [one.key for one in readings(folder / "cats" / "1.jpg")] == ["1"]


def test_the_folder_of_each_is_its_label(folder: Path) -> None:
    labels = labels_for(CONTRACT)
    windower = windower_of(CONTRACT)
    found = iter_readings(folder, CONTRACT, RecordingLayout(label="folder"), on_labels=labels.add)
    windows = windower.push(list(found))
    length_s = CONTRACT.window / CONTRACT.rate_hz
    told = [labels.of(one.id, one.key, one.start, one.start + length_s) for one in windows]
    assert told == ["cats", "cats", "dogs"]


def test_a_damaged_picture_is_left_out_and_named(folder: Path) -> None:
    (folder / "cats" / "1.jpg").write_bytes(b"\xff\xd8\xff no picture")
    refused: list[InputError] = []
    assert len(list(iter_readings(folder, CONTRACT, on_refused=refused.append))) == 2
    assert [error.reason for error in refused] == ["malformed"]
    assert "cats/1.jpg: a damaged JPEG" in str(refused[0])


def test_only_jpeg_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "_find", lambda _name: None)
    (tmp_path / "a.png").write_bytes(png(picture(6, 8)))
    assert [one.key for one in readings(tmp_path)] == ["a.png"]
    (tmp_path / "b.png").write_bytes(b"\xff\xd8\xff\xe0")  # by its name no JPEG
    refused: list[InputError] = []
    found = list(iter_readings(tmp_path, CONTRACT, on_refused=refused.append))
    assert (len(found), len(refused)) == (1, 1)
    assert "b.png: pictures need a JPEG library" in str(refused[0])
    (tmp_path / "b.png").rename(tmp_path / "b.jpg")
    with pytest.raises(ConfigError, match="pictures need a JPEG library"):
        readings(tmp_path)


def test_what_cannot_be_played_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no picture, and no other recording"):
        readings(tmp_path / "empty")
    plain = InputContract(channels=(Channel(name="a", unit="1"),), rate_hz=1, window=9, hop=9)
    with pytest.raises(ConfigError, match="takes no pictures"):
        list(iter_readings(folder, plain))
    with pytest.raises(ConfigError, match="label 'folder' is the folder of each"):
        list(iter_readings(folder, CONTRACT, RecordingLayout(label="class"), on_labels=lambda *_: None))
    with pytest.raises(ConfigError, match="no rows"):
        list(iter_blocks(folder, CONTRACT, RecordingLayout(), on_refused=lambda _: None))


def test_values_are_those_of_the_codec(folder: Path) -> None:
    (first, *_) = readings(folder)
    assert first.values.shape == (48, 3)
    assert first.values.dtype == np.float32
    assert 0 <= first.values.min() <= first.values.max() <= 255
