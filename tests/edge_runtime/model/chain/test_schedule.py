"""The schedule of a chain against a literal count of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.model.chain.schedule import Cut, Node, make


@pytest.mark.slow
@given(
    window=st.integers(1, 40),
    cuts=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=3),
    steps=st.integers(1, 60),
)
def test_every_stage_runs_as_often_as_its_rows_allow(window: int, cuts: list[tuple[int, int, int]], steps: int) -> None:
    nodes, before = [], "window"
    for n, (rows, hop, gives) in enumerate(cuts):
        nodes.append(Node((Cut(before, max(rows, hop), hop),), {f"t{n}": gives}))
        before = f"t{n}"
    try:
        schedule = make(nodes, window)
    except ValueError:
        pytest.fail("hops divide or not: rows never pile up")
    total = {"window": 0} | dict.fromkeys([f"t{n}" for n in range(len(nodes))], 0)
    level = 0
    for _ in range(steps):
        total["window"] += window
        for n, turn in enumerate(schedule.levels[level]):
            total[f"t{n}"] += turn.calls * nodes[n].gives[f"t{n}"]
        for n, node in enumerate(nodes):
            (cut,) = node.cuts
            come = total[cut.of]
            calls = max(0, (come - cut.rows) // cut.hop + 1) if come >= cut.rows else 0
            assert total[f"t{n}"] == calls * node.gives[f"t{n}"]
        level = level + 1 if level + 1 < len(schedule.levels) else schedule.again


def test_rows_of_zeros_in_front_let_a_stage_run_at_once() -> None:
    schedule = make([Node((Cut("window", 576, 512, 64),), {"y": 1})], 512)
    assert [level[0].calls for level in schedule.levels] == [1]
