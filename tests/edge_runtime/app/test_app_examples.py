"""A running application is taught labels by commands: from its own windows and from recordings, over restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.tools.cli import main
from edge_runtime.types import Answer, Done, Prediction, Reading
from tests.task_bundles import CHANNELS, FILES, OUTPUTS, RATE_HZ, WINDOW, task_bundle

APP = """
[model]
bundle = "task.edge"
unsigned = "allow"
failover = "off"
[reading_log]
path = "log.db"
[[source]]
type = "stdin"
[[sink]]
type = "stdout"
"""
WAIT_S = 30.0


class Asked:
    """A source that gives a window of a level when it is asked for one; and a sink that waits for its answer."""

    finished = False
    name = "asked"

    def __init__(self, start: float) -> None:
        self.start = start
        self.levels: list[float] = []
        self.given = 0
        self.answers: list[Prediction] = []
        self.answered = threading.Semaphore(0)

    def open(self, loop: Loop, deliver: Deliver) -> None:
        def look() -> None:
            while self.given < len(self.levels):
                rows = np.full((WINDOW, CHANNELS), self.levels[self.given], np.float32)
                stamps = self.start + (self.given * WINDOW + np.arange(WINDOW)) / RATE_HZ
                self.given += 1
                deliver([Reading("k", stamps, rows)], loop.clock.monotonic(), None)

        loop.call_every(0.01, look)

    def answer(self, level: float) -> Prediction:
        self.levels.append(level)
        assert self.answered.acquire(timeout=WAIT_S)
        return self.answers[-1]

    def pause(self) -> None:
        pass

    def close(self) -> None:
        pass


class Sink(MemorySink):
    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self._asked = asked

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        super().send(answers, done)
        for answer in answers:
            if isinstance(answer, Prediction):
                self._asked.answers.append(answer)
                self._asked.answered.release()


def beside(folder: Path, commands: Callable[[Asked], None], start: float = 1600.0) -> App:
    """Run the application, and commands beside it; then stop it."""
    asked, failed = Asked(start), list[BaseException]()
    text = APP.partition("[[source]]")[0]
    app = App(parse(text, folder / "app.toml"), sources=[asked], sinks=[Sink(asked)])

    def play() -> None:
        try:
            commands(asked)
        except BaseException as error:
            failed.append(error)
        finally:
            app.stop()

    thread = threading.Thread(target=play)
    thread.start()
    app.run()
    thread.join()
    if failed:
        raise failed[0]
    return app


class Command:
    """``edge-runtime examples``."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, action: str, *more: str, code: int = 0) -> str:
        self._capsys.readouterr()
        wait = ["--wait", str(WAIT_S)] if action in ("add", "remove") and "--wait" not in more else []
        found = main(["examples", action, str(self.folder / "app.toml"), *more, *wait])
        said = self._capsys.readouterr()
        assert found == code, said.err
        return said.err if code else said.out


@pytest.fixture
def examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    task_bundle(tmp_path / "task.edge", EmbeddingOutput(size=2, distance="l2", k=1))
    (tmp_path / "app.toml").write_text(APP)
    return Command(tmp_path, capsys)


def day(folder: Path, *levels: float) -> str:
    rows = np.repeat(np.array(levels), WINDOW)
    lines = [f"{1600 + i / RATE_HZ},{row},{row},{row}" for i, row in enumerate(rows.tolist())]
    (folder / "day.csv").write_text("\n".join(["t,c0,c1,c2", *lines]) + "\n")
    return str(folder / "day.csv")


