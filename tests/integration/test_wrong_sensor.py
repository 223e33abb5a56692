"""Wrong sensors among good ones on a real broker: each is named, and its answers alone are marked."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.manifest import Channel, Reference
from tests.integration.running import (
    PATIENCE_S,
    Answer,
    Message,
    Process,
    Publisher,
    Stream,
    answers,
    command,
    cut,
    environment,
    interleave,
    until,
    write_recording,
)
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

APP = """
[model]
bundle = "{bundle}"
unsigned = "allow"
variant = "onnx-fp32"
[broker.local]
url = "{url}"
[[source]]
type = "mqtt"
broker = "local"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""


CHANNELS = tuple(Channel(name=f"a{axis}", unit="g") for axis in "xyz")
QUANTILES = (0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.4, 1.6, 2.0)
"""Of `wrist`'s norm."""


def wrist(key: str, seed: int) -> Stream:
    """Thirty seconds of gravity, and some movement."""
    rng = np.random.default_rng(seed)
    t = 1_700_000_000.0 + 0.37 * seed + (np.arange(1500) + rng.uniform(-0.1, 0.1, 1500)) / 50
    return Stream(key, t, (np.array([0, 0.6, 0.8]) + rng.normal(0, 0.15, (1500, 3))).astype(np.float32))


def sensors() -> list[Stream]:
    """Good ones at 50 Hz in g; one whose stamps say 20 Hz, one in m/s2, one with an axis that freezes."""
    good, slow, metric, frozen, also_good = (wrist(name, i) for i, name in enumerate(NAMES))
    frozen.values[300:, 1] = 0.75
    return [
        good,
        slow._replace(t=slow.t[0] + (slow.t - slow.t[0]) * 2.5),
        metric._replace(values=metric.values * np.float32(9.80665)),
        frozen,
        also_good,
    ]


NAMES = ("good", "slow", "metric", "frozen", "also-good")
REASONS = {"slow": "rate", "metric": "unit", "frozen": "stuck"}
LINES = {
    "slow": "rate_hz=20 expected_hz=50: set the sensor to that rate",
    "metric": 'm/s2 instead of g? Then write units = {ax = "m/s2", ay = "m/s2", az = "m/s2"} under [source.codec]',
    "frozen": "channels=ay values=0.75 seconds=1",
}


def marked(found: list[Answer]) -> list[tuple[str, str, bool]]:
    return sorted((answer["id"], answer.get("suspect", ""), answer["hard"]) for answer in found)


@pytest.mark.slow
def test_each_wrong_sensor_of_several_is_named_and_marked_alone(tmp_path: Path) -> None:
    references = [Reference(channels=("ax", "ay", "az"), quantiles=QUANTILES, span_s=5, still_s=0.1)]
    bundle = tiny_bundle(tmp_path / "tiny.edge", hop=8, sensor=CHANNELS, references=references)
    recorded = sensors()
    recording = write_recording(tmp_path / "recording.jsonl", recorded, samples=150)
    replayed = command("replay", bundle, recording, "--variant", "onnx-fp32", "--out", tmp_path / "replayed.jsonl")
    assert replayed.code == 0, replayed.err
    expected = marked(answers(tmp_path / "replayed.jsonl"))
    messages: list[Message] = interleave(np.random.default_rng(0), [cut(stream, lambda: 20) for stream in recorded])
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        (tmp_path / "app.toml").write_text(APP.format(bundle=bundle, url=broker.url))
        with Process(tmp_path, "run", "app.toml", "--json") as process:
            process.subscribed(broker)
            publisher.send(messages)
            until(lambda: len(answers(tmp_path / "answers.jsonl")) >= len(expected), lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
    found = answers(tmp_path / "answers.jsonl")
    assert marked(found) == expected, "the same windows as in a replay"
    suspect = [answer for answer in found if "suspect" in answer]
    assert {(answer["key"], answer["suspect"], answer["hard"]) for answer in suspect} == {
        (key, reason, True) for key, reason in REASONS.items()
    }
    warnings = [line for line in process.err.splitlines() if "WARNING" in line and "intake:" in line]
    assert len(warnings) == len(LINES)
    for key, text in LINES.items():
        assert any(f"key={key} " in line and text in line for line in warnings), warnings
    counts = orjson.loads(process.out.splitlines()[-1])["counts"]
    for key, reason in REASONS.items():
        own = [answer["end"] for answer in suspect if answer["key"] == key]
        assert counts[f'suspect_windows_total{{reason="{reason}"}}'] == len(own)
        began = recorded[NAMES.index(key)].t[300 if key == "frozen" else 0]
        assert min(own) - began <= {"slow": 10.0, "metric": 5.0, "frozen": 15.0}[key] + 24 / 50


@pytest.mark.slow
def test_the_line_that_the_log_says_puts_it_right(tmp_path: Path) -> None:
    """Copied from the log into the configuration, as an operator would; the answers are those of values in g."""
    references = [Reference(channels=("ax", "ay", "az"), quantiles=QUANTILES, span_s=5)]
    bundle = tiny_bundle(tmp_path / "tiny.edge", hop=8, sensor=CHANNELS, references=references)
    right, wrong = wrist("w", 0), wrist("w", 0)
    wrong.values[:] *= np.float32(9.80665)
    app = f'[model]\nbundle = "{bundle}"\nunsigned = "allow"\nvariant = "onnx-fp32"\n'
    app += '[[sink]]\ntype = "jsonl"\npath = "{0}.jsonl"\n'
    app += '[[source]]\ntype = "stdin"\nkey = "w"\n[source.codec]\ntype = "json"\n'

    def answered(name: str, stream: Stream, further: str = "") -> tuple[list[Answer], str]:
        (tmp_path / "app.toml").write_text(app.format(name) + further)
        lines = b"".join(message.payload + b"\n" for message in cut(stream, lambda: 20))
        done = subprocess.run(
            [sys.executable, "-m", "edge_runtime", "run", "app.toml"],
            input=lines, capture_output=True, timeout=PATIENCE_S, cwd=tmp_path, env=environment(), check=True,
        )  # fmt: skip
        return answers(tmp_path / f"{name}.jsonl"), done.stderr.decode()

    expected, said = answered("right", right)
    assert "intake:" not in said
    suspect, said = answered("wrong", wrong)
    assert any("suspect" in answer for answer in suspect)
    (line,) = re.findall(r"write (units = \{.*?\}) under \[source\.codec\]", said)
    mended, said = answered("mended", wrong, further=line + "\n")
    assert "intake:" not in said
    assert not any("suspect" in answer for answer in mended)
    for one, other in zip(mended, expected, strict=True):
        assert one["label"] == other["label"]
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-5)
