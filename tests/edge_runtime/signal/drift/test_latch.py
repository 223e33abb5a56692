"""One alarm of many scores."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.signal.drift.latch import CALM, LOOKS, NAMED, RELEASE, Latch, RecentRows, means


def test_an_alarm_begins_once_and_ends_after_a_calm() -> None:
    latch = Latch()
    assert [latch.step(score) for score in (0.9, 1.0, 1.1, 0.2, 1.3)] == [False, True, False, False, False]
    for _ in range(CALM - 1):
        latch.step(RELEASE - 0.1)
        assert latch.on
    latch.step(RELEASE - 0.1)
    assert not latch.on
    assert latch.step(1.0)


def test_what_hovers_around_the_threshold_is_one_alarm() -> None:
    latch = Latch()
    assert [latch.step(score) for score in (1.1, *(RELEASE,) * 3 * CALM, 1.1)].count(True) == 1


@given(st.lists(st.lists(st.floats(-50, 50), min_size=2, max_size=2), min_size=1, max_size=40))
def test_a_ring_gives_the_means_of_the_last_rows_within_its_limit(rows: list[list[float]]) -> None:
    ring, found = RecentRows(2, limit=12.0), []
    for row in rows:
        mean = ring.add(np.array(row))
        if mean is not None:
            found.append(mean)
    assert len(found) == max(0, len(rows) - LOOKS + 1)
    if found:
        np.testing.assert_allclose(found, means(np.array(rows), 12.0), atol=1e-9)
        np.testing.assert_allclose(ring.latest(), np.mean(rows[-NAMED:], axis=0), atol=1e-9)
