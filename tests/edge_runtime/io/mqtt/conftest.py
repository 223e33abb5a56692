"""A loop with clients on it, for every test of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.edge_runtime.io.mqtt.clients import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench() as running:
        yield running
