"""Observers are told of each answer once, and of a model that an update brings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.store.cases.keeper import CaseKeeper
from edge_runtime.types import Answer, Done
from tests.integration.running import streams, write_recording
from tests.models import tiny_bundle

APP = """
[model]
bundle = "watch.edge"
unsigned = "allow"
failover = "off"
[[source]]
type = "recording"
files = ["recording.jsonl"]
speed = 0.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_bundle(tmp_path / "watch.edge", hop=8)
    write_recording(tmp_path / "recording.jsonl", streams(2, 60))
    return tmp_path


def test_an_observer_that_is_a_sink_is_sent_every_answer_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Answer] = []
    send = CaseKeeper.send

    def noted(self: CaseKeeper, answers: Sequence[Answer], done: Done | None) -> None:
        sent.extend(answers)
        send(self, answers, done)

    monkeypatch.setattr(CaseKeeper, "send", noted)
    sink = MemorySink()
    app = App(parse(APP + '[cases]\npath = "cases.db"\n', folder / "app.toml"), sinks=[sink])
    assert app.sinks == [sink, app.cases]
    assert app.run()
    assert sent == sink.answers
    assert len(sent) > 5


def test_without_tables_of_observers_only_the_reporters_are_there(folder: Path) -> None:
    sink = MemorySink()
    app = App(parse(APP, folder / "app.toml"), sinks=[sink])
    assert (app.cases, app.observation, app.observers.sinks) == (None, None, [])
    assert app.run()
    assert app.figures()["counts"]["predictions_total"] == len(sink.answers) > 5
