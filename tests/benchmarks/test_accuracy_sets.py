"""Sets of the accuracy benchmark: every recipe is read, and groups are what they are said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="recipes belong to a workstation")

from edge_export.recipe.recipe import load
from edge_export.splits import read_all

from benchmarks.accuracy.sets import SETS


@pytest.mark.parametrize("name", SETS)
def test_the_recipe_of_each_set_is_read(name: str) -> None:
    assert {reader.key for reader in load(SETS[name].recipe).data} == set(SETS[name].data)


def test_every_speaker_of_the_commands_is_a_group_of_his_own(shared: Path) -> None:
    one = SETS["speech-commands"]
    dataset, _ = read_all(load(one.recipe), one.folders(shared, {}, Path()))
    assert (len(dataset.recordings), len(dataset.groups)) == (74, 15)
