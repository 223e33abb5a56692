"""The browser and what drives it, as `make test-page` installs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.running import ROOT

HERE = Path(__file__).parent
MODULES = ROOT / ".venvs" / "page"
CHROMIUM = shutil.which("chromium")
NODE = shutil.which("node")

NEEDS_A_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or NODE is None or not (MODULES / "node_modules" / "axe-core").is_dir(),
        reason="no browser to look with: make test-page",
    ),
]
"""Marks of the tests that look with it."""
