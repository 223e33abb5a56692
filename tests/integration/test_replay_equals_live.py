"""The same readings give the same answers, from a file and over MQTT, however they were split, sent and repeated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.tools.cli import main
from tests.integration.running import (
    Answer,
    Message,
    Publisher,
    answers,
    assert_same_answers,
    command,
    cut,
    ids,
    interleave,
    load_model,
    running,
    streams,
    write_recording,
)
from tests.models import usable
from tests.mosquitto import either_broker

KEYS, SAMPLES = 5, 400
LATENESS_S = 1.0

APP = """
[model]
unsigned = "allow"
bundle = "unused.edge"
latency_budget_ms = {budget}
[broker.b]
url = "{url}"
protocol = "{protocol}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
qos = {qos}
[[sink]]
type = "jsonl"
path = "live.jsonl"
[window]
lateness_s = {lateness}
"""


@pytest.fixture(scope="module", params=["onnx-fp32", "tflite-int8"])
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not usable("onnxruntime" if name.startswith("onnx") else "litert"):
        pytest.skip(f"no engine for {name}")
    return name


@pytest.fixture(scope="module")
def replayed(bundle: Path, variant: str, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """What `edge-runtime replay` answers to the recording."""
    folder = tmp_path_factory.mktemp("replay")
    recording = write_recording(folder / "recording.jsonl", streams(KEYS, SAMPLES))
    out = folder / "predictions.jsonl"
    assert main(["replay", str(bundle), str(recording), "--variant", variant, "--out", str(out)]) == 0
    return answers(out)


def live(
    bundle: Path,
    folder: Path,
    variant: str,
    messages: list[Message],
    *,
    kind: str,
    qos: int = 1,
    protocol: str = "5",
    budget: float = 0.0,
    lateness: float = 0.0,
) -> list[Answer]:
    """Send the messages through a broker to a running application, and return what it answered."""
    text = APP.format(url="{url}", protocol=protocol, qos=qos, budget=budget, lateness=lateness)
    with either_broker(kind) as broker, Publisher(broker.port, version=protocol) as publisher:
        with running(text.format(url=broker.url), folder, load_model(bundle, variant)) as app:
            publisher.reach(app)
            publisher.send(messages, qos)
            app.until(lambda: app.counts["samples_total"] >= samples_in(messages))
            assert app.stop()
    return answers(folder / "live.jsonl")


def samples_in(messages: list[Message]) -> int:
    return sum(len(orjson.loads(message.payload)["values"]) for message in messages)


def split(seed: int, largest: int = 60) -> list[Message]:
    """The recording's streams in messages of random sizes, keys interleaved at random."""
    rng = np.random.default_rng(seed)
    parts = [cut(stream, lambda: int(rng.integers(1, largest))) for stream in streams(KEYS, SAMPLES)]
    return interleave(rng, parts)


@pytest.mark.parametrize(
    ("kind", "protocol", "qos", "budget"),
    [
        ("mosquitto", "5", 1, 0.0),
        ("mosquitto", "5", 2, 5.0),
        ("mosquitto", "3.1.1", 0, 0.0),
        ("mosquitto", "3.1.1", 1, 5.0),
        ("embedded", "5", 0, 5.0),
        ("embedded", "5", 1, 0.0),
        ("embedded", "3.1.1", 2, 0.0),
    ],
)
def test_live_readings_are_answered_as_recorded_ones(
    bundle: Path,
    variant: str,
    replayed: list[Answer],
    tmp_path: Path,
    kind: str,
    protocol: str,
    qos: int,
    budget: float,
) -> None:
    messages = split(seed=qos * 10 + len(protocol))
    found = live(bundle, tmp_path, variant, messages, kind=kind, protocol=protocol, qos=qos, budget=budget)
    assert_same_answers(found, replayed)


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_repeated_messages_change_nothing(
    bundle: Path, variant: str, replayed: list[Answer], tmp_path: Path, kind: str
) -> None:
    rng = np.random.default_rng(3)
    messages = split(seed=3)
    repeated: list[Message] = []
    for message in messages:
        repeated.append(message)
        if rng.random() < 0.3:
            repeated.append(message)  # at once
        if rng.random() < 0.1:
            repeated.append(repeated[int(rng.integers(len(repeated)))])  # long after
    assert len(repeated) > len(messages) * 1.2
    assert_same_answers(live(bundle, tmp_path, variant, repeated, kind=kind), replayed)


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_messages_out_of_order_within_the_lateness_change_nothing(
    bundle: Path, variant: str, tmp_path: Path, kind: str
) -> None:
    recorded = streams(KEYS, SAMPLES)
    out = tmp_path / "expected.jsonl"
    recording = write_recording(tmp_path / "recording.jsonl", recorded)
    arguments = ["--variant", variant, "--lateness", str(LATENESS_S), "--out", str(out)]
    assert main(["replay", str(bundle), str(recording), *arguments]) == 0
    rng = np.random.default_rng(4)
    parts = []
    for stream in recorded:
        messages = cut(stream, lambda: int(rng.integers(1, 12)))
        # Sorted by a stamp that is wrong by less than the lateness: no message is overtaken by more.
        wrong = [orjson.loads(m.payload)["t"][-1] + rng.uniform(0, 0.9 * LATENESS_S - 0.24) for m in messages]
        parts.append([messages[i] for i in np.argsort(wrong)])
    shuffled = interleave(rng, parts)
    found = live(bundle, tmp_path, variant, shuffled, kind=kind, lateness=LATENESS_S)
    assert_same_answers(found, answers(out))


def test_lateness_does_not_change_a_recording_in_order(bundle: Path, replayed: list[Answer], tmp_path: Path) -> None:
    out = tmp_path / "late.jsonl"
    recording = write_recording(tmp_path / "recording.jsonl", streams(KEYS, SAMPLES))
    variant = replayed[0]["variant"]
    assert (
        main(["replay", str(bundle), str(recording), "--variant", variant, "--lateness", "2", "--out", str(out)]) == 0
    )
    assert_same_answers(answers(out), replayed)


def test_there_is_something_to_compare(replayed: list[Answer]) -> None:
    windows_per_key = (SAMPLES - 16) // 8  # one more or less, as the grid falls
    assert abs(len(replayed) - KEYS * windows_per_key) <= 2 * KEYS
    assert len(set(ids(replayed))) == len(replayed)
    assert {answer["hard"] for answer in replayed} == {True, False}
    assert len({answer["label"] for answer in replayed}) > 1


@pytest.mark.slow
def test_the_command_itself_gives_the_same_file(bundle: Path, tmp_path: Path) -> None:
    """As a process, to standard output, twice: the same bytes but for the latency."""
    recording = write_recording(tmp_path / "recording.jsonl", streams(2, 200))
    first = command("replay", bundle, recording, "--variant", "onnx-fp32")
    assert first.code == 0, first.err
    second = command("replay", bundle, recording, "--variant", "onnx-fp32", "--out", tmp_path / "out.jsonl")
    assert (second.code, second.out) == (0, "")
    one = [orjson.loads(line) for line in first.out.splitlines()]
    two = answers(tmp_path / "out.jsonl")
    assert one
    for answer in one + two:
        del answer["latency_ms"]
    assert one == two
