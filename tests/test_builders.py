"""Test modules share builders, and import nothing of one another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def imported(path: Path) -> list[str]:
    """Modules that a file imports, and names that it imports from them."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("folder", [*sorted(path.name for path in TESTS.iterdir() if path.is_dir()), "."])
def test_no_module_imports_from_a_test_module(folder: str) -> None:
    """What two of them need stands in a module of its own: a change to a test changes that test alone."""
    paths = (TESTS / folder).glob("*.py" if folder == "." else "**/*.py")
    wrong = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in paths
        for name in imported(path)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split(".")[1:-1])
    }
    assert not wrong
