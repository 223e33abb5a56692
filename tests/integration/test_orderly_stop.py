"""SIGTERM and SIGINT under load, in the default mode: no window is missing, and none has another answer or context."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.manifest import GateSpec
from edge_runtime.operate.server.batcher import ServedModel
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.integration.running import (
    PATIENCE_S,
    Answer,
    Message,
    Process,
    Publisher,
    Stream,
    answers,
    command,
    corrections,
    cut,
    environment,
    ids,
    interleave,
    payload,
    predictions,
    streams,
    until,
)
from tests.long_tier import Tier
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

KEYS = 4
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


def serving(samples: int = -1) -> Server:
    """A teacher that looks at every sample of the context, so that its answer tells whether one is missing."""

    def predict(inputs: dict[str, Array]) -> dict[str, Array]:
        x = inputs["x"].astype(np.float64)
        e = np.exp(np.sin(x.sum(axis=2)) + np.cos(x[:, :, 0]))
        return {"p": (e / e.sum(axis=1, keepdims=True)).astype(np.float32)}

    model = ServedModel(
        name="teacher",
        inputs=(OipTensor("x", "FP32", (-1, 3, samples)),),
        outputs=(OipTensor("p", "FP32", (-1, 3)),),
        predict=predict,
    )
    return Server({"teacher": model}, ServeConfig(port=0, drain_s=1.0))


def by_id(found: list[Answer]) -> dict[str, Answer]:
    """One answer for each id; repeats must say the same."""
    once: dict[str, Answer] = {}
    for answer in found:
        same = ("id", "start", "end", "label", "scores", "hard", "context_short", "context_samples")
        plain = {name: answer[name] for name in same if name in answer}
        assert once.setdefault(answer["id"], plain) == plain
    return once


def played(folder: Path, app: str, broker: Mosquitto, parts: list[list[Message]], name: str) -> None:
    """Run an application over the parts of a stream; it is asked to stop while a part of them is on its way."""
    (folder / "app.toml").write_text(app)
    out = folder / "answers.jsonl"
    with Publisher(broker.port) as publisher:
        for i, part in enumerate(parts):
            with Process(folder, "run", folder / "app.toml", name=f"{name}-{i}") as process:
                process.subscribed(broker)
                before = len(predictions(out))
                publisher.send(part)
                if i < len(parts) - 1:
                    until(lambda n=before: len(predictions(out)) >= n + 2, lambda: process.err)  # type: ignore[misc]
                else:
                    publisher.flush()
                    send_marker(publisher, out, process)
                    until(lambda: corrected(out), lambda: process.err)
                process.send(signal.SIGTERM if i % 3 else signal.SIGINT)
                assert process.wait() == 0, process.err


def corrected(out: Path) -> bool:
    """Whether every provisional answer has its correction, or is closed: asked of a cloud that was not known yet."""
    found = predictions(out)
    closed = {answer["id"] for answer in found if answer.get("reason") == "context_short"}
    # Not equal: a case is committed before its answer is published, and a kill may come between.
    return {answer["id"] for answer in found if answer["route"] == "provisional"} <= closed | set(ids(corrections(out)))


def send_marker(publisher: Publisher, out: Path, process: Process) -> None:
    """A stream of its own behind all others: once its ninth window is answered, so are they. Those before have no whole
    context, so the cloud may not be asked of them, and their answers do not wait for the disk as the others' do."""
    (marker,) = streams(1, 80)
    publisher.send(cut(Stream("marker", marker.t, marker.values), lambda: 80))
    until(lambda: len({one["id"] for one in predictions(out) if one["key"] == "marker"}) > 8, lambda: process.err)


