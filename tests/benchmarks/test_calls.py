"""A lone message's calls: counts that do not depend on time, and that must not grow unseen."""

from __future__ import annotations

import pytest

from benchmarks.calls import BUNDLE, calls


@pytest.mark.slow
def test_a_lone_message_costs_no_more_calls_than_it_did() -> None:
    found = calls(BUNDLE, 300)
    ours, loop = found["edge-runtime"], found["hand-written loop"]
    assert ours.kernel <= 3 < loop.kernel
    assert 60 <= ours.python <= 135
    assert 100 <= ours.c <= 190
    assert loop.python >= 40  # else nothing was counted
    assert ours.blocks < 0.5  # nothing stays behind
