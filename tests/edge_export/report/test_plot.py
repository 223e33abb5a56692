"""Scales, ticks and places of labels."""

from __future__ import annotations

import doctest
import itertools
import math

import pytest
from edge_export.report import figures, markup, plot
from edge_export.report.plot import Scale, scale_for, spread
from hypothesis import given, settings
from hypothesis import strategies as st

REAL = st.floats(min_value=-1e6, max_value=1e6).map(lambda value: round(value, 3))
POSITIVE = st.floats(min_value=1e-3, max_value=1e9)


@settings(deadline=None)
@given(st.lists(REAL, min_size=1, max_size=8), st.booleans())
def test_a_scale_holds_its_values_and_its_ticks(values: list[float], zero: bool) -> None:
    scale = scale_for(values, 50, 400, zero=zero)
    assert scale.low <= min(values) + 1e-9
    assert scale.high >= max(values) - 1e-9
    ticks = scale.ticks()
    assert ticks == sorted(ticks)
    assert len(ticks) <= 20
    assert all(50 - 1e-6 <= scale(tick) <= 400 + 1e-6 for tick in ticks)
    if zero:
        assert scale.low <= 0


@settings(deadline=None)
@given(st.lists(POSITIVE, min_size=2, max_size=8))
def test_wide_ranges_become_logarithmic_and_keep_the_order(values: list[float]) -> None:
    scale = scale_for(values, 0, 100)
    assert scale.logarithmic == (max(values) / min(values) > 6)
    places = [scale(value) for value in sorted(values)]
    assert places == sorted(places)


def test_shares_never_reach_beyond_one() -> None:
    scale = scale_for([0.97, 0.999], 100, 0, most=1.0)
    assert scale.high == 1.0
    assert scale(1.2) == 0


def test_decades_are_marked_on_a_logarithmic_scale() -> None:
    scale = Scale(low=1, high=5000, begin=0, end=100, logarithmic=True)
    assert scale.ticks() == [1, 10, 100, 1000]
    assert scale(math.sqrt(5000)) == pytest.approx(50)


@settings(deadline=None)
@given(st.lists(st.floats(min_value=0, max_value=300), max_size=12).map(sorted))
def test_labels_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    places = spread(wanted, 0, 300)
    assert len(places) == len(wanted)
    gaps = [b - a for a, b in itertools.pairwise(places)]
    assert all(gap >= plot.GAP - 1e-9 for gap in gaps)
    assert all(-1e-9 <= place <= 300 + 1e-9 for place in places)


@pytest.mark.parametrize("module", [markup, plot, figures])
def test_examples_in_the_documentation_hold(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert tried
    assert not failed
