"""Plugin: the long tier, option ``--long``. ``make soak`` runs it; a push runs the short one.

Tests marked ``long`` run in the long tier alone: more cases of what a case or two show in every push. Others ask the
fixture `tier` how much to try.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")


@dataclass(frozen=True)
class Tier:
    """How much is tried: `tier(push, long)` is one of the two."""

    long: bool

    def __call__(self, push: int, long: int) -> int:
        return long if self.long else push


def some(cases: Iterable[T], push: Collection[object], name: Callable[[T], str] | None = None) -> list[ParameterSet]:
    """Return parameters: those of `push` as they are, the others marked long.

    Args:
        cases: each a value of one parameter.
        push: cases, or their names, that run in every push.
        name: gives the id of a case; without it, its text.
    """
    found = []
    for case in cases:
        text = name(case) if name else "-".join(map(str, case)) if isinstance(case, tuple) else str(case)
        found.append(pytest.param(case, id=text, marks=[] if case in push or text in push else [pytest.mark.long]))
    assert any(not each.marks for each in found), "no case is left for a push"
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "the long tier: many more cases, and the tests marked long"
    parser.getgroup("long tier").addoption("--long", action="store_true", help=help_text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="long tier: make soak"))


@pytest.fixture
def tier(request: pytest.FixtureRequest) -> Tier:
    """Every push, or the long tier."""
    return Tier(bool(request.config.getoption("--long")))
