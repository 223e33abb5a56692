"""Recordings, windows and the file that holds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edge_export.data.dataset import (
    Dataset,
    Recording,
    load_recordings,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.batch import with_context
from edge_runtime.signal.windowing.recorded import cut_recording
from tests.edge_export.recordings import cut_windows, save_recordings


def dataset(*lengths: int, groups: str = "abc") -> Dataset:
    random = np.random.default_rng(7)
    return Dataset(
        name="made-up",
        channels=(Channel(name="x", unit="g"), Channel(name="y", unit="rad/s")),
        rate_hz=50.0,
        classes=("rest", "move"),
        recordings=tuple(
            Recording(
                name=f"r{i}",
                group=groups[i % len(groups)],
                label=i % 2,
                values=(random.integers(-2000, 2000, (length, 2)) / 256).astype(np.float32),
                tags={"side": "left"},
            )
            for i, length in enumerate(lengths)
        ),
    )


def test_windows_lie_inside_their_recordings_and_keep_label_group_and_place() -> None:
    made = dataset(25, 9, 40)
    windows = cut_windows(made, samples=10, hop=5)
    assert windows.start.tolist() == [0, 5, 10, 15, 0, 5, 10, 15, 20, 25, 30]
    assert windows.recording.tolist() == [0] * 4 + [2] * 7
    assert windows.y.tolist() == [0] * 11
    assert windows.group.tolist() == ["a"] * 4 + ["c"] * 7
    np.testing.assert_array_equal(windows.x[5], made.recordings[2].values[5:15].T)


@given(length=st.integers(10, 80), samples=st.integers(4, 10), hop=st.integers(1, 10), more=st.integers(0, 40))
@settings(deadline=None)
def test_training_sees_the_windows_and_contexts_that_a_device_cuts(
    length: int, samples: int, hop: int, more: int
) -> None:
    hop = min(hop, samples)
    made = dataset(length)
    contract = InputContract(
        channels=made.channels,
        rate_hz=50.0,
        window=samples,
        hop=hop,
        context=samples + more,
    )
    ours = cut_windows(made, samples=samples, hop=hop, context=samples + more)
    device = cut_recording(contract, "k", 0.0, made.recordings[0].values)
    assert len(ours) == len(device)
    for i, window in enumerate(device):
        np.testing.assert_array_equal(ours.x[i], window.samples.T)
        np.testing.assert_array_equal(ours.contexts[i], with_context(window, samples + more))


@pytest.mark.parametrize(("samples", "hop", "context"), [(0, 1, None), (4, 0, None), (4, 1, 3), (100, 1, None)])
def test_impossible_windows_are_refused(samples: int, hop: int, context: int | None) -> None:
    with pytest.raises(ConfigError):
        cut_windows(dataset(20), samples=samples, hop=hop, context=context)


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(ConfigError, match="no group 'z'"):
        dataset(20).only(["a", "z"])


def test_recordings_come_back_as_stored_and_the_file_is_the_same_every_time(tmp_path: Path) -> None:
    made = dataset(30, 20)
    for name in ("one.npz", "two.npz"):
        save_recordings(tmp_path / name, made, scale=(2.0**-8, 2.0**-8))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    back = load_recordings(tmp_path / "one.npz")
    assert (back.name, back.channels, back.rate_hz, back.classes) == (
        made.name,
        made.channels,
        made.rate_hz,
        made.classes,
    )
    for before, after in zip(made.recordings, back.recordings, strict=True):
        assert (before.name, before.group, before.label, before.tags) == (
            after.name,
            after.group,
            after.label,
            after.tags,
        )
        np.testing.assert_array_equal(before.values, after.values)


def test_groups_that_are_numbers_are_stored_as_numbers(tmp_path: Path) -> None:
    save_recordings(tmp_path / "r.npz", dataset(20, 20, groups="12"), scale=(1.0, 1.0))
    with np.load(tmp_path / "r.npz", allow_pickle=False) as stored:
        assert stored["subject"].tolist() == [1, 2]
    assert load_recordings(tmp_path / "r.npz").groups == ("1", "2")


def test_values_beyond_the_range_are_refused_not_clipped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger step"):
        save_recordings(tmp_path / "r.npz", dataset(20), scale=(1e-6, 1.0))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x93NUMPY"])
def test_a_file_that_is_not_recordings_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.npz"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"r\.npz is not a file of recordings"):
        load_recordings(path)
