"""Curves of the performance page: what a point sends, what a table and a picture say, and one real point."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.curves import LOOP, MODEL, OURS, Curve, Found, Point, curves_of, measured, picture, report
from benchmarks.example_pictures import words_of
from benchmarks.models import NETS

CURVE = Curve(
    name="window",
    title="CPU a message",
    axis="samples in a window",
    points=(Point(x=64, net="window_64"), Point(x=2048, net="window_2048")),
    model=True,
)
FOUND = [
    Found(
        us={OURS.name: [20.0, 22.0, 21.0], LOOP.name: [100.0, 110.0, 105.0], MODEL: [5.0, 5.0, 6.0]},
        busy=[0.5, 0.5, 0.5],
        p99_ms=[1.0, 2.0, 3.0],
        key_bytes=[4096.0] * 3,
    ),
    Found(
        us={OURS.name: [200.0, 220.0, 210.0], LOOP.name: [420.0, 420.0, 430.0], MODEL: [150.0, 151.0, 149.0]},
        busy=[1.0, 1.0, 1.0],
        p99_ms=[1.0, 2.0, 3.0],
        key_bytes=[8192.0] * 3,
        wrong=2,
    ),
]


@pytest.fixture
def cores() -> Iterator[None]:
    """The benchmark pins this process to a core; afterwards it may run where it did."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.slow
def test_every_key_has_a_window_before_the_clock_starts_and_more_after_it() -> None:
    for curve in curves_of(quick=True):
        for point in curve.points:
            if point.streams > 1_000:
                continue
            traffic, warm_up = point.traffic()
            completing = traffic.completed_by(len(traffic)).values()
            assert sum(index < warm_up for index in completing) >= point.streams
            assert any(index >= warm_up for index in completing)


def test_a_nets_products_are_those_of_its_layers() -> None:
    assert NETS["cnn_m"].products() == 128 * 32 * 5 * 6 + 64 * 64 * 5 * 32 + 32 * 64 * 3 * 64 + 64 * 6
    assert [round(NETS[name].products(), -2) for name in ("cnn_s", "cnn_m")] == [145_600, 1_171_800]


def test_the_table_gives_the_spread_and_the_ratio_within_a_turn() -> None:
    rows = report(CURVE, FOUND).plain()["rows"]
    assert rows[0]["edge-runtime us/msg"] == "20 / 21 / 22"
    assert rows[1]["over the loop"] == pytest.approx(210 / 430)
    assert [row["wrong"] for row in rows] == [0, 2]
    assert rows[0]["p99 ms"] is None  # saturated


def test_the_picture_names_its_lines_and_every_place() -> None:
    drawn = picture(CURVE, FOUND)
    ET.fromstring(drawn)
    words = words_of(drawn)
    assert {OURS.name, LOOP.name, MODEL, "64", "2.05k", "samples in a window"} <= set(words)


@pytest.mark.slow
@pytest.mark.usefixtures("cores")
def test_both_programs_give_the_same_answers_for_other_windows_and_channels(tmp_path: Path) -> None:
    curve = Curve(
        name="test",
        title="a test",
        axis="channels",
        points=(Point(x=3, net="channels_3", streams=4, measured=80), Point(x=256, net="window_256", measured=200)),
        model=True,
    )
    found = measured(curve, tmp_path, turns=1)
    assert [one.wrong for one in found] == [0, 0]
    assert all(min(one.us[name]) > 0 for one in found for name in (OURS.name, LOOP.name, MODEL))
