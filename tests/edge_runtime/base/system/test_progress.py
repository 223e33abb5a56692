"""A line of progress: when it is drawn, what it says, and that it leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from edge_runtime.base.system.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def progress(total: int | None, stream: io.StringIO) -> tuple[Progress, Time]:
    clock = Time()
    return Progress("files", total, stream=stream, clock=clock), clock


def test_quick_work_shows_nothing() -> None:
    terminal = Terminal()
    shown, clock = progress(10, terminal)
    with shown:
        for _ in range(10):
            clock.now += 0.15
            shown.advance()
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_nobody_looks() -> None:
    pipe = io.StringIO()
    shown, clock = progress(10, pipe)
    with shown:
        for _ in range(10):
            clock.now += 10
            shown.advance()
    assert pipe.getvalue() == ""


def test_the_line_says_how_far_and_how_long_and_goes_away() -> None:
    terminal = Terminal()
    shown, clock = progress(1_000, terminal)
    with shown:
        clock.now += 60
        shown.advance(250, "day7.csv")
        assert "files  [#####               ]  250 of 1,000  day7.csv  3 min left" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_it_is_drawn_five_times_a_second_at_most() -> None:
    terminal = Terminal()
    shown, clock = progress(None, terminal)
    for _ in range(1_000):
        clock.now += 0.01
        shown.advance()
    assert 35 <= terminal.getvalue().count("\r") <= 41


def test_steps_of_an_earlier_run_do_not_count_for_the_time_left() -> None:
    shown, clock = progress(100, Terminal())
    shown.skip(90)
    clock.now += 50
    shown.advance(5)
    assert shown.line(clock.now).endswith("95 of 100  50 s left")


def test_what_is_said_stays_and_is_not_drawn_over() -> None:
    terminal = Terminal()
    shown, clock = progress(10, terminal)
    clock.now += 5
    shown.advance()
    shown.note("day3.csv: no column t")
    assert "\r\x1b[Kday3.csv: no column t\n" in terminal.getvalue()


def test_without_a_total_it_counts() -> None:
    shown, clock = progress(None, Terminal())
    clock.now += 7
    shown.advance(12, "windows")
    assert shown.line(clock.now) == "files  12  windows  7 s so far"


@pytest.mark.parametrize(("seconds", "words"), [(3, "3 s"), (240, "4 min"), (7_800, "2 h 10 min")])
def test_durations_are_in_the_largest_unit_that_says_enough(seconds: float, words: str) -> None:
    assert duration(seconds) == words
