"""One topic for each sensor of several devices: a whole application as a process, stopped and killed in the middle."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.integration.running import (
    Message,
    Process,
    Publisher,
    assert_same_answers,
    command,
    ids,
    interleave,
    predictions,
    streams,
    until,
    write_recording,
)
from tests.mosquitto import Mosquitto

APP = """
durability = "reading"
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
client_id = "{name}"
{sources}
[window]
wait_s = 30.0
[[sink]]
type = "jsonl"
path = "{name}.jsonl"
[reading_log]
path = "{name}.db"
"""
ONE = """
[[source]]
type = "mqtt"
broker = "b"
channels = { c0 = "watch/+/c0", c1 = "watch/+/c1", c2 = "watch/+/c2" }
codec = { type = "json", channels = { c0 = "v", c1 = "v", c2 = "v" } }
"""
THREE = "".join(
    f"""
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/c{i}"]
codec = {{ type = "json", partial = true, channels = {{ c{i} = "v" }} }}
"""
    for i in range(3)
)
KEYS, SAMPLES = 3, 500


def feed(seed: int) -> list[Message]:
    """Each channel of each device in messages of its own, some ahead of others by seconds; key and channel as topic."""
    rng = np.random.default_rng(seed)
    parts = []
    for stream in streams(KEYS, SAMPLES, seed=seed):
        for column in range(3):
            begin, part = 0, []
            while begin < SAMPLES:
                end = begin + int(rng.integers(1, 12))
                document = {"t": stream.t[begin:end].tolist(), "v": stream.values[begin:end, column].tolist()}
                part.append(Message(f"{stream.key}/c{column}", orjson.dumps(document)))
                begin = end
            parts.append(part)
    return interleave(rng, parts)


def application(folder: Path, bundle: Path, broker: Mosquitto, name: str, sources: str = ONE) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(APP.format(bundle=bundle, broker=broker.url, name=name, sources=sources))
    return path


def play(
    folder: Path,
    app: Path,
    broker: Mosquitto,
    publisher: Publisher,
    parts: Sequence[tuple[list[Message], signal.Signals]],
) -> None:
    """Send each part to a process of its own, and end that by a signal while it works."""
    out = app.with_suffix(".jsonl")
    for i, (messages, end) in enumerate(parts):
        with Process(folder, "run", app, name=f"{app.stem}-{i}") as process:
            process.subscribed(broker)
            before = len(predictions(out))
            publisher.send(messages)
            until(lambda n=before: len(predictions(out)) > n + 5, lambda: process.err)  # type: ignore[misc]
            if i == len(parts) - 1:
                publisher.flush()
                until(lambda: len(set(ids(predictions(out)))) >= total(), lambda: process.err)
            process.send(end)
            process.wait()


def total() -> int:
    """Windows of 16, 8 apart, of all keys: each misses up to one at its beginning, by where its grid starts."""
    whole = 0
    for stream in streams(KEYS, SAMPLES, seed=7):
        first = -round(float(stream.t[0]) * 50.0) % 8
        whole += (SAMPLES - 16 - first) // 8 + 1
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("sources", [ONE, THREE], ids=["one", "three"])
def test_sigterm_and_kill_9_in_the_middle_change_no_answer(sources: str, bundle: Path, tmp_path: Path) -> None:
    """Mutation that this finds: any of what a joined key holds left out of the snapshot or the reading log."""
    messages = feed(7)
    options = "max_queued_messages 100000"
    with Mosquitto(options) as broker, Publisher(broker.port, topic="watch/{key}") as publisher:
        whole = application(tmp_path, bundle, broker, "whole")
        play(tmp_path, whole, broker, publisher, [(messages, signal.SIGTERM)])
        broken = application(tmp_path, bundle, broker, "broken", sources)
        cuts = [0, len(messages) // 4, len(messages) // 2, len(messages)]
        ends = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)
        stretches = [messages[a:b] for a, b in itertools.pairwise(cuts)]
        play(tmp_path, broken, broker, publisher, list(zip(stretches, ends, strict=True)))
    expected = predictions(tmp_path / "whole.jsonl")
    assert len(expected) == total()
    found = {answer["id"]: answer for answer in predictions(tmp_path / "broken.jsonl")}
    assert_same_answers([found[answer["id"]] for answer in expected], expected)
    assert len(found) == len(expected)


@pytest.mark.slow
def test_captured_topics_of_sensors_are_replayed_as_one_topic_with_all_channels_would_be(
    bundle: Path, tmp_path: Path
) -> None:
    """The same samples, once in three topics and once in one; the windows that replay ends with included."""
    recorded = streams(KEYS, 120, seed=7)
    whole = write_recording(tmp_path / "whole.jsonl", recorded)
    lines = [
        (
            float(stream.t[i]),
            f"watch/{stream.key}/c{column}",
            {"t": float(stream.t[i]), "v": float(stream.values[i, column])},
        )
        for stream in recorded
        for i in range(120)
        for column in range(3)
    ]
    captured = tmp_path / "captured.txt"
    text = [
        f"{topic} {orjson.dumps(document).decode()}" for _, topic, document in sorted(lines, key=lambda line: line[:2])
    ]
    captured.write_text("\n".join(text) + "\n")
    app = tmp_path / "app.toml"
    app.write_text(APP.format(bundle=bundle, broker="mqtt://127.0.0.1:1", name="unused", sources=ONE))
    for file, more in ((whole, ()), (captured, ("--source", str(app)))):
        out = tmp_path / f"{file.stem}.answers"
        done = command("replay", bundle, file, "--variant", "onnx-fp32", "--out", out, *more)
        assert done.code == 0, done.err
    expected = predictions(tmp_path / "whole.answers")
    found = predictions(tmp_path / "captured.answers")
    assert_same_answers(sorted(found, key=lambda one: one["start"]), sorted(expected, key=lambda one: one["start"]))
