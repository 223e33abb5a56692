from __future__ import annotations

import edge_export
import numpy as np
import pytest
from edge_export.conformal import half_widths
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError


def test_the_half_width_is_the_kth_smallest_error() -> None:
    values = np.zeros((9, 2))
    targets = np.column_stack([np.arange(1.0, 10), -10 * np.arange(1.0, 10)])
    assert half_widths(values, targets, 0.9) == [9.0, 90.0]
    assert half_widths(values, targets, 0.5) == [5.0, 50.0]


def test_a_spread_makes_it_a_factor() -> None:
    values, targets = np.zeros((9, 1)), np.arange(1.0, 10)[:, None]
    assert half_widths(values, targets, 0.9, spread=2 * targets) == [0.5]


def test_targets_that_are_not_known_are_left_out_and_too_few_are_refused() -> None:
    values, targets = np.zeros((10, 1)), np.arange(10.0)[:, None]
    targets[3] = np.nan
    assert half_widths(values, targets, 0.9) == [9.0]
    targets[4] = np.nan
    with pytest.raises(ConfigError, match=r"8 windows with a target cannot keep a coverage of 0.9; it needs 9 or more"):
        half_widths(values, targets, 0.9)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(n=st.integers(9, 120), seed=st.integers(0, 999), coverage=st.sampled_from([0.5, 0.8, 0.9]))
def test_of_exchangeable_errors_at_least_the_stated_share_lies_inside(n: int, seed: int, coverage: float) -> None:
    """Counted over which of n + 1 windows is the new one: the rank of its error is uniform."""
    errors = np.random.default_rng(seed).exponential(size=(n + 1, 1))
    inside = sum(
        errors[i, 0] <= half_widths(np.zeros((n, 1)), np.delete(errors, i, axis=0), coverage)[0] for i in range(n + 1)
    )
    assert inside / (n + 1) >= coverage - 1e-9
    assert inside / (n + 1) <= coverage + 1 / (n + 1) + 1e-9


def test_programs_find_it() -> None:
    assert edge_export.half_widths is half_widths
    with pytest.raises(AttributeError, match="nothing_such"):
        edge_export.nothing_such  # noqa: B018 - the access is what is tried
