"""Where the pictures of the page go."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--page-pictures", type=Path, help="folder for pictures of the page; none are written without it")


@pytest.fixture(scope="session")
def pictures_folder(request: pytest.FixtureRequest) -> Path | None:
    """The folder that --page-pictures names."""
    folder: Path | None = request.config.getoption("--page-pictures", default=None)
    return None if folder is None else folder.resolve()
