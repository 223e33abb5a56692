"""The smartwatch set: only the reviewed bytes are opened, and the reserved people never get in."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from edge_export.data.readers import seglearn as watch

from edge_runtime.errors import ConfigError


def stored(people: list[int]) -> bytes:
    """An array file of the same form as the package's."""
    values = np.empty(len(people), dtype=object)
    for i, person in enumerate(people):
        values[i] = np.full((5, 6), person, np.float64)
    content = {
        "X": list(values),
        "y": np.array([i % 7 for i in range(len(people))]),
        "side": np.array([float(i % 2) for i in range(len(people))]),
        "subject": np.array(people, float),
        "X_labels": [c.name for c in watch.CHANNELS],
        "y_labels": list(watch.CLASSES),
    }
    body = io.BytesIO()
    np.save(body, np.array(content, dtype=object), allow_pickle=True)
    return body.getvalue()


@pytest.fixture
def array(monkeypatch: pytest.MonkeyPatch) -> bytes:
    content = stored(list(range(1, 11)))
    monkeypatch.setattr(watch, "ARRAY_SHA256", hashlib.sha256(content).hexdigest())
    return content


def test_reserved_people_are_dropped_before_anybody_sees_them(tmp_path: Path, array: bytes) -> None:
    (tmp_path / watch.ARRAY_FILE).write_bytes(array)
    dataset = watch.load_watch(tmp_path)
    assert dataset.groups == ("1", "2", "4", "5", "7", "8", "10")
    assert not {3.0, 6.0, 9.0} & {float(r.values[0, 0]) for r in dataset.recordings}


def test_wheel_folder_and_array_give_the_same(tmp_path: Path, array: bytes) -> None:
    wheel = tmp_path / "seglearn.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"seglearn/data/{watch.ARRAY_FILE}", array)
    folder = tmp_path / "unpacked" / "seglearn" / "data"
    folder.mkdir(parents=True)
    (folder / watch.ARRAY_FILE).write_bytes(array)
    names = [
        [r.name for r in watch.load_watch(source).recordings]
        for source in (wheel, tmp_path / "unpacked", folder / watch.ARRAY_FILE)
    ]
    assert names[0] == names[1] == names[2]
    assert names[0][0] == "person-1-left-PEN"


def test_an_unreviewed_array_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise AssertionError("it was opened")

    (tmp_path / watch.ARRAY_FILE).write_bytes(stored([1]))
    monkeypatch.setattr(np, "load", explode)
    with pytest.raises(ConfigError, match="it was not opened"):
        watch.load_watch(tmp_path)


@pytest.mark.parametrize("make", ["nothing", "empty folder", "text"])
def test_a_missing_or_foreign_source_says_how_to_fetch_it(tmp_path: Path, make: str) -> None:
    source = tmp_path / "seglearn.whl"
    if make == "empty folder":
        source.mkdir()
    elif make == "text":
        source.write_text("hello")
    with pytest.raises(ConfigError, match="seglearn"):
        watch.load_watch(source)


def test_mirroring_twice_changes_nothing() -> None:
    assert (watch.MIRROR**2 == 1).all()
    # A reflection flips one component of a polar vector and two of an axial one.
    assert (watch.MIRROR[:3].prod(), watch.MIRROR[3:].prod()) == (-1, 1)