@pytest.mark.slow
def test_orderly_stops_under_load_lose_no_window_and_change_no_answer(
    hard_bundle: Path, tmp_path: Path, tier: Tier
) -> None:
    """Mutations that this finds: a stop that flushes what waits for the lateness bound, a start that does not restore,
    and a snapshot without contexts (the cloud would be asked another question)."""
    stops = tier(4, 12)
    samples = 25 * stops
    messages = feed(7, samples)
    cuts = [len(messages) * i // (stops + 1) for i in range(stops + 2)]
    parts = [messages[begin:end] for begin, end in itertools.pairwise(cuts)]
    found, wanted = tmp_path / "stopped", tmp_path / "control"
    with serving() as server:
        state = OUTBOX.format(cloud=server.url)
        for folder, pieces in ((found, parts), (wanted, [messages])):
            folder.mkdir()
            with Mosquitto("max_queued_messages 100000") as broker:
                app = APP.format(bundle=hard_bundle, broker=broker.url, lateness=0.1, state=state)
                played(folder, app, broker, pieces, "run")
    for which in (predictions, corrections):
        ours, theirs = by_id(which(found / "answers.jsonl")), by_id(which(wanted / "answers.jsonl"))
        assert len(theirs) > KEYS * stops
        assert sorted(theirs.keys() - ours.keys()) == []
        assert ours == theirs
    raw = b"".join(path.read_bytes() for path in found.glob("outbox.db*"))
    rows = [
        stream.values[at : at + 16, 0].astype("<f4").tobytes()
        for stream in streams(KEYS, samples)
        for at in range(samples - 16)
    ]
    assert not any(row in raw for row in rows), "delivered readings are readable in the outbox"


@pytest.mark.slow
def test_windows_that_no_sink_took_before_the_stop_are_answered_after_it(hard_bundle: Path, tmp_path: Path) -> None:
    """A webhook that nobody answers holds them up: they are saved, and the next run answers them under the same ids."""
    (stream,) = streams(1, 60)
    lines = b"\n".join(message.payload for message in cut(stream, lambda: 10)) + b"\n"
    app = (
        f'drain_timeout_s = 0.2\n[model]\nbundle = "{hard_bundle}"\nunsigned = "allow"\nvariant = "onnx-fp32"\n'
        '[[source]]\ntype = "stdin"\nkey = "watch-0"\n[source.codec]\ntype = "json"\n'
        '[[sink]]\ntype = "webhook"\nurl = "http://127.0.0.1:{port}/"\n'
        '[[sink]]\ntype = "jsonl"\npath = "answers.jsonl"\n'
        '[reading_log]\npath = "windows.db"\n'
    )
    with serving() as server:  # for a port that nobody listens on any more
        port = server.url.rsplit(":", 1)[1]
    (tmp_path / "app.toml").write_text(app.format(port=port))
    stdin(tmp_path, lines)
    first = ids(answers(tmp_path / "answers.jsonl"))
    stdin(tmp_path, b"")
    assert ids(answers(tmp_path / "answers.jsonl")) == sorted(2 * first)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [-1, 32])
def test_after_a_crash_a_case_says_that_its_context_is_short_or_is_not_asked(
    hard_bundle: Path, tmp_path: Path, samples: int
) -> None:
    """Killed in the middle: the context is gone, and nothing is invented in its place."""
    messages = [message for message in feed(9, 160) if message.key == "watch-0"]
    half = len(messages) // 2
    out = tmp_path / "answers.jsonl"
    with serving(samples) as server:
        app = partial(APP.format, bundle=hard_bundle, lateness=0.0, state=OUTBOX.format(cloud=server.url))
        with Mosquitto() as broker, Publisher(broker.port) as publisher:
            (tmp_path / "app.toml").write_text(app(broker=broker.url))
            with Process(tmp_path, "run", tmp_path / "app.toml", name="killed") as process:
                process.subscribed(broker)
                publisher.send(messages[:half])
                until(lambda: len(predictions(out)) >= 8, lambda: process.err)
                process.kill()
        before = set(ids(predictions(out)))
        # A broker of its own: one that delivers again what was not acknowledged would give back the context.
        with Mosquitto() as broker, Publisher(broker.port) as publisher:
            (tmp_path / "app.toml").write_text(app(broker=broker.url))
            with Process(tmp_path, "run", tmp_path / "app.toml", "--json", name="after") as process:
                process.subscribed(broker)
                publisher.send(messages[half:])
                publisher.flush()
                send_marker(publisher, out, process)
                until(lambda: corrected(out), lambda: process.err)
                process.send(signal.SIGTERM)
                assert process.wait() == 0, process.err
        figures = orjson.loads(process.out)
    after = [answer for answer in predictions(out) if answer["id"] not in before and answer["key"] == "watch-0"]
    asked = {answer["id"]: answer for answer in corrections(out)}
    if samples < 0:
        told = [(asked[answer["id"]]["context_short"], asked[answer["id"]]["context_samples"]) for answer in after[:4]]
        assert all(short and 16 <= n < 32 for short, n in told), told  # 4 apart: four windows until there are 32
        assert "context_short" not in figures["dropped"]
    else:
        assert not any(answer["context_short"] for answer in asked.values())
        assert figures["dropped"]["context_short"] >= 1
    assert asked[after[-1]["id"]]["context_samples"] == 32


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


