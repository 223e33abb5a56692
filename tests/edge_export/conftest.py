"""Recordings that several tests build from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge_export.waves import write_waves


@pytest.fixture(scope="session")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of `write_waves`."""
    folder = tmp_path_factory.mktemp("waves")
    write_waves(folder)
    return folder
