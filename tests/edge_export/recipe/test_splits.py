"""Recordings become training, validation and test windows; what cannot be used is refused before training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edge_export.recipe.recipe import Recipe, parse
from edge_export.recipe.splits import read_all, read_splits

from edge_runtime.errors import ConfigError
from tests.edge_export.recipe_text import RECIPE

SECOND = RECIPE[RECIPE.index("[[data]]") : RECIPE.index("[window]")].replace('"home"', '"work"')


def recipe(text: str = RECIPE) -> Recipe:
    return parse(text, Path("recipe.toml"))


def test_a_recipe_says_how_its_channels_are_joined_as_a_bundle_does() -> None:
    ay = '{ name = "ay", unit = "g" }'
    joined = RECIPE.replace(ay, ay.replace(" }", ', resample = "mean", max_age_s = 2 }'))
    assert joined != RECIPE
    first, second = recipe(joined).window.contract().channels
    assert (first.joined, second.resample, second.max_age_s) == (False, "mean", 2)


def test_references_are_measured_only_if_they_are_asked_for() -> None:
    assert recipe().references is None
    asked = recipe(RECIPE + '\n[references]\ntriads = [["ax", "ay"]]\n')
    assert asked.references is not None
    assert asked.references.triads == (("ax", "ay"),)


@pytest.mark.parametrize(
    ("triad", "why"),
    [
        ('["ax", "az"]', "references names channel 'az'; the window has ax, ay"),
        ('["ax", "ax"]', "must be different channels of one unit"),
        ('["ax", "t"]', "must be different channels of one unit"),
    ],
)
def test_axes_that_are_none_of_one_sensor_are_refused(triad: str, why: str) -> None:
    window = RECIPE.replace('{ name = "ay", unit = "g" }', '{ name = "ay", unit = "g" }, { name = "t", unit = "Cel" }')
    if "az" in triad:
        window = RECIPE
    with pytest.raises(ConfigError, match=why):
        recipe(window + f"\n[references]\ntriads = [{triad}]\n")


def record(folder: Path, people: int = 4, gain: float = 1.0) -> Path:
    folder.mkdir(exist_ok=True)
    for person in range(people):
        random = np.random.default_rng(person)
        y = np.repeat([0, 1, 0, 1], 150)
        x = gain * random.standard_normal((len(y), 2)) * (0.1 + y[:, None])
        np.savez(folder / f"p{person}.npz", x=x.astype(np.float32), y=y)
    return folder


def test_each_set_has_the_windows_of_its_own_groups(tmp_path: Path) -> None:
    said: list[str] = []
    splits = read_splits(recipe(), {"home": record(tmp_path / "d")}, said.append)
    for windows, groups in ((splits.train, {"p0", "p1"}), (splits.validation, {"p2"}), (splits.test, {"p3"})):
        assert set(windows.group.tolist()) == groups
        assert windows.contexts.shape[1:] == (2, 30)
        assert windows.samples == 20
    assert splits.metrics() == {
        "groups": {"train": ["p0", "p1"], "validation": ["p2"], "test": ["p3"]},
        "windows": {"train": len(splits.train), "validation": len(splits.validation), "test": len(splits.test)},
        "data_notes": [],
    }
    assert said[0] == f"train: {len(splits.train)} windows of p0, p1"
    assert [line.partition(":")[0] for line in said] == ["train", "validation", "test"]


def test_the_digest_follows_contents_and_reading_and_not_the_folder(tmp_path: Path) -> None:
    whole, first = read_all(recipe(), {"home": record(tmp_path / "d")})
    assert len(whole.recordings) == 4
    assert read_all(recipe(), {"home": record(tmp_path / "elsewhere")})[1] == first
    assert read_all(recipe(), {"home": record(tmp_path / "louder", gain=2.0)})[1] != first
    scaled = RECIPE.replace('label = "y"', 'label = "y"\nscale = [2.0]')
    assert read_all(recipe(scaled), {"home": tmp_path / "d"})[1] != first


def test_people_of_two_data_sets_are_told_apart(tmp_path: Path) -> None:
    folder = record(tmp_path / "d", people=2)
    whole, _ = read_all(recipe(RECIPE.replace("[window]", SECOND + "[window]")), {"home": folder, "work": folder})
    assert whole.groups == ("home/p0", "home/p1", "work/p0", "work/p1")
    assert [recording.name for recording in whole.recordings] == ["home/p0", "home/p1", "work/p0", "work/p1"]


def test_clips_are_all_of_one_length(tmp_path: Path) -> None:
    clips = recipe(RECIPE.replace("samples = 20", "samples = 20\nclip_s = 2.0"))
    for name, samples in (("short", 80), ("long", 300)):
        np.savez(tmp_path / f"{name}.npz", x=np.ones((samples, 2), np.float32), y=[1])
    whole, _ = read_all(clips, {"home": tmp_path})
    assert [len(recording.values) for recording in whole.recordings] == [100, 100]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("home", "work"), r"--data work=\.\.\.: the recipe's keys are home"),
        ((), "the recipe needs --data home=FOLDER"),
    ],
)
def test_data_without_a_key_and_keys_without_data_are_named(
    tmp_path: Path, keys: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_all(recipe(), {key: record(tmp_path / "d") for key in keys})


def test_a_set_in_another_unit_is_named(tmp_path: Path) -> None:
    folder = record(tmp_path / "d")
    with np.load(folder / "p3.npz") as stored:
        np.savez(folder / "p3.npz", x=stored["x"] * 1000, y=stored["y"])
    with pytest.raises(ConfigError, match=r"test: channel ax is .* is it in another unit"):
        read_splits(recipe(), {"home": folder}, lambda _line: None)


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ('{ accuracy = 93.0, source = "somebody" }', "0.93 stands for 93 %"),
        ('{ accuracy = 0.93, source = " " }', "name who reached it"),
    ],
)
def test_the_best_that_is_known_is_a_share_with_a_source(stated: str, why: str) -> None:
    known = recipe(f'{RECIPE}\n[report]\nbest_known = {{ accuracy = 0.93, source = "somebody" }}\n').report
    assert known is not None
    assert known.best_known.accuracy == 0.93
    with pytest.raises(ConfigError, match=why):
        recipe(f"{RECIPE}\n[report]\nbest_known = {stated}\n")


def test_the_share_of_a_data_set_is_that_of_its_recordings(tmp_path: Path) -> None:
    both = RECIPE.replace("[window]", SECOND.replace('"work"', '"work"\nshare = 0.2') + "\n[window]")
    folders = {name: record(tmp_path / name) for name in ("home", "work")}
    data, _ = read_all(recipe(both), folders)
    assert {one.name.split("/")[0]: one.share for one in data.recordings} == {"home": 0.0, "work": 0.2}


@pytest.mark.parametrize(
    ("share", "why"), [("1.0", "share must be 0 or more, and below 1"), ("0.2", "beside others without")]
)
def test_a_share_needs_others_to_share_with(share: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        recipe(RECIPE.replace('key = "home"', f'key = "home"\nshare = {share}'))
