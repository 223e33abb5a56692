from __future__ import annotations

import pytest

from edge_runtime.clock import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()
