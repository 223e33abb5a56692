"""An embedding beside the recipe's teacher: what is compared, and by which measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="students are trained by torch (edge-export[train])")
pytest.importorskip("sklearn", reason="the other modules of the benchmark need scikit-learn (edge-export[train])")

from edge_export.choose.surround.cross_fit import OutOfFold
from edge_export.data.dataset import Windows
from edge_export.recipe.network_spec import Embedding
from edge_export.recipe.recipe import load

from benchmarks.accuracy.heads import WAYS, changed
from benchmarks.accuracy.sets import SETS
from benchmarks.accuracy.taught import by_embedding, log_loss, longer, over_groups

WINDOWS = Windows(
    contexts=np.zeros((4, 1, 8), np.float32), samples=8, y=np.array([0, 0, 0, 1]),
    group=np.array(["a", "a", "a", "b"]), recording=np.arange(4), start=np.zeros(4, np.int64),
)  # fmt: skip


def test_nothing_but_the_teacher_differs() -> None:
    recipe = load(SETS["spoken-digits"].recipe)
    taught = by_embedding(recipe, Path("speech.onnx"))
    assert taught.teacher.candidates == (Embedding(file=Path("speech.onnx")),)
    assert replace(taught, teacher=recipe.teacher) == recipe


def test_longer_trainings_see_more_windows() -> None:
    recipe = load(SETS["spoken-digits"].recipe)
    assert longer(recipe, 1) == recipe
    twice = longer(recipe, 2)
    assert twice.teacher.training is not None
    assert twice.student.training is not None
    assert (twice.teacher.training.steps, twice.student.training.steps, twice.student.pool) == (1000, 2400, 16384)


def test_each_group_counts_the_same_and_a_sure_mistake_costs_most() -> None:
    answers = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1]], np.float32)
    found = OutOfFold(windows=WINDOWS, given={"it": answers}, fold=np.zeros(4, np.int64))
    assert over_groups(found, "it").tolist() == [1.0, 0.0]
    assert log_loss(found, "it") == pytest.approx(-(3 * np.log(0.9) + np.log(0.1)) / 4, rel=1e-5)


def test_each_way_leaves_its_part_out() -> None:
    other = replace(WINDOWS, contexts=WINDOWS.contexts + 1)
    assert [len(changed([WINDOWS, other], way)) for way in WAYS] == [2, 1, 1, 2]
    assert changed([WINDOWS, other], "drawn windows alone")[0] is other
    alone = changed([WINDOWS, other], "windows left out instead of groups")
    assert len({*alone[0].group.tolist(), *alone[1].group.tolist()}) == 8
