"""Time of a search: over when it says so, and the reason names the option."""

from __future__ import annotations

import pytest
from edge_export.choose.variants.budget import OutOfTimeError, TimeBudget

from edge_runtime.clock import SimulatedClock


def test_a_budget_counts_from_when_it_was_made() -> None:
    clock = SimulatedClock()
    clock.advance(100)
    budget = TimeBudget(5, clock)
    clock.advance(4.9)
    budget.check()
    clock.advance(0.1)
    assert budget.is_over
    with pytest.raises(OutOfTimeError, match="no time left of 5 s; --seconds"):
        budget.check()
