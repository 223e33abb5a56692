"""A whole application whose channels come on topics of their own: the answers are those to the whole samples."""

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
    Stream,
    answers,
    assert_same_answers,
    interleave,
    load_model,
    running,
    streams,
    write_recording,
)
from tests.models import usable
from tests.mosquitto import either_broker

KEYS, SAMPLES = 3, 150

APP = """
[model]
unsigned = "allow"
bundle = "unused.edge"
[broker.b]
url = "{url}"
[[source]]
type = "mqtt"
broker = "b"
channels = {{c0 = "watch/+/c0", c1 = "watch/+/pair", c2 = "watch/+/pair"}}
[source.codec]
type = "json"
time = "at"
time_unit = "auto"
channels = {{c0 = "v"}}                # those of the other topic are called as in the model
values = "v"
partial = true
[[sink]]
type = "jsonl"
path = "live.jsonl"
"""


@pytest.fixture(scope="module")
def replayed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """What `edge-runtime replay` answers to whole samples."""
    if not usable("onnxruntime"):
        pytest.skip("onnxruntime is not installed")
    folder = tmp_path_factory.mktemp("replay")
    recording = write_recording(folder / "recording.jsonl", streams(KEYS, SAMPLES))
    out = folder / "predictions.jsonl"
    assert main(["replay", str(bundle), str(recording), "--variant", "onnx-fp32", "--out", str(out)]) == 0
    return answers(out)


def single(stream: Stream) -> list[Message]:
    """One channel: a message for each value, stamp and value as texts, and now and then no value."""
    messages = []
    for t, value in zip(stream.t.tolist(), stream.values[:, 0].tolist(), strict=True):
        messages.append(Message(f"{stream.key}/c0", orjson.dumps({"at": repr(t), "v": repr(value)})))
        messages.append(Message(f"{stream.key}/c0", orjson.dumps({"at": repr(t), "v": "unavailable"})))
    return messages


def pair(stream: Stream, rng: np.random.Generator) -> list[Message]:
    """Two channels by name, in messages that bring one or both."""
    messages = []
    for t, (one, other) in zip(stream.t.tolist(), stream.values[:, 1:].tolist(), strict=True):
        whole = {"at": t, "c1": one, "c2": other}
        split = [{"at": t, "c2": other}, {"at": t, "c1": one}]
        for document in [whole] if rng.random() < 0.5 else split:
            messages.append(Message(f"{stream.key}/pair", orjson.dumps(document)))
    return messages


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_channels_on_topics_of_their_own_are_answered_as_whole_samples(
    bundle: Path, replayed: list[Answer], tmp_path: Path, kind: str
) -> None:
    """Mutations: a channel that goes to another column, key or time; a window that does not wait for all channels."""
    rng = np.random.default_rng(11)
    parts = [part for stream in streams(KEYS, SAMPLES) for part in (single(stream), pair(stream, rng))]
    messages = interleave(rng, parts)
    with either_broker(kind) as broker, Publisher(broker.port, topic="watch/{key}") as publisher:
        with running(APP.format(url=broker.url), tmp_path, load_model(bundle, "onnx-fp32")) as app:

            def arrived() -> bool:
                publisher.send([Message("none/c0", b"")], 0)
                return app.dropped["empty"] > 0

            app.until(arrived)
            before = app.counts["messages_total"]
            publisher.send(messages)
            app.until(lambda: app.counts["messages_total"] - before >= len(messages))
            assert app.stop()
            assert set(app.dropped) == {"empty"}
    assert_same_answers(answers(tmp_path / "live.jsonl"), replayed)
