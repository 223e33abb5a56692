"""Surround, fitted part by part: what wins on groups left out is kept, and nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="out-of-fold answers come from networks that torch trains (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")

from edge_export.choose.surround.cross_fit import CLOUD, OutOfFold
from edge_export.choose.surround.fit import FittedSurround, fit_surround, require_groups
from edge_export.choose.surround.judge import rows, summary
from edge_export.choose.surround.log_linear import softmax
from edge_export.choose.surround.over_time import mean_of_last, streams_of, transitions
from edge_export.data.dataset import Windows
from edge_export.recipe.recipe import GateRecipe, SurroundRecipe

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import GateSpec

Float32 = npt.NDArray[np.float32]
HOP, CLASSES = 10, 3


def stream(*, stay: float, groups: int = 8, n: int = 300, seed: int = 0, by_label: bool = False) -> Windows:
    """Groups of one recording each, whose label stays with this probability; or a recording for each stretch."""
    random = np.random.default_rng(seed)
    y = np.empty((groups, n), np.int64)
    y[:, 0] = random.integers(0, CLASSES, groups)
    for at in range(1, n):
        moved = random.random(groups) >= stay
        y[:, at] = np.where(moved, random.integers(0, CLASSES, groups), y[:, at - 1])
    flat, group = y.ravel(), np.repeat(np.arange(groups), n)
    recording, start = group, np.tile(np.arange(n) * HOP, groups)
    if by_label:
        recording = np.concatenate([[0], np.cumsum((np.diff(flat) != 0) | (np.diff(group) != 0))])
        _, first = np.unique(recording, return_index=True)
        start = (np.arange(len(flat)) - first[recording]) * HOP
    empty = np.zeros((len(flat), 1, 1), np.float32)
    return Windows(contexts=empty, samples=1, y=flat, group=group.astype(str), recording=recording, start=start)


def answers(windows: Windows, knows: float, seed: int) -> Float32:
    """What a network says that knows so much of a window: as sure as it is right."""
    random = np.random.default_rng(seed)
    seen = random.normal(size=(len(windows), CLASSES)) + knows * np.eye(CLASSES)[windows.y]
    return softmax(knows * seen).astype(np.float32)


SHARE = GateRecipe(max_forwarded=0.1)


def fitted(windows: Windows, device: Float32, cloud: Float32, gate: GateRecipe = SHARE) -> FittedSurround:
    fold = windows.group.astype(np.int64) % 4
    unseen = OutOfFold(windows=windows, given={"d": device, CLOUD: cloud}, fold=fold)
    return fit_surround(SurroundRecipe(), gate, unseen, device, cloud, hop=HOP, metric="accuracy")


@pytest.mark.slow
def test_labels_that_last_are_filtered_and_a_cloud_that_knows_more_is_asked() -> None:
    windows = stream(stay=0.95)
    device, cloud = answers(windows, 1.0, 1), answers(windows, 2.5, 2)
    found = fitted(windows, device, cloud)
    assert found.surround is not None
    assert found.surround.over_time is not None
    assert np.diag(found.surround.over_time.transition).min() > 0.7
    assert found.surround.gate.share == 0.1
    told = found.measured["over_time"]
    assert told["filter"]["gain"] > 0.1
    assert told["filter"]["gain"] > max(told[f"mean of {n}"]["gain"] for n in (2, 3, 5))
    unseen = stream(stay=0.95, seed=9)
    gate = GateSpec(threshold=0.5)
    ways, y, group = rows(found.surround, gate, unseen, answers(unseen, 1.0, 3), answers(unseen, 2.5, 4), hop=HOP)
    scores = summary(ways, y, group, classes=CLASSES)
    assert [row.name for row in ways] == ["device", "with cloud", "over time", "all"]
    assert scores["device"]["accuracy"] + 0.1 < scores["over time"]["accuracy"] < scores["all"]["accuracy"]
    assert scores["all"]["forwarded"] == pytest.approx(0.1, abs=0.02)
    assert all(share == pytest.approx(0.1, abs=0.05) for share in scores["all"]["forwarded_by_group"].values())


@pytest.mark.slow
def test_labels_that_say_nothing_of_the_next_are_left_alone_and_a_cloud_that_knows_no_more_is_not_asked() -> None:
    windows = stream(stay=0.0, n=400)
    device = answers(windows, 1.0, 1)
    found = fitted(windows, device, device.copy())
    assert found.surround is None
    assert any("left out" in line for line in found.said)
    assert any("ship without the cloud" in line for line in found.said)


@pytest.mark.slow
def test_a_bound_on_errors_sets_a_threshold_that_stays() -> None:
    windows = stream(stay=0.95)
    found = fitted(windows, answers(windows, 2.0, 1), answers(windows, 3.0, 2), GateRecipe(max_local_error=0.1))
    assert found.surround is not None
    assert found.surround.gate.share == 0.0
    assert "local_error" in found.surround.gate.expected


def test_recordings_cut_by_label_are_joined_to_streams_that_change() -> None:
    windows = stream(stay=0.95, by_label=True, groups=3)
    streams = streams_of(windows, HOP)
    assert len(np.unique(windows.recording)) > 10
    assert len(np.unique(streams.stream)) == 3
    assert streams.run.max() == 2
    device = answers(windows, 1.0, 1)[streams.order]
    assert mean_of_last(3, streams, device).shape == device.shape
    shares = transitions(streams, CLASSES)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (np.diag(shares) > 0.85).all()


def test_clips_stay_apart() -> None:
    windows = stream(stay=0.0, groups=3, n=60, by_label=True)
    streams = streams_of(windows, HOP)
    np.testing.assert_array_equal(streams.stream, windows.recording[streams.order])


def test_too_few_groups_are_refused_before_anything_is_trained() -> None:
    require_groups(3)
    with pytest.raises(ConfigError, match=r"folds = 5"):
        require_groups(2)
