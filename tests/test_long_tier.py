"""What a push runs, and what waits for the long tier."""

from __future__ import annotations

import pytest

from tests.long_tier import some

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_asks(tier):
    print("tries", tier(2, 200))

@pytest.mark.long
def test_waits():
    pass
"""


@pytest.mark.parametrize(("options", "tried", "passed"), [((), "2", 1), (("--long",), "200", 2)])
def test_a_test_marked_long_waits_for_the_long_tier(
    pytester: pytest.Pytester, options: tuple[str, ...], tried: str, passed: int
) -> None:
    pytester.makeini("[pytest]\nmarkers = long")
    pytester.makepyfile(TESTS)
    found = pytester.runpytest_inprocess("-p", "tests.long_tier", "-p", "no:cacheprovider", "-s", *options)
    found.assert_outcomes(passed=passed, skipped=2 - passed)
    found.stdout.fnmatch_lines([f"*tries {tried}*"])


def test_cases_that_a_push_leaves_out_are_marked() -> None:
    found = some([("a", 1), ("a", 2), ("b", 1)], ["a-1", ("b", 1)])
    assert [each.id for each in found] == ["a-1", "a-2", "b-1"]
    assert [[mark.name for mark in each.marks] for each in found] == [[], ["long"], []]


def test_a_push_that_is_left_no_case_is_refused() -> None:
    with pytest.raises(AssertionError, match="no case is left"):
        some(["a"], ["b"])
