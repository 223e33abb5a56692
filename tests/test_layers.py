"""Modules that nothing on a device may import. Which room may import which is in pyproject.toml, for import-linter."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DEVICE = sorted([*ROOT.glob("edge_runtime/**/*.py"), *ROOT.glob("devices/edge_devices/**/*.py")])


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("path", DEVICE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_unpickles_and_only_the_clock_asks_the_time(path: Path) -> None:
    names = imported(path)
    assert not names & {"pickle", "shelve", "marshal"}
    allowed = {"edge_runtime/clock.py", "edge_runtime/tools/bench", "edge_runtime/tools/demo"}
    if not any(str(path.relative_to(ROOT)).startswith(one) for one in allowed):
        assert "time" not in names


def test_the_files_of_a_device_are_looked_at() -> None:
    assert len(DEVICE) > 50