@pytest.mark.slow
def test_a_window_of_the_running_application_teaches_a_label(examples: Command, tmp_path: Path) -> None:
    seen: list[Prediction] = []

    def commands(asked: Asked) -> None:
        first = asked.answer(1.0)
        assert first.label == "unknown"
        assert examples("add", "--label", "door", "--window", first.id) == "added 1; in use: door 1\n"
        assert asked.answer(1.0).label == "door", "from the next window on"
        low = asked.answer(-1.0)
        told = orjson.loads(examples("add", "--label", "tap", "--window", low.id, "--json"))
        assert told == {"added": 1, "labels": {"door": 1, "tap": 1}, "kept": True}
        seen.extend([asked.answer(0.9), asked.answer(-0.9)])
        assert "is none of the last" in examples("add", "--label", "door", "--window", "k@1", code=1)
        assert f"{low.id!r} is an example of 'tap' already" in examples(
            "add", "--label", "door", "--window", low.id, code=1
        )

    beside(tmp_path, commands)
    assert [one.label for one in seen] == ["door", "tap"]
    listed = orjson.loads(examples("list", "--json"))
    assert (listed["bundle"], listed["learnt"], listed["other_models"]) == ({}, {"door": 1, "tap": 1}, [])

    def again(asked: Asked) -> None:
        assert asked.answer(-0.9).label == "tap", "a restart keeps it"
        assert examples("remove", "--label", "tap") == "removed 1; in use: door 1\n"
        assert asked.answer(-0.9).label == "door", "taken away at once"

    beside(tmp_path, again, start=1616.0)
    (left,) = orjson.loads(examples("list", "--json"))["examples"]
    assert (left["label"], left["model"]) == ("door", "linear/1")


@pytest.mark.slow
def test_a_recording_teaches_a_label_and_the_next_bundle_takes_it_along(examples: Command, tmp_path: Path) -> None:
    path = day(tmp_path, 1.0, -1.0, 0.5)

    def commands(asked: Asked) -> None:
        assert "have 3 windows (day@80000, day@80008, day@80016); name those that are 'door'" in examples(
            "add", "--label", "door", "--recording", path, code=2
        )
        assert "no window day@7; they have day@80000" in examples(
            "add", "--label", "door", "--recording", path, "--window", "day@7", code=2
        )
        examples("add", "--label", "door", "--recording", path, "--window", "day@80000", "--window", "day@80016")
        examples("add", "--label", "tap", "--recording", path, "--window", "day@80008")
        assert (asked.answer(1.0).label, asked.answer(-1.0).label) == ("door", "tap")
        task_bundle(tmp_path / "task.edge", EmbeddingOutput(size=3))
        assert "made by another model than the one that answers now" in examples(
            "add", "--label", "door", "--recording", path, "--all", code=1
        )
        task_bundle(tmp_path / "task.edge", OUTPUTS["embedding"], files=FILES["embedding"], version=2)

    beside(tmp_path, commands)
    said = examples("export", "--out", str(tmp_path / "e.npy"))
    assert said.endswith(
        '5 examples; in the card, under [task]:\nlabels = ["up","down","door","tap"]\nexamples = "e.npy"\n'
    )
    assert np.load(tmp_path / "e.npy")[:, 0].tolist() == [0, 1, 2, 2, 3]
    text = examples("list")
    assert "of the bundle: up 1, down 1" in text
    assert "added here: door 2, tap 1" in text


@pytest.mark.slow
def test_what_cannot_be_an_example_is_refused_with_what_to_do(examples: Command, tmp_path: Path) -> None:
    add = ("add", "--label", "door")
    assert "name the windows with --window ID, or give --recording" in examples(*add, code=2)
    assert "write 1 to 64 printable" in examples("add", "--label", "do\nor", "--window", "k@0", code=2)
    assert "does it run" in examples(*add, "--window", "k@0", "--wait", "0", code=1)
    assert "name ids, --label LABEL or --other-models" in examples("remove", code=2)
    assert "there are no examples yet" in examples("export", "--out", str(tmp_path / "e.npy"), code=1)
    short = tmp_path / "short.csv"
    short.write_text("t,c0,c1,c2\n1600,1,1,1\n")
    assert "hold no window of 0.16 s; give longer ones" in examples(*add, "--recording", str(short), code=2)
    task_bundle(tmp_path / "task.edge", OUTPUTS["multi-label"])
    path = day(tmp_path, 1.0)
    assert "linear/1 answers with multi-label, and its labels come from training" in examples(
        *add, "--recording", path, code=2
    )
    (tmp_path / "app.toml").write_text(APP.replace('[reading_log]\npath = "log.db"\n', ""))
    assert "names no file for state; add [reading_log] with a path" in examples("list", code=2)


def test_inspect_counts_the_examples_of_a_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path: Any = task_bundle(tmp_path / "task.edge", OUTPUTS["embedding"], files=FILES["embedding"])
    assert main(["inspect", str(path), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["examples"] == {"up": 1, "down": 1}
