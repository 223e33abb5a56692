"""People are told apart in every layout, or asked for: none of them is ever trained on and judged by."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_export.cli import main
from edge_export.data.split import split
from edge_export.recipe.recipe import load
from edge_export.recipe.splits import read_all

from tests.edge_export.recipe.auto.layouts import LAYOUTS, PEOPLE, Layout, people_in


@pytest.mark.parametrize("layout", [pytest.param(layout, id=layout.name) for layout in LAYOUTS])
def test_a_layout_s_people_are_found_and_kept_together_or_asked_for(
    layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "data", tmp_path / "out"
    layout.build(folder)
    code = main(["auto", str(folder), "-o", str(out), "--recipe-only", *layout.options])
    said = capsys.readouterr()
    if layout.refused:
        assert code == 2, said.out
        assert layout.refused in said.err
        assert said.err.count("\n") == 1
        assert not (out / "recipe.toml").exists()
        return
    assert code == 0, said.err
    recipe = load(out / "recipe.toml")
    dataset, _ = read_all(recipe, {"data": folder})
    assert tuple(sorted(dataset.groups)) == tuple(sorted(layout.groups))
    sets = split(dataset, recipe.split, seed=recipe.seed)
    parts = [part.recordings for part in (sets.train, sets.validation, sets.test)]
    assert sum(map(len, parts)) == len(dataset.recordings)
    people = [set().union(*map(people_in, part)) for part in parts]
    assert set().union(*people) == set(range(PEOPLE)), "the oracle must see everybody"
    if "--group-files" not in layout.options or "{name}" in layout.name:
        assert not people[0] & people[1]
        assert not people[1] & people[2]
        assert not people[0] & people[2]
    groups = [{recording.group for recording in part} for part in parts]
    assert sum(map(len, groups)) == len(set().union(*groups))


def test_the_table_holds_thirty_layouts_and_both_answers() -> None:
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS) >= 30
    assert all(bool(layout.groups) != bool(layout.refused) for layout in LAYOUTS)
    assert min(sum(bool(layout.groups) for layout in LAYOUTS), sum(bool(layout.refused) for layout in LAYOUTS)) > 10
