"""Words at chosen places of a window."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the recipe is trained by torch (edge-export[train])")
pytest.importorskip("sklearn", reason="the recipe's figures need scikit-learn (edge-export[train])")

from benchmarks.accuracy.place import HISS, placed


@pytest.mark.parametrize(("share", "first"), [(0.0, 0), (0.5, 350), (1.0, 700)])
def test_a_word_lies_where_it_was_put_and_nothing_of_it_stays_behind(share: float, first: int) -> None:
    clips = np.zeros((3, 1, 1000), np.float32)
    clips[:, 0, 400:700] = 0.5
    found = placed(clips, share)
    loud = np.flatnonzero(np.abs(found[1, 0]) > 0.25)
    assert abs(int(loud[0]) - first) <= 8, "98 % of the energy: some samples at either end are left out"
    assert int(loud[-1]) - int(loud[0]) >= 290
    quiet = np.delete(found[1, 0], np.arange(max(0, first - 10), min(1000, first + 310)))
    assert np.abs(quiet).max() < 8 * HISS
