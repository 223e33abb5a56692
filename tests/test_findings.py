"""docs/findings.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`")


def test_every_test_that_the_page_of_findings_names_exists() -> None:
    """Mutation that this finds: a test of a finding is renamed or deleted, and the page still points to it."""
    named = _TEST.findall((CHECKOUT / "docs/findings.md").read_text("utf-8"))
    assert len(named) > 80
    texts = {path: (CHECKOUT / path).read_text("utf-8") for path, _ in named if (CHECKOUT / path).is_file()}
    assert [f"{path}::{name}" for path, name in named if f"def {name or 'test_'}" not in texts.get(path, "")] == []
