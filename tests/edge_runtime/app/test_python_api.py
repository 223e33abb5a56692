"""The public names, and programs that use them."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson
import pytest

import edge_runtime
from edge_runtime import (
    Answer,
    App,
    AppConfig,
    ConfigError,
    Deliver,
    EdgeError,
    Loop,
    Metrics,
    Model,
    ModelConfig,
    Prediction,
    Reading,
    open_model,
    replay,
)
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.tools.cli import main

ROOT = Path(__file__).resolve().parents[3]
EXERCISES = ROOT / "examples/exercise-watch"
PROGRAMS = ROOT / "examples/embedding"
RECORDINGS = EXERCISES / "recordings.npz"

SIGNATURES = {
    "App": "(config: 'AppConfig', *, metrics: 'Metrics | None' = None, clock: 'Clock | None' = None, "
    "model: 'Model | None' = None, sources: 'Sequence[Source]' = (), sinks: 'Sequence[Sink]' = (), "
    "rehearsal: 'bool' = False, role: 'ProcessRole | None' = None) -> 'None'",
    "App.close": "(self) -> 'None'",
    "App.run": "(self) -> 'bool'",
    "App.stop": "(self) -> 'None'",
    "Deliver.__call__": "(self, readings: 'Sequence[Reading]', received: 'float', done: 'Done | None') -> 'None'",
    "Loop.call_every": "(self, seconds: 'float', callback: 'Callback') -> 'Timer'",
    "Loop.call_later": "(self, seconds: 'float', callback: 'Callback') -> 'Timer'",
    "Loop.call_soon_threadsafe": "(self, callback: 'Callback') -> 'None'",
    "Loop.watch": "(self, fd: 'int', on_readable: 'Callback', *, lingers: 'bool' = False) -> 'None'",
    "Model.close": "(self) -> 'None'",
    "Reading": "(key: ForwardRef('str'), t: ForwardRef('float | Float64'), values: ForwardRef('Float32'), "
    "period_s: ForwardRef('float') = 0.0, channels: ForwardRef('tuple[int, ...] | None') = None)",
    "Sink.close": "(self, timeout_s: 'float') -> 'None'",
    "Sink.open": "(self, loop: 'Loop') -> 'None'",
    "Sink.send": "(self, answers: 'Sequence[Answer]', done: 'Done | None') -> 'None'",
    "Source.close": "(self) -> 'None'",
    "Source.open": "(self, loop: 'Loop', deliver: 'Deliver') -> 'None'",
    "Source.pause": "(self) -> 'None'",
    "load_config": "(path: 'str | os.PathLike[str]') -> 'AppConfig'",
    "open_model": "(bundle: 'AnyPath', *, trusted_keys: 'Sequence[AnyPath]' = (), variant: 'str' = 'auto') -> 'Model'",
    "replay": "(model: 'Model', *files: 'AnyPath', lateness_s: 'float' = 0.0, "
    "metrics: 'Metrics | None' = None, **layout: 'Any') -> 'Iterator[Prediction]'",
}


def test_the_public_names_are_these() -> None:
    assert edge_runtime.__all__ == [
        *("Answer", "App", "AppConfig", "BundleError", "ConfigError", "Correction", "Deliver", "EdgeError"),
        *("Event", "FinalAnswer", "Loop", "Metrics", "Model", "ModelConfig", "Prediction", "Reading", "Sink", "Source"),
        *("__version__", "load_config", "open_model", "replay"),
    ]
    for name in edge_runtime.__all__:
        assert getattr(edge_runtime, name) is not None
    assert set(edge_runtime.__all__) <= set(dir(edge_runtime))
    assert not hasattr(edge_runtime, "no_such_name")


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signature_of_a_public_name_is_this(name: str) -> None:
    """A change here is a change for everybody who embeds the runtime: it belongs into the change log."""
    public, *method = name.split(".")
    found = getattr(edge_runtime, public)
    for part in method:
        found = getattr(found, part)
    assert str(inspect.signature(found)) == SIGNATURES[name]


def test_every_public_name_is_on_the_page() -> None:
    page = (ROOT / "docs/embedding.md").read_text("utf-8").partition("## All names")[2]
    assert set(re.findall(r"`(\w+)`", page)) == set(edge_runtime.__all__) - {"__version__"}


@pytest.mark.parametrize("name", ["replay.py", "own_sensor.py"])
def test_the_page_shows_the_programs_as_they_are(name: str) -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs/embedding.md").read_text("utf-8"), re.DOTALL)
    assert (PROGRAMS / name).read_text("utf-8") in shown


def output_of(program: str, folder: Path) -> list[str]:
    """Run a program of the page in a fresh process, in a folder with a bundle and recordings."""
    for name in ("watch.edge", "recordings.npz"):
        shutil.copy(EXERCISES / name, folder)
    command = [sys.executable, str(PROGRAMS / program)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_program_that_replays_answers_every_window(tmp_path: Path) -> None:
    lines = output_of("replay.py", tmp_path)
    assert len(lines) > 900
    assert all(re.fullmatch(r"\S+ +\d+\.\d s  [A-Z]{2,4}  [01]\.\d\d (hard)?", line) for line in lines)
    assert any(line.endswith("hard") for line in lines)


@pytest.mark.slow
def test_the_program_with_a_sensor_of_its_own_prints_answers_and_ends(tmp_path: Path) -> None:
    lines = output_of("own_sensor.py", tmp_path)
    assert len(lines) >= 2
    assert all(re.fullmatch(r"left-arm: [A-Z]{2,4} \(0\.\d\d\)", line) for line in lines)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with open_model(EXERCISES / "watch.edge", variant="onnx-fp32") as opened:
        yield opened


@pytest.mark.slow
def test_replay_answers_as_the_command_does(model: Model, tmp_path: Path) -> None:
    """Twice with one model: it stays open, and nothing of the first time is left in the second."""
    bundle, out = EXERCISES / "watch.edge", tmp_path / "out.jsonl"
    assert main(["replay", str(bundle), str(RECORDINGS), "--variant", "onnx-fp32", "--out", str(out)]) == 0
    expected = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    metrics = Metrics()
    for one in (replay(model, RECORDINGS, metrics=metrics), replay(model, str(RECORDINGS))):
        found = [orjson.loads(prediction.to_json()) for prediction in one]
        assert [without_latency(answer) for answer in found] == [without_latency(answer) for answer in expected]
    assert metrics.counts["predictions_total"] == len(expected) > 900


def without_latency(answer: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in answer.items() if name != "latency_ms"}


def test_a_replay_that_is_left_early_frees_what_it_holds(model: Model) -> None:
    """The unclosed sockets or files of an abandoned generator would be warnings, which are errors here."""
    answers = replay(model, RECORDINGS)
    assert isinstance(next(answers), Prediction)
    del answers
    assert next(replay(model, RECORDINGS, key="again")).key == "again"


def test_what_is_not_there_is_a_configuration_error(model: Model, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        open_model(tmp_path / "no.edge")
    with pytest.raises(ConfigError, match="no such file"):
        next(replay(model, tmp_path / "no.npz"))
    with pytest.raises(ConfigError, match="at least one recording"):
        next(replay(model))
    with pytest.raises(ConfigError, match="lateness_s must not be negative"):
        next(replay(model, RECORDINGS, lateness_s=-1))


def test_with_keys_an_unsigned_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EdgeError):
        open_model(EXERCISES / "watch.edge", trusted_keys=[tmp_path / "no.pub.pem"])


class Played:
    """A source of the caller's own, which plays what it is given."""

    name = "played"

    def __init__(self, readings: Sequence[Reading]) -> None:
        self.finished = False
        self.acknowledged = 0
        self.closed = False
        self._readings = list(readings)

    def open(self, loop: Loop, deliver: Deliver) -> None:
        self._loop, self._deliver = loop, deliver
        loop.call_soon(self._play)

    def _play(self) -> None:
        self._deliver([self._readings.pop(0)], self._loop.clock.monotonic(), self._done)
        self.finished = not self._readings
        if not self.finished:
            self._loop.call_soon(self._play)

    def _done(self) -> None:
        self.acknowledged += 1

    def pause(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Kept:
    """A sink of the caller's own."""

    name = "kept"

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def open(self, loop: Loop) -> None:
        assert isinstance(loop, Loop)

    def send(self, answers: Sequence[Answer], done: Callable[[], None] | None) -> None:
        self.answers += answers
        if done is not None:
            done()

    def close(self, timeout_s: float) -> None:
        assert timeout_s >= 0


def settings(*source: RecordingConfig) -> AppConfig:
    model = ModelConfig(bundle=EXERCISES / "watch.edge", unsigned="allow", variant="onnx-fp32", failover="off")
    return AppConfig(model=model, source=source)


def test_an_application_takes_sources_and_sinks_that_a_program_made(model: Model) -> None:
    """Beside a source of the configuration, whose answers reach the program's sink too."""
    readings = list(iter_readings(RECORDINGS, model.manifest.input))[:200]
    expected = [answer.id for answer in replay(model, RECORDINGS)]
    config = settings(RecordingConfig(files=(RECORDINGS,), key="file"))
    source, sink = Played(readings), Kept()
    assert App(config, sources=[source], sinks=[sink]).run() is True
    assert source.acknowledged == len(readings)
    assert source.closed
    own = [answer.id for answer in sink.answers if answer.key != "file"]
    assert 150 < len(own) < len(expected)
    assert own == expected[: len(own)]
    assert len(sink.answers) == len(own) + len(expected)


def test_an_application_without_any_source_or_sink_says_where_they_go() -> None:
    with pytest.raises(ConfigError, match=r"at least one \[\[source\]\].*sources=\["):
        App(settings(), sinks=[MemorySink()])
    with pytest.raises(ConfigError, match=r"at least one \[\[sink\]\].*sinks=\["):
        App(settings(), sources=[Played([])])


@pytest.mark.slow
def test_the_length_of_readings_changes_no_answer(model: Model) -> None:
    """Rounded to a step of the grid, a second, what is taken at once, and all that a block has."""
    expected = [vars(answer) | {"latency_ms": 0} for answer in replay(model, RECORDINGS)]
    for chunk_s in (0.02, 1.0, 3600.0):
        found = [vars(answer) | {"latency_ms": 0} for answer in replay(model, RECORDINGS, chunk_s=chunk_s)]
        assert found == expected
