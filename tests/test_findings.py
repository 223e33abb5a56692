"""docs/findings.md and docs/reliability.md name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
_TEST = re.compile(r"`(tests/[\w/]*test_\w+\.py)(?:::(test_\w+))?`")
_PROMISE = re.compile(r"^(\d+)\. .*\n((?:    - `tests/.*\n)*)", re.MULTILINE)


@pytest.mark.parametrize(("page", "fewest"), [("findings.md", 80), ("reliability.md", 25)])
def test_every_test_that_a_page_names_exists(page: str, fewest: int) -> None:
    """Mutation that this finds: a test of a finding or promise is renamed, and its page still points to it."""
    named = _TEST.findall((CHECKOUT / "docs" / page).read_text("utf-8"))
    assert len(named) > fewest
    texts = {path: (CHECKOUT / path).read_text("utf-8") for path, _ in named if (CHECKOUT / path).is_file()}
    assert [f"{path}::{name}" for path, name in named if f"def {name or 'test_'}" not in texts.get(path, "")] == []


def test_every_promise_names_the_tests_that_hold_it() -> None:
    page = (CHECKOUT / "docs/reliability.md").read_text("utf-8")
    promises = _PROMISE.findall(page.split("## The promise")[1].split("\n## ")[0])
    assert [int(number) for number, _ in promises] == list(range(1, len(promises) + 1))
    assert len(promises) >= 11
    assert [number for number, tests in promises if len(_TEST.findall(tests)) < 2] == []
