"""Clips laid into a stream lie where it says, and what rules do on it is counted once an hour of it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from edge_export.data.dataset import Dataset, Recording

from benchmarks.accuracy.stream import lay, outcome
from edge_runtime.answer.events.trial import KeyAnswers, prepare
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import Channel

RATE_HZ = 100


def clips(*names: str) -> Dataset:
    values = np.zeros((RATE_HZ, 1), np.float32)
    values[20:70] = 1.0
    return Dataset(
        name="clips",
        channels=(Channel(name="sound", unit="1"),),
        rate_hz=RATE_HZ,
        classes=("one", "two"),
        recordings=tuple(Recording(name=name, group="g", label=i % 2, values=values) for i, name in enumerate(names)),
    )


def test_every_word_of_a_stream_lies_where_it_says_and_nothing_is_loud_elsewhere() -> None:
    values, truth = lay(clips("a", "b", "c"))
    loud = np.zeros(len(values), bool)
    for _, (begin, end) in truth:
        loud[round(begin * RATE_HZ) : round(end * RATE_HZ)] = True
    np.testing.assert_array_equal(values[:, 0] > 0.5, loud)
    assert sorted(label for label, _ in truth) == [0, 0, 1]


def test_rules_of_several_words_share_the_hours_of_one_stream() -> None:
    start = np.arange(3600.0)
    score = np.zeros(3600)
    score[[10, 100]] = 1.0
    tried = [prepare(KeyAnswers(start, start + 1, score), [(at, at + 0.5)], gap_s=1, merge_s=0) for at in (10.2, 200.2)]
    got = outcome([EventRule(name=name, label=name) for name in ("one", "two")], tried)
    assert (got.happened, got.missed, got.false) == (2, 1, 3)
    assert got.hours == pytest.approx(1, abs=1e-3)
