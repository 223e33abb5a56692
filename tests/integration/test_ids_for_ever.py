"""An id names one window for ever: devices that count from power-on, an hour that comes twice, kills and restarts."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import StoreError
from edge_runtime.manifest import GateSpec
from edge_runtime.signal.windowing.epochs import parse_id
from edge_runtime.store.durable.outbox import OutboxConfig
from edge_runtime.store.durable.outbox.read_only_copy import Snapshot
from tests.integration.cloud import assert_right, serving
from tests.integration.running import (
    Answer,
    Message,
    Process,
    Publisher,
    Stream,
    answers,
    corrections,
    cut,
    ids,
    payload,
    predictions,
    until,
)
from tests.long_tier import some
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, free_port

WINDOWS, SAMPLES, RATE_HZ = 20, 16, 50.0

APP = """
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
client_id = "under-test"
{more}
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
{sink}
[gate]
threshold = 2.0
[cloud]
url = "http://127.0.0.1:{port}"
model = "teacher"
[outbox]
path = "outbox.db"
"""
FILE = '[[sink]]\ntype = "jsonl"\npath = "answers.jsonl"'

LIVES = {
    "a device that counts from power-on": (0.0, 0.0),
    "a device that ran for longer before": (0.0, 0.0, 3.2),
    "local time in October": (1_700_000_000.0, 1_700_000_000.0 - 3600),
    "a board without a battery clock after a power cut": (1_700_000_000.0, 1_700_000_000.0 - 3.2),
    "a clock in 1970 until it is set, twice": (102.4, 1_700_000_000.0, 102.4, 1_700_000_102.4),
}


ENDINGS = ("none", "orderly", "killed")
PUSH = [(name, ENDINGS[number % 3]) for number, name in enumerate(LIVES)]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of a message each."""
    path = tmp_path_factory.mktemp("whole") / "watch.edge"
    return tiny_bundle(path, hop=SAMPLES, name="watch", variants=("onnx-fp32",), gate=GateSpec(threshold=0.6))


def life(number: int, begin: float, windows: int = WINDOWS) -> Stream:
    """What a sensor measures from one start of its clock to the next."""
    rng = np.random.default_rng(number)
    t = begin + np.arange(windows * SAMPLES) / RATE_HZ
    return Stream("watch-0", t, rng.normal(0, 2, (len(t), 3)).astype(np.float32))


def messages(stream: Stream) -> list[Message]:
    return cut(stream, lambda: SAMPLES)


def assert_each_has_its_own(found: list[Answer], lives: list[Stream], *, killed: bool) -> None:
    """An id has one window, and each window has the correction that is the teacher's answer to it.

    After a kill the last answers may come again: with their ids, and the same content.
    """
    made = [answer for answer in found if answer["route"] != "cloud"]
    corrected = [answer for answer in found if answer["route"] == "cloud"]
    assert {answer["route"] for answer in made} == {"provisional"}
    assert set(ids(corrected)) == set(ids(made))
    for answer_s in (made, corrected):
        contents = {(answer["id"], answer["start"], *answer["scores"]) for answer in answer_s}
        assert len(contents) == len(set(ids(answer_s)))
        assert killed or len(contents) == len(answer_s)
    windows = Counter(answer["id"] for answer in corrected if any(is_right(answer, stream) for stream in lives))
    assert set(windows) == set(ids(made))
    assert len(windows) >= len(lives) * WINDOWS - len(lives) + 1  # a window of a step may be lost where the run goes on


def is_right(correction: Answer, stream: Stream) -> bool:
    try:
        assert_right(correction, [stream], RATE_HZ)
    except AssertionError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("lived", some(itertools.product(LIVES, ENDINGS), PUSH))
