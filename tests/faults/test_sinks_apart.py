"""R19: a sink that takes nothing for ten minutes stops no other; the shorter trials are integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import bundle
from tests.integration.failing_sinks import KINDS, RATE_HZ, Kind, run
from tests.mosquitto import needs_mosquitto

__all__ = ["bundle"]

pytestmark = needs_mosquitto


@pytest.mark.long
@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_sink_that_fails_for_ten_minutes_stops_no_other(
    kind: Kind, first: bool, bundle: Path, tmp_path: Path
) -> None:
    run(kind, bundle, tmp_path, first, 600 * RATE_HZ, paced=True)
