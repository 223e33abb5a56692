"""Whole applications whose bundle says how labels follow one another: live, replayed, over a stop, and alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.app import python_api as embedding
from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.manifest import Surround
from edge_runtime.manifest.surround import OverTime, SurroundGate
from edge_runtime.model.over_time import OverTimeFilter
from edge_runtime.types import Prediction, Reading
from tests.models import tiny_bundle

WINDOW, RATE_HZ, COUNT = 16, 50.0, 40
SPEC = OverTime(transition=((0.9, 0.05, 0.05), (0.05, 0.9, 0.05), (0.05, 0.05, 0.9)), prior=(0.4, 0.3, 0.3), weight=0.5)
APP = '[model]\nbundle = "tiny.edge"\nunsigned = "allow"\n{model}\n[reading_log]\npath = "log.db"\n'
ROWS = np.random.default_rng(3).standard_normal((COUNT * WINDOW, 3)).astype(np.float32)
STAMPS = 1000.0 + np.arange(len(ROWS)) / RATE_HZ


class Fed:
    """A source that gives rows of two keys and ends."""

    name = "fed"

    def __init__(self, first: int, last: int) -> None:
        self.rows = slice(first * WINDOW, last * WINDOW)
        self.finished = False

    def open(self, loop: Loop, deliver: Deliver) -> None:
        def give() -> None:
            for key in ("a", "b"):
                deliver([Reading(key, STAMPS[self.rows], ROWS[self.rows])], loop.clock.monotonic(), None)
            self.finished = True

        loop.call_soon(give)

    def pause(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_bundle(tmp_path / "tiny.edge", surround=Surround(gate=SurroundGate(threshold=0.6), over_time=SPEC))
    return tmp_path


def run(folder: Path, first: int = 0, last: int = COUNT, model: str = "") -> dict[str, Prediction]:
    sink = MemorySink()
    app = App(parse(APP.format(model=model), folder / "app.toml"), sources=[Fed(first, last)], sinks=[sink])
    assert app.run()
    return {one.id: one for one in sink.answers if isinstance(one, Prediction)}


def begin_again(folder: Path) -> None:
    """Forget what the run before has kept, the epochs of its keys included."""
    for path in folder.glob("log.*"):
        path.unlink()


def scores(answers: Sequence[Prediction]) -> list[list[float]]:
    return [one.scores for one in answers]


def test_an_answer_follows_from_the_network_s_and_the_key_s_before_it(folder: Path) -> None:
    alone = run(folder, model="alone = true")
    begin_again(folder)
    over_time = run(folder)
    assert alone.keys() == over_time.keys()
    own, state = OverTimeFilter(SPEC, WINDOW), None
    for one in (one for one in alone.values() if one.key == "a"):
        state = own.step(state, int(one.id.rpartition("@")[2]), one.scores)
        np.testing.assert_allclose(over_time[one.id].scores, state[1], atol=1e-5)
    changed = [one.id for one in alone.values() if one.label != over_time[one.id].label]
    assert len(changed) > 3
    for one in over_time.values():
        assert one.confidence == max(one.scores)
        assert one.hard == (one.confidence < np.float32(0.6)), "the gate of the surround decides about the posterior"


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 17])
def test_an_orderly_stop_changes_no_answer(folder: Path, cut: int) -> None:
    whole = run(folder)
    begin_again(folder)
    parts = run(folder, 0, cut) | run(folder, cut, COUNT)
    assert {name: one.scores for name, one in parts.items()} == {name: one.scores for name, one in whole.items()}


@pytest.mark.slow
def test_a_recording_that_is_replayed_gets_the_answers_of_a_live_stream(folder: Path) -> None:
    path = folder / "a.npz"
    np.savez(path, t=STAMPS, x=ROWS)
    with embedding.open_model(folder / "tiny.edge") as model:
        replayed = list(embedding.replay(model, path, time="t", key="a"))
    live = [one for one in run(folder).values() if one.key == "a"]
    assert scores(replayed) == scores(live)
