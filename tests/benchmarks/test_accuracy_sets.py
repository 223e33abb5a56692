"""Sets of the accuracy benchmark: every recipe is read, and groups are what they are said to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="recipes belong to a workstation")

from edge_export.recipe.recipe import load
from edge_export.recipe.splits import read_all

from benchmarks.accuracy.sets import SETS
from edge_runtime.errors import ConfigError


@pytest.mark.parametrize("name", SETS)
def test_the_recipe_of_each_set_is_read(name: str) -> None:
    assert {reader.key for reader in load(SETS[name].recipe).data} == set(SETS[name].data)


@pytest.mark.parametrize("name", [name for name, one in SETS.items() if one.package])
def test_a_set_of_a_package_needs_no_more_than_that(name: str, tmp_path: Path) -> None:
    one = SETS[name]
    with pytest.raises(ConfigError, match=rf"--{one.package} WHEEL: pip download"):
        one.folders(None, {}, tmp_path)
    wheel = tmp_path / "package.whl"
    found = replace(one, prepare=None).folders(None, {one.package: wheel}, tmp_path)
    assert found == dict.fromkeys(one.data, wheel)


def test_recordings_are_prepared_once_and_never_by_halves(tmp_path: Path) -> None:
    calls: list[Path] = []

    def prepare(source: Path, out: Path) -> None:
        calls.append(source)
        out.mkdir(parents=True, exist_ok=True)
        if len(calls) == 1:
            raise ConfigError("cut short")

    one = replace(SETS["skab-pump"], prepare=prepare)
    with pytest.raises(ConfigError):
        one.folders(tmp_path, {}, tmp_path / "cache")
    for _ in range(2):
        assert one.folders(tmp_path, {}, tmp_path / "cache") == {"pump": tmp_path / "cache" / "recordings"}
    assert len(calls) == 2


def test_every_speaker_of_the_commands_is_a_group_of_his_own(shared: Path) -> None:
    one = SETS["speech-commands"]
    dataset, _ = read_all(load(one.recipe), one.folders(shared, {}, Path()))
    assert (len(dataset.recordings), len(dataset.groups)) == (74, 15)
