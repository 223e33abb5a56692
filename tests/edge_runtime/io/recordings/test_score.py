"""Accuracy, macro F1 and confusion, against scikit-learn where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.io.recordings.labels import Labels, Stretch
from edge_runtime.io.recordings.score import SHOWN_KEYS, Score, ScoreFigures
from edge_runtime.types import Prediction

CLASSES = ("a", "b", "c")


def prediction(answer: str, at: int, key: str = "w") -> Prediction:
    return Prediction(f"{key}@{at}", key, at, at + 1, answer, 0.9, [], "local", False, "m/1", "v", 0.1)


def score_of(pairs: list[tuple[str, str]], key: str = "w") -> Score:
    """Answers to windows of a second, each with its label."""
    labels = Labels(1.0, 5.0)
    score = Score(CLASSES, labels)
    for at, (label, answer) in enumerate(pairs):
        labels.add_stretch(key, Stretch(at, at + 1, label))
        score.send([prediction(answer, at, key)], None)
    return score


def test_figures_and_confusion() -> None:
    score = score_of([("a", "a"), ("a", "b"), ("b", "b"), ("b", "b")])
    assert score.confusion().tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 0]]
    assert score.figures() == ScoreFigures(4, 0.75, (2 / 3 + 0.8) / 2)


@given(st.lists(st.tuples(st.sampled_from(CLASSES), st.sampled_from(CLASSES)), min_size=1, max_size=50))
def test_as_scikit_learn_has_it(pairs: list[tuple[str, str]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is part of the export environment")
    labels, answers = zip(*pairs, strict=True)
    score = score_of(pairs)
    assert score.figures().accuracy == pytest.approx(sklearn.accuracy_score(labels, answers))
    assert score.figures().macro_f1 == pytest.approx(sklearn.f1_score(labels, answers, average="macro"))
    np.testing.assert_array_equal(score.confusion(), sklearn.confusion_matrix(labels, answers, labels=CLASSES))


def test_what_cannot_be_scored_is_left_out_and_counted() -> None:
    score = score_of([("a", "a"), ("", "a"), ("x", "b"), ("b", ""), ("1", "b")])
    assert (score.figures().windows, score.figures().accuracy) == (2, 1.0), "1 is b's place"
    assert (score.unlabelled, dict(score.unknown), score.unanswered) == (1, {"x": 1}, 1)
    assert "windows left out: 1 without a label, 1 without an answer, 1 labelled 'x'" in score.text()
    assert score_of([("", "a")]).text().startswith("score: no window has a label\n")


def test_each_key_has_a_score_and_the_worst_are_shown() -> None:
    labels = Labels(1.0, 5.0)
    labels.add_stretch("", Stretch(0, 1, "a"))
    score = Score(CLASSES, labels)
    for i in range(SHOWN_KEYS + 5):
        score.add(prediction("b" if i == 7 else "a", 0, f"w{i}"))
    lines = score.text().splitlines()
    assert lines[0] == f"score: {SHOWN_KEYS + 5} windows, accuracy 0.960, macro F1 0.490"
    assert lines[2:5] == ["label        a      b  (answered)", "a           24      1", "b            0      0"]
    assert lines[6] == "key w7: 1 windows, accuracy 0.000, macro F1 0.000"
    assert lines[-1] == "and 5 more keys, which --json has"
    plain = score.plain()
    assert plain["keys"]["w3"] == {"windows": 1, "accuracy": 1.0, "macro_f1": 1.0}
    assert (plain["labels"], plain["confusion"][0]) == (["a", "b", "c"], [24, 1, 0])
