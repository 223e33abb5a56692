"""Groups are dealt to three sets and never torn apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_export.data.dataset import Dataset, Recording
from edge_export.data.split import SplitRecipe, split
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel


def dataset(groups: list[str], labels: tuple[int, ...] = (0, 1)) -> Dataset:
    values = np.zeros((4, 1), np.float32)
    return Dataset(
        name="d",
        channels=(Channel(name="x", unit="1"),),
        rate_hz=1.0,
        classes=("no", "yes"),
        recordings=tuple(
            Recording(name=f"{group}-{label}", group=group, label=label, values=values)
            for group in groups
            for label in labels
        ),
    )


@given(
    groups=st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=3, max_size=12, unique=True),
    seed=st.integers(0, 9),
    named=st.integers(0, 1),
)
def test_no_group_is_in_two_sets_and_none_is_lost(groups: list[str], seed: int, named: int) -> None:
    recipe = SplitRecipe(test=tuple(groups[:named]))
    parts = split(dataset(groups), recipe, seed=seed).groups
    dealt = [group for part in parts.values() for group in part]
    assert sorted(dealt) == sorted(groups)
    assert all(parts.values())


@given(st.permutations([f"p{i}" for i in range(8)]))
def test_the_split_does_not_depend_on_the_order_of_files(groups: list[str]) -> None:
    parts = split(dataset(groups), SplitRecipe()).groups
    expected = split(dataset(sorted(groups)), SplitRecipe()).groups
    assert {name: sorted(part) for name, part in parts.items()} == {n: sorted(p) for n, p in expected.items()}


def test_named_groups_go_where_the_recipe_says() -> None:
    recipe = SplitRecipe(train=("a", "b"), validation=("c",), test=("d",), exclude=("e",))
    parts = split(dataset(["a", "b", "c", "d", "e"]), recipe)
    assert parts.groups == {"train": ["a", "b"], "validation": ["c"], "test": ["d"]}


def test_groups_that_only_train_are_for_training_and_told_apart() -> None:
    recipe = SplitRecipe(train=("a", "b"), validation=("c",), test=("d",), train_only=("hard/*",))
    parts = split(dataset(["hard/1", "a", "b", "c", "d", "hard/2"]), recipe)
    assert parts.groups == {"train": ["hard/1", "a", "b", "hard/2"], "validation": ["c"], "test": ["d"]}
    assert parts.train_only == ("hard/1", "hard/2")
    dealt = split(dataset([*"abcdef", "hard/1"]), SplitRecipe(train_only=("hard/1",)))
    assert "hard/1" in dealt.groups["train"]


@pytest.mark.parametrize("named", [{"train": ("a",)}, {"validation": ("a",)}, {"train": ("a",), "test": ("b",)}])
def test_what_is_not_named_is_dealt(named: dict[str, Any]) -> None:
    groups = list("abcdef")
    parts = split(dataset(groups), SplitRecipe(**named)).groups
    assert sorted(group for part in parts.values() for group in part) == groups
    for name, own in named.items():
        assert parts[name] == list(own)


def test_a_group_in_two_sets_is_refused() -> None:
    with pytest.raises(ValueError, match="group 'a' is in two sets"):
        SplitRecipe(train=("a",), test=("a",))


def test_a_group_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"split\.test: no group 'z'; the data has a, b, c"):
        split(dataset(["a", "b", "c"]), SplitRecipe(test=("z",)))


def test_a_group_nobody_mentioned_is_refused_where_all_sets_are_spelled_out() -> None:
    with pytest.raises(ConfigError, match="group 'd' is in none of"):
        split(dataset(["a", "b", "c", "d"]), SplitRecipe(train=("a",), validation=("b",), test=("c",)))


def test_too_few_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="no group is left for"):
        split(dataset(["a", "b"]), SplitRecipe())


def test_a_set_without_a_class_is_refused() -> None:
    whole = dataset(["a", "b"])
    lacking = dataset(["c"], labels=(0,))
    data = Dataset(
        name="d",
        channels=whole.channels,
        rate_hz=1.0,
        classes=whole.classes,
        recordings=(*whole.recordings, *lacking.recordings),
    )
    with pytest.raises(ConfigError, match=r"split: test \(groups c\) has no 'yes'"):
        split(data, SplitRecipe(train=("a",), validation=("b",), test=("c",)))


def test_a_pattern_stands_for_all_groups_it_fits() -> None:
    recipe = SplitRecipe(train=("lab/*", "home/a"), validation=("home/b",), test=("home/?c",))
    groups = split(dataset(["lab/1", "lab/2", "home/a", "home/b", "home/cc"]), recipe).groups
    assert groups == {"train": ["lab/1", "lab/2", "home/a"], "validation": ["home/b"], "test": ["home/cc"]}


def test_a_pattern_that_reaches_into_another_list_is_refused() -> None:
    recipe = SplitRecipe(train=("home/*",), validation=("lab/1",), test=("home/b",))
    with pytest.raises(ConfigError, match="'home/b' is in two sets"):
        split(dataset(["lab/1", "home/a", "home/b"]), recipe)
