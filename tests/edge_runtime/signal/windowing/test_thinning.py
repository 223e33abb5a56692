"""Thinning answers every n-th window of a key, the same on every run, and counts the others."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.thinning import Thinning
from tests.edge_runtime.signal.windowing.empty import window


@given(key=st.text(), every=st.integers(1, 12), hop=st.integers(1, 50), rounds=st.integers(1, 5))
def test_of_each_key_one_in_so_many_is_answered_and_the_others_are_counted(
    key: str, every: int, hop: int, rounds: int
) -> None:
    metrics = Metrics()
    thinning = Thinning(metrics)
    thinning.every, thinning.hop = every, hop
    windows = [window(number, key, hop) for number in range(every * rounds)]
    kept = thinning.kept(windows)
    assert len(kept) == rounds
    assert {after - before for before, after in itertools.pairwise(kept)} <= {every}
    assert metrics.dropped["rate_reduced"] == len(windows) - rounds
    assert thinning.thinned(windows) == [windows[position] for position in kept]


def test_keys_alternate_so_that_the_load_is_spread() -> None:
    thinning = Thinning(Metrics())
    thinning.every, thinning.hop = 2, 8
    first = [bool(thinning.kept([window(0, f"k{n}")])) for n in range(40)]
    assert 5 < sum(first) < 35
