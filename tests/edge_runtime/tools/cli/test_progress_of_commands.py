"""A command that takes long says how far it is to a person at a terminal, and to nobody else."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

BUNDLE = Path(__file__).parents[4] / "examples" / "exercise-watch" / "watch.edge"
BENCH = [sys.executable, "-m", "edge_runtime", "bench", str(BUNDLE), "--messages", "16"]
SILENCE_S = 60.0


@pytest.mark.slow
def test_a_person_at_a_terminal_sees_how_far_it_is_and_may_end_it() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*BENCH, "--rounds", "1000000"])
    seen = b""
    while b"rounds  [" not in seen or b" left" not in seen:
        assert select.select([terminal], [], [], SILENCE_S)[0], seen
        seen += os.read(terminal, 65_536)
    os.write(terminal, b"\x03")
    last = b""
    while select.select([terminal], [], [], SILENCE_S)[0]:
        try:
            last += os.read(terminal, 65_536)
        except OSError:  # the terminal's other end is closed
            break
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert b"of 1,000,000" in seen
    assert b"\r\x1b[K" in seen + last
    assert b"Traceback" not in last
    assert os.waitstatus_to_exitcode(status) != 0
    assert b"rounds  [" not in last.rpartition(b"\r\x1b[K")[2], "the line was not wiped"


@pytest.mark.slow
def test_a_pipe_gets_no_line_of_progress() -> None:
    done = subprocess.run([*BENCH, "--rounds", "3"], capture_output=True, check=True)
    assert b"rounds  [" not in done.stderr + done.stdout
    assert b"\x1b" not in done.stderr
