"""More passes over hard windows: which windows, which copies, how answers are joined, and by what a way is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the networks of a fold are kept by code that imports torch (edge-export[train])")
pytest.importorskip("sklearn", reason="answers are kept by code that imports scikit-learn (edge-export[train])")

from edge_export.choose.surround.over_time import Streams, filtered, fit_over_time
from edge_export.data.dataset import Dataset, Float32, Recording
from edge_export.data.labels import label_windows
from edge_export.recipe.augmentation import Augmentation
from edge_export.recipe.recipe import load

from benchmarks.accuracy.answers import FILES
from benchmarks.accuracy.combine import ALL, FLOAT, Answers, Way, choose, filter_all, join, trials, ways
from benchmarks.accuracy.copies import MIRRORED, copies, varied, with_history
from benchmarks.accuracy.passes import Asked, least_sure, scored, share_needed, table
from benchmarks.accuracy.sets import EXAMPLES
from edge_runtime.errors import ConfigError

ROWS = np.ones(1, np.bool_)
OWN = np.array([[0.6, 0.3, 0.1]], np.float32)
COPY = np.array([[0.2, 0.7, 0.1]], np.float32)


def answers(*, there: bool = True) -> Answers:
    return Answers(own=OWN, given={"a": (COPY, ROWS & there), "b": (COPY, ROWS & there)}, y=np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (Way(family="f", copies=("a",), by="mean"), [0.4, 0.5, 0.1]),
        (Way(family="f", copies=("a",), by="mean", weight=0.25), [0.52, 0.38, 0.1]),
        (Way(family="f", copies=("a",), by="logs"), [0.12**0.5, 0.21**0.5, 0.1]),
        (Way(family="f", copies=("a", "b"), by="majority"), [1.6 / 4, 2.3 / 4, 0.1 / 4]),
        (Way(family="f", copies=("a",), by="majority"), [1.6 / 3, 1.3 / 3, 0.1 / 3]),
        (Way(family="f", copies=()), [0.6, 0.3, 0.1]),
    ],
    ids=str,
)
def test_answers_are_joined_as_by_hand(way: Way, expected: list[float]) -> None:
    np.testing.assert_allclose(join(way, answers(), ROWS)[0], np.array(expected) / sum(expected), atol=1e-6)


@pytest.mark.parametrize("by", ["logs", "mean", "majority"])
def test_a_copy_that_is_not_there_has_no_say(by: str) -> None:
    way = Way(family="f", copies=("a", "b"), by=by)  # type: ignore[arg-type]
    found = join(way, answers(there=False), ROWS)[0]
    if by == "majority":
        assert found.argmax() == 0
    else:
        np.testing.assert_allclose(found, OWN[0], atol=1e-6)


def test_the_same_share_of_every_group_is_asked_again() -> None:
    trust = np.linspace(0, 1, 150, dtype=np.float32)
    group = np.repeat(["sure", "unsure"], [100, 50])[::-1]
    found = least_sure(trust, group, 0.08)
    assert found[group == "sure"].sum() == 8
    assert found[group == "unsure"].sum() == 4
    assert trust[found & (group == "sure")].max() < trust[~found & (group == "sure")].min()


def test_the_share_that_is_needed_is_the_smallest_that_leaves_so_few_errors() -> None:
    trust = np.array([0.9, 0.1, 0.3, 0.2, 0.8, 0.7, 0.6, 0.5, 0.4, 0.95], np.float32)
    wrong = np.isin(trust, np.array([0.1, 0.3, 0.8], np.float32))
    # Sent in this order: .1 (wrong), .2, .3 (wrong), .4 and so on; the error of the rest is 3/10, 2/9, 2/8, 1/7, ...
    assert share_needed(trust, wrong, 0.3) == 0
    assert share_needed(trust, wrong, 2 / 9) == 0.1
    assert share_needed(trust, wrong, 0.15) == 0.3
    assert share_needed(trust, wrong, 0.0) == 0.8


def simulated(*, informative: bool, each: int = 300) -> Asked:
    """Five groups, each a fold, of some windows; copies err independently of the window itself, or say nothing."""
    random = np.random.default_rng(0)
    n, classes = 5 * each, 4
    y = random.integers(0, classes, n)

    def noisy(height: float) -> Float32:
        logits = random.standard_normal((n, classes))
        logits[np.arange(n), y] += height
        raw = np.exp(logits)
        found: Float32 = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
        return found

    place = np.arange(n)
    fold, there = place // each, np.ones(n, np.bool_)
    names = ["earlier 2 x 1", "earlier 2 x 2", "earlier 2 x 3", "earlier 2 x 4", FLOAT, MIRRORED]
    names += [f"varied {strength} x {number}" for strength in (0.5, 1.0) for number in range(1, 5)]
    return Asked(
        streams=Streams(order=place, y=y, recording=fold, stream=fold, slot=place, hop=1),
        group=fold.astype(np.str_),
        fold=fold,
        own=noisy(1.5),
        cloud=noisy(4.0),
        given={name: (noisy(1.5 if informative else 0.0), there) for name in names},
        us={FILES[-1]: 20.0, FLOAT: 30.0},
    )


@pytest.mark.parametrize("informative", [True, False])
def test_a_way_is_chosen_where_copies_know_more_and_none_where_they_know_nothing(informative: bool) -> None:
    asked = simulated(informative=informative)
    rest = asked.fold != 0
    own, tried = asked.calibrated(rest), ways(list(asked.given))[::4]
    every = np.ones(len(asked.fold), np.bool_)
    chosen = choose(trials(own, rest, every, tried, lambda each: each), ALL)
    left = ~rest
    gain = float((chosen.answers.argmax(1) == asked.streams.y)[left].mean()) - float(
        (own.own.argmax(1) == asked.streams.y)[left].mean()
    )
    if informative:
        assert chosen.way is not None
        assert len(chosen.way.copies) >= 4
        assert gain > 0.1
    else:
        assert abs(gain) < 0.03


def test_what_is_judged_has_no_say_in_what_is_chosen() -> None:
    """Mutation that this finds: a choice, a temperature or a filter that has seen the labels it is judged by."""
    asked = simulated(informative=True)
    held = asked.fold == 2
    shuffled = np.where(held, (asked.streams.y + 1) % 4, asked.streams.y)
    other = replace(asked, streams=replace(asked.streams, y=shuffled))
    tried = ways(list(asked.given))[:20]
    probed = least_sure(asked.own.max(axis=1), asked.group, 0.2)
    one, two = (
        choose(trials(each.calibrated(~held), ~held, probed, tried, lambda given: given), ALL)
        for each in (asked, other)
    )
    assert one.way == two.way
    np.testing.assert_array_equal(one.answers[held], two.answers[held])


def test_only_windows_that_are_asked_again_change() -> None:
    asked = simulated(informative=True)
    rest = asked.fold != 1
    own = asked.calibrated(rest)
    probed = least_sure(own.own.max(axis=1), asked.group, 0.08)
    for one in trials(own, rest, probed, ways(list(asked.given))[:7], lambda each: each):
        np.testing.assert_array_equal(one.answers[~probed], own.own[~probed])


def test_scores_of_the_device_alone_need_the_share_that_is_sent_at_most() -> None:
    asked = simulated(informative=True)
    found = scored(asked.own, asked)
    assert (found.needed <= np.array([[0.08], [0.2]]) + 1e-9).all()
    assert (found.cloud > found.accuracy).all()
    assert (found.local[1] <= found.local[0]).mean() >= 0.8


@pytest.mark.parametrize("over_time", [False, True])
@pytest.mark.slow
def test_a_table_has_each_family_at_each_share_and_the_price_of_its_passes(over_time: bool) -> None:
    report = table("simulated", simulated(informative=True, each=80), over_time=over_time)
    names = [row[0] for row in report.rows]
    assert names[0] == "none"
    assert len(names) == 1 + 3 * 5
    whole = dict(zip(names, report.rows, strict=True))[f"100%, {ALL}"]
    assert str(whole[2]).startswith("+0.")
    assert float(str(whole[-1])) == float(str(whole[-2]))


def test_many_answers_are_filtered_as_the_device_filters_each() -> None:
    asked = simulated(informative=True)
    slot = np.arange(1500) + np.repeat([0, 1, 100, 40, 7], [10, 200, 500, 500, 290]).cumsum() // 100
    streams = replace(asked.streams, slot=slot - slot % 2, hop=2)
    spec = fit_over_time(streams.only(asked.fold == 0), asked.own[asked.fold == 0])
    stack = np.stack([asked.own, asked.cloud, np.where(asked.own > 0.5, np.float32(1), np.float32(0))])
    for given, found in zip(stack, filter_all(spec, streams, stack), strict=True):
        np.testing.assert_allclose(found, filtered(spec, streams, given), atol=1e-5)


def walk(samples: int = 700) -> Dataset:
    recipe = load(EXAMPLES / "exercise-watch" / "recipe.toml")
    names = [f"r{number}" for number in range(2)]
    recordings = tuple(
        Recording(
            name=name, group=name, label=number,
            values=np.random.default_rng(number).standard_normal((samples, 6)).astype(np.float32),
        )
        for number, name in enumerate(names)
    )  # fmt: skip
    return Dataset(
        name="walk", channels=recipe.window.channels, rate_hz=50.0, classes=tuple(recipe.classes), recordings=recordings
    )


def test_an_earlier_copy_is_the_window_that_ended_so_many_samples_before() -> None:
    recipe, dataset = load(EXAMPLES / "exercise-watch" / "recipe.toml"), walk()
    windows = with_history(recipe, dataset, label_windows(dataset, recipe.window.contract()))
    found = {name: (x, there) for name, x, there in copies(recipe, windows, stream=True)}
    x, there = found["earlier 5 x 3"]
    at = int(np.flatnonzero(windows.recording == 1)[4])
    start = int(windows.start[at])
    recorded = dataset.recordings[1].values
    np.testing.assert_array_equal(windows.x[at], recorded[start : start + 100].T)
    np.testing.assert_array_equal(x[at], recorded[start - 15 : start + 85].T)
    assert there.sum() == len(windows) - 2  # the first window of each recording has none before it
    mirror = np.array(recipe.augmentation.mirror, np.float32)
    np.testing.assert_array_equal(found[MIRRORED][0][at], recorded[start : start + 100].T * mirror[:, None])
    assert not [name for name, _, _ in copies(recipe, windows, stream=False) if name.startswith("earlier")]


def test_recordings_that_were_not_answered_are_refused() -> None:
    recipe, dataset = load(EXAMPLES / "exercise-watch" / "recipe.toml"), walk()
    windows = label_windows(dataset, recipe.window.contract())
    with pytest.raises(ConfigError, match="remove the folder"):
        with_history(recipe, walk(900), windows)


def test_a_varied_copy_is_turned_and_scaled_alike_in_all_windows() -> None:
    x = np.random.default_rng(0).standard_normal((5, 6, 100)).astype(np.float32)
    allowed = Augmentation(triads=(("a", "b", "c"), ("d", "e", "f")), rotation_deg=11.5, gain=0.25)
    found = varied(x, allowed, "abcdef", 1.0, np.random.default_rng(3))
    before, after = (np.linalg.norm(each[:, :3], axis=1) for each in (x, found))
    ratio = after / before
    assert np.allclose(ratio, ratio[0, 0], rtol=1e-4)
    assert 0.77 < ratio[0, 0] < 1.29
    assert not np.allclose(found, x * ratio[0, 0], atol=1e-2)
    same = varied(x, Augmentation(), "abcdef", 1.0, np.random.default_rng(3))
    np.testing.assert_array_equal(same, x)
