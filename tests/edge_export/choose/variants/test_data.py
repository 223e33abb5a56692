"""Arrays on disk as recordings, and their split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edge_export.choose.variants.data import CallSequence, of_windows, read_arrays, split, thinned
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from tests.edge_export.choose.variants import models
from tests.edge_export.graphs import windows


def test_arrays_named_after_inputs_are_one_recording(tmp_path: Path) -> None:
    source = models.classifier(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "window.npy", windows(9, 3, 40))
    np.save(data / "labels.npy", np.arange(9) % 4)
    (one,) = read_arrays(data, source, {})
    assert one.inputs["window"].shape == (9, 1, 3, 40)
    assert one.labels is not None
    assert one.labels.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_class_folders_give_labels_by_the_order_of_their_names_or_of_the_classes(tmp_path: Path) -> None:
    source = models.classifier(tmp_path)
    for kind in ("walk", "run"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        np.save(tmp_path / "data" / kind / "a.npy", windows(2, 3, 40))
    by_name = {one.kind: one.labels for one in read_arrays(tmp_path / "data", source, {})}
    assert {kind: set(labels) for kind, labels in by_name.items() if labels is not None} == {"run": {0}, "walk": {1}}
    stated = {one.kind: one.labels for one in read_arrays(tmp_path / "data", source, {}, ["walk", "run"])}
    assert {kind: set(labels) for kind, labels in stated.items() if labels is not None} == {"walk": {0}, "run": {1}}
    with pytest.raises(ConfigError, match="'run' is none of the classes"):
        read_arrays(tmp_path / "data", source, {}, ["walk", "stand"])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"other": np.zeros((3, 3, 40), np.float32), "more": np.zeros(3)},
            "holds other, more, and the model's inputs are",
        ),
        ({"window": np.zeros((3, 4, 40), np.float32)}, r"takes an array of \(n, 3, 40\), and this one is \(3, 4, 40\)"),
        ({"window": np.zeros((3, 3, 40), np.float32), "labels": np.zeros(2)}, "as many entries"),
        ({"window": np.zeros((0, 3, 40), np.float32)}, "as many entries"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    source = models.classifier(tmp_path)
    np.savez(tmp_path / "a.npz", allow_pickle=False, **arrays)
    with pytest.raises(ConfigError, match=message):
        read_arrays(tmp_path / "a.npz", source, {})


def test_nothing_to_read_names_the_inputs(tmp_path: Path) -> None:
    source = models.classifier(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ConfigError, match=r"no \.npz or \.npy file with arrays of the model's inputs \(window \(any, 3"
    ):
        read_arrays(tmp_path / "empty", source, {})
    with pytest.raises(ConfigError, match="not there"):
        read_arrays(tmp_path / "nowhere", source, {})
    with pytest.raises(ConfigError, match="not one window"):
        of_windows([], source, {}, ["a", "b"])


def test_a_constant_of_another_name_is_refused(tmp_path: Path) -> None:
    source = models.classifier(tmp_path)
    with pytest.raises(ConfigError, match="--constant sr: the model's inputs are window"):
        read_arrays(models.recordings(tmp_path / "data", files=1), source, {"sr": 1.0})


def recording(name: str, calls: int, kind: str = "") -> CallSequence:
    return CallSequence(name=name, inputs={"x": np.arange(calls)[:, None]}, kind=kind)


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from("ab")), min_size=2, max_size=12))
def test_no_file_is_in_both_parts_and_none_is_lost(files: list[tuple[int, str]]) -> None:
    whole = [recording(f"f{i}", calls, kind) for i, (calls, kind) in enumerate(files)]
    if all(len([one for one in whole if one.kind == kind]) < 2 for kind in "ab"):
        return
    parts = split(whole)
    names = [one.name for one in (*parts.calibration, *parts.held_out)]
    assert sorted(names) == sorted(one.name for one in whole)
    assert parts.held_out
    assert parts.calibration


@given(st.integers(4, 200))
def test_blocks_of_one_recording_neither_meet_nor_overlap(calls: int) -> None:
    parts = split([recording("one", calls)])
    first, last = parts.calibration[0].inputs["x"], parts.held_out[0].inputs["x"]
    assert int(first.max()) < int(last.min())
    assert int(last.max()) == calls - 1
    assert "contiguous blocks" in parts.how


def test_one_call_cannot_be_split() -> None:
    with pytest.raises(ConfigError, match="too few"):
        split([recording("one", 1)])


def test_thinned_recordings_keep_their_order_and_a_start_where_calls_follow_one_another() -> None:
    few = thinned([recording("a", 100), recording("b", 100)], 20, contiguous=True)
    assert [one.inputs["x"][:, 0].tolist() for one in few] == [list(range(10)), list(range(10))]
    spread_out = thinned([recording("a", 100)], 10, contiguous=False)
    assert spread_out[0].inputs["x"][-1, 0] == 99


def test_recordings_of_different_sizes_are_refused_with_both() -> None:
    whole = [CallSequence(name=name, inputs={"ids": np.zeros((6, 1, size))}) for name, size in (("a", 5), ("b", 9))]
    with pytest.raises(ConfigError, match=r"input 'ids' is \(1, 5\) in a and \(1, 9\) in b; pad or cut"):
        split(whole)
