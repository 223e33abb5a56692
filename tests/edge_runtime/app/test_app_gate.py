"""Whole applications whose bundle asks for a share of hard windows of each key."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.manifest import Surround
from edge_runtime.manifest.surround import SurroundGate
from edge_runtime.store.durable.state_file import read_part
from edge_runtime.tools.cli import main
from edge_runtime.types import Prediction, Reading
from tests.models import tiny_bundle

WINDOW = 16
APP = """
[model]
bundle = "tiny.edge"
unsigned = "allow"
failover = "off"
{model}
[gate]
{gate}
{more}
"""
KEPT = '[reading_log]\npath = "log.db"\n'


class Fed:
    """A source that gives windows of noise and ends."""

    name = "fed"

    def __init__(self, windows: int, start: float) -> None:
        self.windows, self.start = windows, start
        self.finished = False

    def open(self, loop: Loop, deliver: Deliver) -> None:
        rows = np.random.default_rng(int(self.start)).standard_normal((self.windows * WINDOW, 3)).astype(np.float32)
        stamps = self.start + np.arange(len(rows)) / 50.0

        def give() -> None:
            deliver([Reading("k", stamps, rows)], loop.clock.monotonic(), None)
            self.finished = True

        loop.call_soon(give)

    def pause(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_bundle(tmp_path / "tiny.edge", surround=Surround(gate=SurroundGate(threshold=0.9, share=0.1)))
    return tmp_path


def run(
    folder: Path, *, windows: int = 1500, start: float = 1000.0, gate: str = "", model: str = "", more: str = ""
) -> tuple[App, list[Prediction]]:
    sink = MemorySink()
    config = parse(APP.format(gate=gate, model=model, more=more), folder / "app.toml")
    app = App(config, sources=[Fed(windows, start)], sinks=[sink])
    assert app.run()
    return app, [one for one in sink.answers if isinstance(one, Prediction)]


def share(answers: list[Prediction]) -> float:
    return float(np.mean([one.hard for one in answers]))


@pytest.mark.parametrize(("gate", "asked"), [("", 0.1), ("share = 0.25", 0.25)])
def test_the_share_is_what_the_bundle_or_the_operator_asks(folder: Path, gate: str, asked: float) -> None:
    _, answers = run(folder, gate=gate)
    assert len(answers) == 1500
    assert share(answers) == pytest.approx(asked, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"gate": "adapt = false"}, "adapt = false under [gate]"),
        ({"gate": "threshold = 0.9"}, "threshold under [gate] is the operator's own"),
        ({"model": "alone = true", "gate": "share = 0.1"}, "alone = true under [model]"),
    ],
)
def test_a_setting_turns_it_off_and_the_log_says_which(
    folder: Path, settings: dict[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app, _ = run(folder, windows=20, **settings)  # type: ignore[arg-type]
    assert not app.gate.active
    assert f"a share of 0.1 of the windows of each key is not kept: {says}" in caplog.text


def test_thresholds_of_keys_outlive_the_application(folder: Path) -> None:
    first, _ = run(folder, windows=300, more=KEPT)
    assert read_part(folder / "log.state.db", "gate") == first.gate.save()
    second, answers = run(folder, start=1096.0, windows=100, more=KEPT)
    assert b",400," in second.gate.save()
    assert share(answers) < 0.2


def test_a_file_of_something_else_is_kept_aside_and_the_application_begins_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "log.gate").write_bytes(b"{}")
    (folder / "log.gate").chmod(0o600)
    run(folder, windows=20, more=KEPT)
    assert "thresholds of the gate cannot be read" in caplog.text
    assert (folder / "log.gate.damaged").read_bytes() == b"{}"


def test_contradicting_settings_are_one_line_and_an_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = APP.format(gate="share = 0.1\nthreshold = 0.5", model="", more='[[sink]]\ntype = "stdout"\n')
    (folder / "app.toml").write_text(text)
    assert main(["run", str(folder / "app.toml")]) == 2
    assert "share moves the threshold" in capsys.readouterr().err
