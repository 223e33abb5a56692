"""What the report shows of data and mistakes: counts, typical windows, confused pairs and surest wrong windows."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the export toolchain's baseline needs scikit-learn (edge-export[train])")

from edge_export.choose.evaluation import overview as module
from edge_export.choose.evaluation.mistakes import mistakes
from edge_export.choose.evaluation.overview import LONGEST, overview, thinned, typical_windows
from edge_export.data.dataset import Dataset, Recording, Windows
from edge_export.data.split import Split
from edge_export.recipe.splits import Splits

from edge_runtime.manifest import Channel, InputContract

CLASSES = ("sit", "stand", "walk")
CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=10.0, window=8, hop=8)


def dataset(groups: list[str]) -> Dataset:
    none = np.zeros((0, 1), np.float32)
    recordings = [Recording(name=f"{group}.csv", group=group, label=0, values=none) for group in groups]
    return Dataset(name="d", channels=CONTRACT.channels, rate_hz=10.0, classes=CLASSES, recordings=tuple(recordings))


def windows(y: list[int], group: list[str], heights: list[float] | None = None) -> Windows:
    n = len(y)
    values = np.array(heights or [1.0] * n, np.float32)
    shape = np.sin(np.arange(12, dtype=np.float32))
    names = list(dict.fromkeys(group))
    return Windows(
        contexts=values[:, None, None] * shape[None, None, :],
        samples=8,
        y=np.array(y, np.int64),
        group=np.array(group),
        recording=np.array([names.index(one) for one in group], np.int64),
        start=np.arange(n, dtype=np.int64) * 8,
    )


def sure(answers: list[int], confidences: list[float]) -> np.ndarray:
    given = np.full((len(answers), 3), 0.0, np.float32)
    for row, answer, confidence in zip(given, answers, confidences, strict=True):
        row[:] = (1 - confidence) / 2
        row[answer] = confidence
    return given


def test_the_typical_window_is_the_one_in_the_middle_of_its_class() -> None:
    found = typical_windows(windows([0] * 5 + [1] * 3, ["a"] * 8, [1, 2, 3, 4, 50, 7, 8, 9]), 3)
    assert found == {0: 2, 1: 6}, "a class without windows has none"


def test_the_overview_counts_windows_and_groups_by_class_and_shows_the_window_not_its_context() -> None:
    train = windows([0, 0, 0, 1], ["a", "a", "b", "b"], [1, 2, 3, 1])
    other = windows([1, 1, 2], ["c", "c", "c"])
    splits = Splits(
        recordings=Split(train=dataset(["a", "b"]), validation=dataset(["c"]), test=dataset(["c"])),
        train=train, validation=other, test=other, digest="",
    )  # fmt: skip
    found = overview(splits, CONTRACT)
    assert (found["channels"], found["window_s"]) == ([{"name": "ax", "unit": "g"}], 0.8)
    sit, stand, walk = found["classes"]
    assert sit["windows"] == {"train": 3, "validation": 0, "test": 0}
    assert (sit["groups"], stand["groups"], walk["groups"]) == (2, 2, 1)
    assert (sit["typical"]["group"], sit["typical"]["recording"], sit["typical"]["start_s"]) == ("a", "a.csv", 0.8)
    assert sit["typical"]["values"] == [[float(f"{2 * np.sin(np.float32(at)):.4g}") for at in range(4, 12)]]
    assert walk["typical"] is None


def test_a_long_window_keeps_its_peaks() -> None:
    long = np.zeros((12, 16_000), np.float32)
    long[0, 7001], long[0, 12_345] = 3.0, -2.0
    kept = thinned(long)
    assert len(kept) == 9, "of twelve channels the first nine"
    assert len(kept[0]) == LONGEST
    assert (max(kept[0]), min(kept[0])) == (3.0, -2.0)
    assert kept[0].index(3.0) < kept[0].index(-2.0)


def test_pairs_are_counted_with_the_groups_that_they_come_from() -> None:
    tested = windows([1, 1, 1, 1, 0, 2], ["p4", "p4", "p5", "p4", "p5", "p5"])
    answers = sure([0, 0, 0, 1, 2, 2], [0.9, 0.8, 0.7, 0.6, 0.9, 0.9])
    found = mistakes(answers, tested, dataset(["p4", "p5"]), CONTRACT)
    assert found["pairs"] == [
        {"label": "stand", "answer": "sit", "count": 3, "of": 4, "by_group": {"p4": 2, "p5": 1}},
        {"label": "sit", "answer": "walk", "count": 1, "of": 1, "by_group": {"p5": 1}},
    ]
    assert [(each["group"], each["windows"], each["wrong"]) for each in found["groups"]] == [("p4", 3, 2), ("p5", 3, 2)]


def test_the_surest_wrong_window_of_each_pair_of_classes_is_shown_first() -> None:
    tested = windows([1, 1, 1, 1, 0, 2], ["p4"] * 6)
    answers = sure([0, 0, 0, 1, 2, 2], [0.7, 0.9, 0.8, 0.99, 0.6, 0.9])
    (group,) = mistakes(answers, tested, dataset(["p4"]), CONTRACT)["groups"]
    shown = [(each["label"], each["answer"], each["confidence"], each["start_s"]) for each in group["shown"]]
    assert shown == [("stand", "sit", 0.9, 0.8), ("sit", "walk", 0.6, 3.2), ("stand", "sit", 0.8, 1.6)]


def test_windows_are_drawn_of_the_worst_groups_alone_and_none_is_wrong_is_no_fault() -> None:
    names = [f"p{number}" for number in range(8)]
    tested = windows([0] * 8, names)
    found = mistakes(sure([1] * 8, [0.9] * 8), tested, dataset(names), CONTRACT)["groups"]
    assert [len(each["shown"]) for each in found] == [1] * 6 + [0] * 2
    right = mistakes(sure([0] * 8, [0.9] * 8), tested, dataset(names), CONTRACT)
    assert right["pairs"] == []
    assert all(each["wrong"] == 0 and each["shown"] == [] for each in right["groups"])


def test_the_example_in_the_documentation_holds() -> None:
    failed, tried = doctest.testmod(module)
    assert tried
    assert not failed
