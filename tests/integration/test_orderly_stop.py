"""SIGTERM and SIGINT under load, in the default mode: no window is missing, and none has another answer or context."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.manifest import GateSpec
from tests.integration.cloud import serving
from tests.integration.running import (
    PATIENCE_S,
    Answer,
    Message,
    Process,
    Publisher,
    Stream,
    answers,
    cut,
    environment,
    ids,
    interleave,
    predictions,
    streams,
    until,
)
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

KEYS, STOPS = 4, 12
APP = """
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
client_id = "under-test"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[window]
lateness_s = {lateness}
{state}
"""
OUTBOX = '[cloud]\nurl = "{cloud}"\nmodel = "teacher"\n[outbox]\npath = "outbox.db"\n'


@pytest.fixture(scope="module")
def hard_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Overlapping windows with context, every one of them hard."""
    path = tmp_path_factory.mktemp("bundle") / "hard.edge"
    gate = GateSpec(threshold=2.0)
    return tiny_bundle(path, hop=4, name="watch", variants=("onnx-fp32",), gate=gate, input_contract={"context": 32})


def feed(seed: int, samples: int) -> list[Message]:
    rng = np.random.default_rng(seed)
    return interleave(rng, [cut(stream, lambda: int(rng.integers(1, 6))) for stream in streams(KEYS, samples)])


def by_id(found: list[Answer]) -> dict[str, Answer]:
    """One answer for each id; repeats must say the same."""
    once: dict[str, Answer] = {}
    for answer in found:
        plain = {name: answer[name] for name in ("id", "start", "end", "label", "scores", "hard")}
        assert once.setdefault(answer["id"], plain) == plain
    return once


def played(folder: Path, app: str, broker: Mosquitto, parts: list[list[Message]], name: str) -> None:
    """Run an application over the parts of a stream; it is asked to stop while a part of them is on its way."""
    (folder / "app.toml").write_text(app)
    out = folder / "answers.jsonl"
    with Publisher(broker.port) as publisher:
        for i, part in enumerate(parts):
            with Process(folder, "run", folder / "app.toml", name=f"{name}-{i}") as process:
                process.says("connected to")
                before = len(predictions(out))
                publisher.send(part)
                if i < len(parts) - 1:
                    until(lambda n=before: len(predictions(out)) >= n + 2, lambda: process.err)  # type: ignore[misc]
                else:
                    publisher.flush()
                    send_marker(publisher, out, process)
                process.send(signal.SIGTERM if i % 3 else signal.SIGINT)
                assert process.wait() == 0, process.err


def send_marker(publisher: Publisher, out: Path, process: Process) -> None:
    """A stream of its own behind all others: once it is answered, so are they."""
    (marker,) = streams(1, 40)
    publisher.send(cut(Stream("marker", marker.t, marker.values), lambda: 40))
    until(lambda: any(answer["key"] == "marker" for answer in predictions(out)), lambda: process.err)


@pytest.mark.parametrize("lateness", [0.0, 0.1])
def test_a_dozen_orderly_stops_under_load_lose_no_window_and_change_no_answer(
    hard_bundle: Path, tmp_path: Path, lateness: float
) -> None:
    """Mutations that this finds: a stop that flushes what waits for the lateness bound, a start that does not restore,
    and a snapshot without contexts (the cloud would be asked another question)."""
    messages = feed(7, 300)
    cuts = [len(messages) * i // (STOPS + 1) for i in range(STOPS + 2)]
    parts = [messages[begin:end] for begin, end in itertools.pairwise(cuts)]
    found, wanted = tmp_path / "stopped", tmp_path / "control"
    with serving() as server:
        state = OUTBOX.format(cloud=server.url)
        for folder, pieces in ((found, parts), (wanted, [messages])):
            folder.mkdir()
            with Mosquitto("max_queued_messages 100000") as broker:
                app = APP.format(bundle=hard_bundle, broker=broker.url, lateness=lateness, state=state)
                played(folder, app, broker, pieces, "run")
    ours, theirs = by_id(predictions(found / "answers.jsonl")), by_id(predictions(wanted / "answers.jsonl"))
    assert len(theirs) > KEYS * STOPS
    assert sorted(theirs.keys() - ours.keys()) == []
    assert ours == theirs


def test_windows_that_no_sink_took_before_the_stop_are_answered_after_it(hard_bundle: Path, tmp_path: Path) -> None:
    """A webhook that nobody answers holds them up: they are saved, and the next run answers them under the same ids."""
    (stream,) = streams(1, 60)
    lines = b"\n".join(message.payload for message in cut(stream, lambda: 10)) + b"\n"
    app = (
        f'drain_timeout_s = 0.2\n[model]\nbundle = "{hard_bundle}"\nunsigned = "allow"\nvariant = "onnx-fp32"\n'
        '[[source]]\ntype = "stdin"\nkey = "watch-0"\n[source.codec]\ntype = "json"\n'
        '[[sink]]\ntype = "webhook"\nurl = "http://127.0.0.1:{port}/"\n'
        '[[sink]]\ntype = "jsonl"\npath = "answers.jsonl"\n'
        '[journal]\npath = "windows.db"\n'
    )
    with serving() as server:  # for a port that nobody listens on any more
        port = server.url.rsplit(":", 1)[1]
    (tmp_path / "app.toml").write_text(app.format(port=port))
    stdin(tmp_path, lines)
    first = ids(answers(tmp_path / "answers.jsonl"))
    stdin(tmp_path, b"")
    assert ids(answers(tmp_path / "answers.jsonl")) == sorted(2 * first)


def stdin(folder: Path, data: bytes) -> str:
    """Run the application over this input; returns what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "edge_runtime", "run", "app.toml"],
        input=data, capture_output=True, cwd=folder, env=environment(), timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return done.stderr.decode()


STDIN = """
[model]
bundle = "{bundle}"
unsigned = "allow"
variant = "onnx-fp32"
[[source]]
type = "stdin"
key = "watch-0"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
{state}
"""


def test_a_stream_on_standard_input_goes_on_where_the_one_before_ended(hard_bundle: Path, tmp_path: Path) -> None:
    (stream,) = streams(1, 90)
    pieces = [message.payload + b"\n" for message in cut(stream, lambda: 9)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder, inputs in ((whole, [b"".join(pieces)]), (parts, pieces)):
        folder.mkdir()
        (folder / "app.toml").write_text(STDIN.format(bundle=hard_bundle, state='[journal]\npath = "windows.db"'))
        for data in inputs:
            stdin(folder, data)
    ours, theirs = by_id(answers(parts / "answers.jsonl")), by_id(answers(whole / "answers.jsonl"))
    assert len(theirs) > 10
    assert ours == theirs
    assert ids(answers(parts / "answers.jsonl")) == sorted(theirs)


def test_where_nothing_is_named_for_them_begun_windows_are_lost_and_it_says_so_at_the_start(
    hard_bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "app.toml").write_text(STDIN.format(bundle=hard_bundle, state=""))
    said = stdin(tmp_path, b"")
    assert said.count("windows that have begun are lost at a stop; to keep them, add [journal] with a path") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"app.toml", "answers.jsonl"}
