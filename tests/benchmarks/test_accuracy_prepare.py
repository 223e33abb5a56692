"""Recordings of others as the accuracy benchmark reads them: what must not be in two sets has one group."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="recipes belong to a workstation")

from edge_export.recipe.recipe import load
from edge_export.recipe.splits import read_all

from benchmarks.accuracy.prepare import TEST, basic_motions, bearings, pump, read_ts, sounds
from benchmarks.accuracy.sets import RECIPES
from edge_runtime.errors import ConfigError

SERIES = """#from somewhere
@problemName Two
@dimensions 2
@classLabel true Slow Fast
@data
1,2,3:4,5,6:Fast
7,8:9,10:Slow
"""


def test_series_are_read_with_their_channels_and_classes() -> None:
    classes, series, labels = read_ts(SERIES)
    assert (classes, labels) == (["Slow", "Fast"], [1, 0])
    assert series[0].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert series[1].shape == (2, 2)


def test_a_file_without_classes_is_refused() -> None:
    with pytest.raises(ConfigError, match="classLabel"):
        read_ts("@problemName Two\n@data\n1:2\n")


def test_an_official_test_set_stays_apart_and_training_series_are_dealt_by_class(tmp_path: Path) -> None:
    lines = "".join(f"{','.join(['1'] * 100)}:{label}\n" for label in ("Standing", "Running") for _ in range(10))
    text = "@classLabel true Standing Running\n@data\n" + lines
    wheel = tmp_path / "aeon.whl"
    with zipfile.ZipFile(wheel, "w") as package:
        for part in ("TRAIN", "TEST"):
            package.writestr(f"aeon/datasets/data/BasicMotions/BasicMotions_{part}.ts", text)
    basic_motions(wheel, tmp_path / "out")
    with np.load(tmp_path / "out" / "train.npz") as train, np.load(tmp_path / "out" / "test.npz") as test:
        assert set(test["group"].tolist()) == {TEST}
        for group in np.unique(train["group"]):
            assert np.bincount(train["label"][train["group"] == group]).tolist() == [2, 2]


def test_a_package_that_is_not_aeon_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pip download --no-deps aeon"):
        basic_motions(tmp_path / "nothing.whl", tmp_path / "out")


def test_a_bearing_is_in_one_group_and_the_healthy_one_in_each_a_second_apart(shared: Path, tmp_path: Path) -> None:
    bearings(shared / "data" / "bearing-cwru", tmp_path)
    dataset, _ = read_all(load(RECIPES / "cwru-bearings.toml"), {"bearings": tmp_path})
    assert sorted(dataset.groups) == ["007", "014", "021", "028"]
    faults = [recording for recording in dataset.recordings if recording.label]
    assert all(recording.group in recording.name for recording in faults)
    healthy = [recording for recording in dataset.recordings if not recording.label]
    assert sorted(recording.group for recording in healthy) == sorted(dataset.groups)


def test_each_experiment_at_the_pump_is_a_group_with_labels_by_second(shared: Path, tmp_path: Path) -> None:
    pump(shared / "data" / "anomaly-skab", tmp_path)
    dataset, _ = read_all(load(RECIPES / "skab-pump.toml"), {"pump": tmp_path})
    assert len(dataset.groups) == 23
    marks = {recording.group: recording.marks for recording in dataset.recordings}
    assert sum(found is not None and found.max() == 1 for found in marks.values()) == 22
    quiet = marks["anomaly-free"]
    assert quiet is not None
    assert quiet.max() == 0


def test_clips_of_sounds_keep_their_fold(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("soundfile", reason="soundfile reads the clips: pip install soundfile")
    sounds(shared / "data" / "env-sounds-esc10", tmp_path)
    dataset, _ = read_all(load(RECIPES / "esc10.toml"), {"esc10": tmp_path})
    assert (len(dataset.recordings), sorted(dataset.groups)) == (320, ["fold1", "fold2", "fold3", "fold4"])
