"""One line of any error: bounded, writable, never empty."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import one_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("not  a\n\tmodel\r\n"), "not a model"),
        (AssertionError(), "AssertionError"),
        (RuntimeError(" \n "), "RuntimeError"),
        ("the server's\nown words", "the server's own words"),
        ("", ""),
        (OSError(f"no {os.fsdecode(bytes([0xFF]))}.csv"), "no ?.csv"),
    ],
)
def test_an_error_is_one_line(error: BaseException | str, line: str) -> None:
    assert one_line(error) == line


def test_a_text_that_is_cut_says_so() -> None:
    assert one_line("x" * 300) == "x" * 300
    assert one_line("x" * 301) == "x" * 297 + "..."
    assert one_line(RuntimeError("one two three"), 9) == "one tw..."


@given(st.text(st.characters(exclude_categories=()), max_size=50), st.integers(4, 60))
def test_whatever_a_library_says_fits_a_log_and_a_message(text: str, limit: int) -> None:
    line = one_line(ValueError(text), limit)
    assert 0 < len(line) <= max(limit, 10)
    assert len(line.splitlines()) == 1
    assert line.encode().decode() == line
