"""docs/recordings.md: the command below each file of the page reads the two samples that the page names."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sources.recording import RecordingSource
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.tools.cli import replay
from edge_runtime.types import Done, Reading
from tests.integration.running import ROOT, command
from tests.models import usable
from tests.parsing import parsed

PAGE = (ROOT / "docs/recordings.md").read_text("utf-8")
CONTRACT = InputContract(
    channels=tuple(Channel(name=name, unit="m/s2") for name in ("ax", "ay", "az")), rate_hz=50, window=100, hop=50
)
_BLOCK = re.compile(r"(?:^File `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A command, and the files and programs that stand before it in its section."""

    command: str
    files: dict[str, str]
    programs: list[str]


def examples() -> list[Example]:
    found = []
    for section in PAGE.split("\n## ")[1:]:
        files: dict[str, str] = {}
        programs: list[str] = []
        for name, kind, text in _BLOCK.findall(section):
            if name:
                files[name] = text
            elif kind == "python":
                programs.append(text)
            elif "edge-runtime replay" in text and (files or programs) and "--labels" not in text:
                found.append(Example(text, dict(files), list(programs)))
    return found


EXAMPLES = examples()


def test_every_form_of_file_is_on_the_page() -> None:
    assert len(EXAMPLES) == 7


@pytest.mark.slow
def test_the_score_on_the_page_is_that_of_the_command(tmp_path: Path) -> None:
    if not usable("litert"):
        pytest.skip("litert is not installed")
    expected = next(text for _, kind, text in _BLOCK.findall(PAGE) if kind == "text" and "score: " in text)
    folder = ROOT / "examples/exercise-watch"
    done = command(
        "replay", folder / "watch.edge", folder / "recordings.npz", "--labels", "label", "--key-column", "subject",
        "--variant", "tflite-int8", "--out", tmp_path / "predictions.jsonl", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0
    assert done.err.endswith(expected)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: shlex.split(example.command)[3])
def test_an_example_gives_the_samples_of_the_page(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("watch.edge").touch()
    for name, text in example.files.items():
        Path(name).write_text(text)
    for program in example.programs:
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    options = parsed(replay.ReplayOptions, *shlex.split(example.command.replace("\\\n", ""))[2:])
    readings: list[Reading] = []

    def take(found: list[Reading], _received: float, done: Done | None) -> None:
        readings.extend(found)
        if done is not None:
            done()

    metrics, loop = Metrics(), Loop()
    source = RecordingSource(options.layout.of(options.recordings), CONTRACT, metrics)
    source.open(loop, take)  # type: ignore[arg-type]
    while not source.finished:
        loop.iterate(0)
    source.close()
    loop.close()
    assert not +metrics.dropped
    assert {reading.key for reading in readings} == {"w1"}
    assert np.concatenate([np.atleast_1d(reading.t) for reading in readings]).tolist() == [1.7e9, 1_700_000_000.02]
    assert np.concatenate([reading.values for reading in readings]).tolist() == [[0.5, 0.25, 9.75], [1, -0.5, 9.5]]