@pytest.mark.slow
def test_a_stream_on_standard_input_goes_on_where_the_one_before_ended(hard_bundle: Path, tmp_path: Path) -> None:
    (stream,) = streams(1, 90)
    pieces = [message.payload + b"\n" for message in cut(stream, lambda: 18)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder, inputs in ((whole, [b"".join(pieces)]), (parts, pieces)):
        folder.mkdir()
        (folder / "app.toml").write_text(STDIN.format(bundle=hard_bundle, state='[reading_log]\npath = "windows.db"'))
        for data in inputs:
            stdin(folder, data)
    ours, theirs = by_id(answers(parts / "answers.jsonl")), by_id(answers(whole / "answers.jsonl"))
    assert len(theirs) > 10
    assert ours == theirs
    assert ids(answers(parts / "answers.jsonl")) == sorted(theirs)


@pytest.mark.slow
def test_where_nothing_is_named_for_them_begun_windows_are_lost_and_it_says_so_at_the_start(
    hard_bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "app.toml").write_text(STDIN.format(bundle=hard_bundle, state=""))
    said = stdin(tmp_path, b"")
    assert said.count("windows that have begun are lost at a stop; to keep them, add [reading_log] with a path") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"app.toml", "answers.jsonl"}


@pytest.mark.slow
def test_a_stream_that_ends_while_cases_wait_for_the_cloud_says_what_to_do(hard_bundle: Path, tmp_path: Path) -> None:
    with serving() as server:
        away = server.url  # nobody listens there any more
    (tmp_path / "app.toml").write_text(STDIN.format(bundle=hard_bundle, state=OUTBOX.format(cloud=away)))
    (stream,) = streams(1, 90)
    said = stdin(tmp_path, payload(stream.t, stream.values) + b"\n")
    waiting = len(predictions(tmp_path / "answers.jsonl"))
    assert said.count(f"{waiting} hard cases wait for the cloud in") == 1, said
    assert "run the application again to send them" in said
    with serving() as server:
        (tmp_path / "app.toml").write_text(STDIN.format(bundle=hard_bundle, state=OUTBOX.format(cloud=server.url)))
        listed = command("outbox", "list", tmp_path / "outbox.db", "--queued", "--json")
        assert len(orjson.loads(listed.out)["cases"]) == waiting, "the advice does not work"


@pytest.mark.slow
def test_a_state_folder_that_is_deleted_while_it_runs_is_said_and_the_stop_saves_into_a_new_one(
    hard_bundle: Path, tmp_path: Path
) -> None:
    state = OUTBOX.replace('"outbox.db"', '"state/outbox.db"')
    messages = [message for message in feed(5, 160) if message.key == "watch-0"]
    out, folder = tmp_path / "answers.jsonl", tmp_path / "state"
    folder.mkdir()
    with serving() as server, Mosquitto() as broker, Publisher(broker.port) as publisher:
        app = APP.format(bundle=hard_bundle, broker=broker.url, lateness=0.0, state=state.format(cloud=server.url))
        (tmp_path / "app.toml").write_text(app)
        with Process(tmp_path, "run", tmp_path / "app.toml") as process:
            process.subscribed(broker)
            publisher.send(messages[: len(messages) // 2])
            until(lambda: corrections(out), lambda: process.err)
            shutil.rmtree(folder)
            process.says("was removed while it was in use")
            folder.mkdir()
            publisher.send(messages[len(messages) // 2 :])
            publisher.flush()
            send_marker(publisher, out, process)
            until((folder / "outbox.counters").exists, lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
    for name in ("outbox.db", "outbox.windows.db"):
        assert process.err.count(f"{name} was removed while it was in use") == 1, process.err
    assert {"outbox.db", "outbox.windows.db", "outbox.counters"} <= {path.name for path in folder.iterdir()}