def test_no_window_gets_the_correction_of_another_one(whole: Path, tmp_path: Path, lived: tuple[str, str]) -> None:
    name, ending = lived
    lives = [life(number, begin) for number, begin in enumerate(LIVES[name])]
    out = tmp_path / "answers.jsonl"
    server = serving(port := free_port())
    server.start()
    app = tmp_path / "app.toml"
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        app.write_text(APP.format(bundle=whole, broker=broker.url, port=port, more="", sink=FILE))
        with ExitStack() as processes:
            for number, stream in enumerate(lives):
                if ending != "none" or not number:
                    process = processes.enter_context(Process(tmp_path, "run", app, name=f"run-{number}"))
                    process.subscribed(broker)
                publisher.send(messages(stream))
                # A window of the step itself may be lost where the runtime goes on.
                least = (number + 1) * WINDOWS - (0 if ending != "none" else number)
                until(lambda n=least: len(set(ids(corrections(out)))) >= n, lambda p=process: p.err)  # type: ignore[misc]
                if ending == "killed":
                    process.kill()
                elif ending == "orderly" or number == len(lives) - 1:
                    process.send(signal.SIGTERM)
                    process.wait()
    server.stop()
    assert_each_has_its_own(answers(out), lives, killed=ending == "killed")
    assert 0 in {parse_id(answer["id"])[2] for answer in predictions(out)}


@pytest.mark.slow
def test_what_is_delivered_again_after_a_kill_has_its_id_and_is_asked_once(whole: Path, tmp_path: Path) -> None:
    """The sink's broker stands still, so nothing is acknowledged; the hard cases are on the disk at the kill."""
    stream = life(7, 51.2, 8)
    with Mosquitto() as broker, Mosquitto() as second, Publisher(broker.port) as publisher:
        sink = f'[broker.c]\nurl = "{second.url}"\n[[sink]]\ntype = "mqtt"\nbroker = "c"\n'
        app = tmp_path / "app.toml"
        app.write_text(APP.format(bundle=whole, broker=broker.url, port=free_port(), more="", sink=sink))
        with Process(tmp_path, "run", app, name="first") as process:
            process.subscribed(broker)
            until(lambda: process.err.count("connected to") >= 2, lambda: process.err)
            os.kill(second.pid, signal.SIGSTOP)
            publisher.send(messages(stream))
            until(lambda: len(queued(tmp_path)) == 8, lambda: process.err)
            process.kill()
        os.kill(second.pid, signal.SIGCONT)
        before = queued(tmp_path)
        with subprocess.Popen(
            ["mosquitto_sub", "-p", str(second.port), "-t", "edge/+/prediction", "-C", "8", "-W", "60"],
            stdout=subprocess.PIPE, text=True,
        ) as subscriber, Process(tmp_path, "run", app, name="second") as process:  # fmt: skip
            process.subscribed(broker)
            said = subscriber.communicate()[0]
            assert said.count('"id"') == 8, process.err
            # One more, so that all before it are through.
            publisher.send([Message("watch-0", payload(stream.t + 12.8, stream.values))])
            until(lambda: len(queued(tmp_path)) >= 16, lambda: process.err)
    assert queued(tmp_path)[:8] == before
    assert all(f'"id":"{one}"' in said for one in before)
    assert all(parse_id(one)[2] == 0 for one in queued(tmp_path))


@pytest.mark.slow
def test_readings_that_are_replayed_give_the_ids_that_they_gave(whole: Path, tmp_path: Path) -> None:
    """The file of epochs is newer than the reading log's last snapshot: it must not speak for what is replayed."""
    app, out = tmp_path / "app.toml", tmp_path / "answers.jsonl"
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        text = APP.format(bundle=whole, broker=broker.url, port=free_port(), more="", sink=FILE)
        app.write_text(f'durability = "reading"\n{text}[reading_log]\npath = "journal.db"\n')
        parts = messages(life(7, 51.2))
        for number, begin in enumerate((0, 10)):
            with Process(tmp_path, "run", app, name=f"run-{number}") as process:
                process.subscribed(broker)
                publisher.send(parts[begin : begin + 10])
                until(lambda n=begin + 10: len(set(ids(predictions(out)))) >= n, lambda p=process: p.err)  # type: ignore[misc]
                process.kill()
            (tmp_path / "outbox.epochs").write_bytes(b'{"floor":0,"keys":{"watch-0":[0,9000000]}}')
    assert set(ids(predictions(out))) == {f"watch-0@{2560 + SAMPLES * i}" for i in range(WINDOWS)}


def queued(folder: Path) -> list[str]:
    try:
        with Snapshot(OutboxConfig(path=folder / "outbox.db")) as copy:
            return [entry.case.id for entry in copy.all()]
    except (StoreError, OSError):
        return []
