"""The recorded machines, for all that is asked of device files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge_devices import trees


@pytest.fixture(scope="session")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tree of each machine by its name."""
    folder = tmp_path_factory.mktemp("machines")
    return {name: trees.machine(folder / name, name) for name in trees.NAMES}
