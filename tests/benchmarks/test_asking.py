from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="answers are kept beside what trains the models of a fold (edge-export[train])")

from edge_export.choose.surround.cross_fit import CLOUD, OutOfFold
from edge_export.data.dataset import Windows

from benchmarks.accuracy.answers import FILES
from benchmarks.accuracy.asking import asking, calibrated
from tests.edge_export.choose.surround.streams import simulated


def kept(seed: int = 0) -> OutOfFold:
    given = simulated(seed, device=2.0, cloud=3.0)
    n = len(given.y)
    windows = Windows(
        contexts=np.zeros((n, 1, 1), np.float32),
        samples=1,
        y=given.y,
        group=given.group,
        recording=given.group.astype(np.int64),
        start=np.arange(n),
    )
    return OutOfFold(windows=windows, given={FILES[-1]: given.device, CLOUD: given.cloud}, fold=given.fold)


def test_a_set_is_reported_at_every_share_with_its_verdict() -> None:
    report = asking([("walks", kept())], "accuracy")
    assert [row[0] for row in report.rows] == [f"walks, {share}" for share in ("2%", "5%", "8%", "10%", "20%")]
    assert len({row[1] for row in report.rows}) == 1
    assert report.notes[0].startswith("walks: ask the cloud: ")


def test_a_fold_has_the_temperature_that_the_others_call_for() -> None:
    """Mutation that this finds: a temperature that has seen the labels it is judged by."""
    found = kept()
    held = found.fold == 0
    shuffled = np.where(held, (found.windows.y + 1) % 4, found.windows.y)
    other = replace(found, windows=replace(found.windows, y=shuffled))
    one, two = calibrated(found), calibrated(other)
    np.testing.assert_array_equal(one.cloud[held], two.cloud[held])
    assert two.cloud[~held].max(axis=1).mean() < one.cloud[~held].max(axis=1).mean() - 0.05
