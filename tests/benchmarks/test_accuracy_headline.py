"""Headline of the accuracy benchmark: a device's figures never stand without those of others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the table's other rows are of networks (edge-export[train])")
pytest.importorskip("sklearn", reason="and of peers (edge-export[train])")

from edge_export.learn.training.baseline import RandomForest

from benchmarks.accuracy.cost import Cost, peer_cost
from benchmarks.accuracy.headline import best_known, closed, row
from benchmarks.accuracy.peers import Rocket
from benchmarks.accuracy.scoring import next_group
from benchmarks.accuracy.sets import SETS, Published
from benchmarks.accuracy.table import ALL, DEVICE, TEACHER, Line

FOREST = "forest on statistics"
OURS = (DEVICE, ALL)
COSTS = {FOREST: Cost(size=50_000, us=900.0), TEACHER: Cost(size=1_000_000, us=90.0), DEVICE: Cost(size=10_000, us=9.0)}
UNPUBLISHED = replace(SETS["skab-pump"], published=None)


def line(name: str, accuracy: float) -> Line:
    scores = np.full(6, accuracy)
    return Line(
        name=name, accuracy=next_group(scores), macro_f1=accuracy, tolerant=1.0, events=1.0, gain=(0, 0, 0), asked=0
    )


TABLE = [line(FOREST, 0.7), line(TEACHER, 0.9), line(DEVICE, 0.8), line(ALL, 0.95)]


def test_the_best_known_is_never_our_own_device() -> None:
    accuracy, whose = best_known(UNPUBLISHED, TABLE, OURS)
    assert (round(accuracy, 9), whose) == (0.9, TEACHER)


def test_a_published_figure_counts_where_it_is_higher() -> None:
    published = replace(UNPUBLISHED, published=Published(accuracy=0.97, source="others"))
    assert best_known(published, TABLE, OURS) == (0.97, "others")
    lower = replace(UNPUBLISHED, published=Published(accuracy=0.5, source="others"))
    assert best_known(lower, TABLE, OURS)[1] == TEACHER


def test_the_gap_is_told_in_words_where_there_is_none() -> None:
    assert closed(0.8, 0.85, 0.9) == "50%"
    assert closed(0.9, 0.95, 0.9) == "no gap"


def test_the_row_has_bytes_peers_and_the_spread_of_several_trainings() -> None:
    found = row(UNPUBLISHED, TABLE, OURS, COSTS, {DEVICE: [0.8, 0.78, 0.83]})
    for said in (
        "10,000",
        "0.800 (0.780 to 0.830)",
        "0.900 (teacher, for all windows)",
        f"{FOREST} 0.700, 5 x the bytes",
    ):
        assert said in found, found


@pytest.mark.slow
@pytest.mark.parametrize("peer", [RandomForest, Rocket])
def test_a_peer_weighs_what_its_numbers_take(peer: type[RandomForest | Rocket]) -> None:
    random = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = (random.normal(0, 0.1, (60, 1, 40)) + y[:, None, None]).astype(np.float32)
    fitted = peer(x, y, seed=0)
    assert (fitted.answer(x) == y).mean() > 0.9
    cost = peer_cost(fitted, x)
    assert 5_000 < cost.size < 1_000_000
    assert cost.us > 0
