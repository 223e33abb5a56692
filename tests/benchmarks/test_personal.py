"""A map of the answers for one person: what it learns, and what it leaves as it was."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the answers are kept by code that imports torch (edge-export[train])")
pytest.importorskip("sklearn", reason="the answers are kept by code that imports scikit-learn (edge-export[train])")

from benchmarks.accuracy.personal import RIDGE, adapted


def answers(y: np.ndarray, classes: int = 4) -> np.ndarray:
    rows = np.full((len(y), classes), 0.1, np.float32)
    rows[np.arange(len(y)), y] = 0.7
    return rows


@pytest.mark.parametrize("way", RIDGE)
def test_labels_that_agree_change_no_answer(way: str) -> None:
    y = np.arange(40) % 4
    found = adapted(answers(y), np.arange(20), y[:20], way)
    assert (found.argmax(axis=1) == y).all()
    assert np.allclose(found.sum(axis=1), 1, atol=1e-5)


def test_a_person_whose_two_labels_are_confused_is_learnt_by_the_matrix() -> None:
    truth = np.arange(80) % 4
    swapped = np.array([1, 0, 2, 3])[truth]  # the network takes 0 for 1, and 1 for 0
    found = adapted(answers(swapped), np.arange(60), truth[:60], "matrix")
    assert (found[60:].argmax(axis=1) == truth[60:]).all()
