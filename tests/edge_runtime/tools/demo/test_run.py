"""The demo: a run takes up where the one before has ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime.tools.demo.run import first_stamp
from edge_runtime.tools.demo.schedule import PAUSE_S, ExerciseSet, plan


def test_a_run_begins_behind_what_the_one_before_has_played_faster_than_time_passes(tmp_path: Path) -> None:
    """Mutation: it begins now: the clock of each watch goes back, and the log says so, a line for each."""
    recordings = [ExerciseSet(1, "walk", np.zeros((500, 1), np.float32))] * 8
    base = first_stamp(tmp_path, 1000.7)
    assert base == 1000.0
    played = max(turn.end for turn in plan(recordings, 8, base, 50.0))
    (tmp_path / "played-until").write_text(f"{played:.0f}\n")
    assert first_stamp(tmp_path, 1002.0) == played + PAUSE_S
    assert first_stamp(tmp_path, 5000.2) == 5001.0


@pytest.mark.parametrize("text", ["", "soon"])
def test_a_note_that_cannot_be_read_begins_now(tmp_path: Path, text: str) -> None:
    (tmp_path / "played-until").write_text(text)
    assert first_stamp(tmp_path, 7.5) == 7.0
