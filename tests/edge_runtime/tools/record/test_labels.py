"""Labels set while recording: by keys, and by lines."""

from __future__ import annotations

import os
import pty
import termios
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.tools.record.labels import MAX_LABEL, CurrentLabel


def test_the_first_name_is_current_and_keys_choose() -> None:
    seen: list[str] = []
    labels = CurrentLabel(["walking", "sitting"], changed=lambda: seen.append(labels.current))
    assert labels.current == "walking"
    labels.press("2")
    labels.press("9")
    labels.press("0")
    assert not labels.current
    labels.press("1")
    assert seen == ["sitting", "", "walking"]


def test_without_names_nothing_pauses_and_no_key_does_anything() -> None:
    labels = CurrentLabel([])
    labels.press("120 ")
    labels.feed(b"walking\n")
    assert labels.current == ""


def test_lines_are_labels_whole_or_in_pieces() -> None:
    labels = CurrentLabel(["walking"])
    labels.feed(b"sit")
    assert labels.current == "walking"
    labels.feed(b"ting\n")
    assert (labels.current, labels.names) == ("sitting", ["walking", "sitting"])
    labels.feed(b"\n")
    assert not labels.current


def test_a_moment_has_the_label_that_held_then() -> None:
    """Mutation that this finds: rows that waited for others get the label of the time of writing."""
    clock = SimulatedClock(100.0)
    labels = CurrentLabel(["walking", "sitting"], clock=clock)
    clock.advance(10)
    labels.press("2")
    clock.advance(10)
    labels.press("0")
    assert labels.at(np.array([0.0, 109.9, 110.0, 119.0, 120.0, 500.0])) == [
        "walking", "walking", "sitting", "sitting", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("line", [b"x" * (MAX_LABEL + 1), b"a\x1bb", b"\xff\x00"])
def test_a_line_that_is_no_label_changes_nothing(line: bytes) -> None:
    labels = CurrentLabel(["walking"])
    labels.feed(line + b"\n")
    assert labels.current == "walking"


def test_a_line_without_end_costs_bounded_memory() -> None:
    labels = CurrentLabel(["walking"])
    for _ in range(1000):
        labels.feed(b"x" * 10_000)
    labels.feed(b"\nrunning\n")
    assert labels.current == "running"


def test_a_pipe_is_read_on_the_loop_and_its_end_is_no_matter() -> None:
    out, into = os.pipe()
    loop, labels = Loop(), CurrentLabel(["walking"])
    with labels.read_from(out, loop) as terminal:
        assert not terminal
        os.write(into, b"sitting\n")
        loop.iterate(10)
        assert labels.current == "sitting"
        os.close(into)
        loop.iterate(10)
        assert labels.current == "sitting"
    loop.close()
    os.close(out)


def test_a_pipe_that_nobody_may_read_is_left_alone() -> None:
    with Path(os.devnull).open("rb") as nothing:
        loop = Loop()
        with CurrentLabel(["walking"]).read_from(nothing.fileno(), loop) as terminal:
            assert not terminal
        loop.close()


def test_a_terminal_hands_over_single_keys_and_is_as_before_afterwards() -> None:
    """Mutation that this finds: the terminal stays without echo after the end."""
    pid, main = pty.fork()  # the child has the terminal in its foreground, as a shell's command has
    if not pid:
        loop, labels = Loop(), CurrentLabel(["walking", "sitting"])
        before = termios.tcgetattr(0)
        with labels.read_from(0, loop) as terminal:
            os.write(1, b"ready")
            while labels.current != "sitting":
                loop.iterate(30)
        os._exit(0 if terminal and termios.tcgetattr(0) == before else 1)
    while b"ready" not in os.read(main, 100):
        pass
    os.write(main, b"2")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(main)
