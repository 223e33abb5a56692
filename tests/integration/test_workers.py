"""Several workers as whole processes on a real mosquitto: equal answers, kills, a change of their number, machines."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from edge_runtime.store.durable.outbox import OutboxConfig
from edge_runtime.store.durable.outbox.read_only_copy import Snapshot
from edge_runtime.tools.cli import exits
from tests.integration.cloud import assert_right, serving
from tests.integration.running import (
    Answer,
    Message,
    Process,
    Publisher,
    answers,
    command,
    corrections,
    cut,
    ids,
    interleave,
    listening,
    predictions,
    read,
    streams,
    until,
)
from tests.long_tier import some
from tests.mosquitto import Mosquitto, free_port, needs_mosquitto

pytestmark = [pytest.mark.slow, needs_mosquitto]

APP = """
name = "app"
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
status_topic = "edge/status"
[[source]]
type = "mqtt"
broker = "b"
{topics}
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""
BY_TOPIC = 'topics = ["watch/+/imu"]'
BY_PAYLOAD = 'topics = ["all"]\nkey = "payload"'
STATE = 'durability = "reading"\n'
READINGS = '[reading_log]\npath = "readings.db"\n'
CLOUD = '[gate]\nthreshold = {threshold}\n[cloud]\nurl = "{cloud}"\nmodel = "teacher"\n[outbox]\npath = "outbox.db"\n'
KEYS, SAMPLES = 8, 400


def app_file(folder: Path, bundle: Path, broker: str, *, topics: str = BY_TOPIC, more: str = "") -> Path:
    """More may begin with settings of no table, up to the first line in brackets."""
    top, bracket, tables = more.partition("[")
    path = folder / "app.toml"
    path.write_text(top + APP.format(bundle=bundle, broker=broker, topics=topics) + bracket + tables)
    return path


def feed(seed: int = 7, samples: int = SAMPLES) -> list[Message]:
    """Overlapping windows of all keys, in messages of any size, mixed."""
    rng = np.random.default_rng(seed)
    return interleave(rng, [cut(stream, lambda: int(rng.integers(3, 14))) for stream in streams(KEYS, samples)])


def by_worker(folder: Path) -> dict[str, list[Answer]]:
    return {path.name: answers(path) for path in sorted(folder.glob("answers*.jsonl"))}


def of_all(folder: Path) -> list[Answer]:
    return [one for found in by_worker(folder).values() for one in found if one["route"] != "cloud"]


def live(folder: Path) -> dict[str, Any]:
    """What the parent says of its workers."""
    done = command("status", folder / "app.toml", "--json", cwd=folder)
    return dict(json.loads(done.out)["app"]["workers"]) if not done.code else {}


def running(pid: int) -> bool:
    """A process that is there, and no zombie: whoever should reap it may take its time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def what(found: list[Answer]) -> dict[str, list[tuple[Any, ...]]]:
    """Answers of each key, in order, to the last bit."""
    fields = ("id", "label", "confidence", "scores", "start", "end", "hard", "route")
    return {
        key: [tuple(json.dumps(one[name]) for name in fields) for one in found if one["key"] == key]
        for key in sorted({one["key"] for one in found})
    }


@pytest.fixture(scope="module")
def single(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """Answers of one process to `feed`."""
    folder = tmp_path_factory.mktemp("single")
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        with Process(folder, "run", app_file(folder, bundle, broker.url)) as process:
            process.subscribed(broker)
            publisher.send(feed())
            publisher.flush()
            until(lambda: len(predictions(folder / "answers.jsonl")) >= KEYS * (SAMPLES - 32) // 8, lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
    return predictions(folder / "answers.jsonl")


# -- equal answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [BY_TOPIC, BY_PAYLOAD], ids=["key in the topic", "key in the message"])
def test_answers_are_those_of_one_process_and_each_key_is_with_one_worker(
    bundle: Path, tmp_path: Path, single: list[Answer], topics: str
) -> None:
    port = free_port()
    more = f'[observe]\nsocket = "app.sock"\nlisten = "127.0.0.1:{port}"\n'
    with (
        Mosquitto("max_queued_messages 100000") as broker,
        Publisher(broker.port, topic="watch/{key}/imu" if topics == BY_TOPIC else "all") as publisher,
        listening(broker.port, "edge/status/#") as status,
    ):
        app = app_file(tmp_path, bundle, broker.url, topics=topics, more=more)
        with Process(tmp_path, "run", app, "--workers", "3", "--json") as process:
            process.subscribed(broker, 3)
            messages = feed()
            if topics == BY_PAYLOAD:
                messages = [Message(one.key, b'{"key":"%s",' % one.key.encode() + one.payload[1:]) for one in messages]
            publisher.send(messages)
            publisher.flush()
            until(lambda: len(of_all(tmp_path)) >= len(single), lambda: process.err)
            page = read(f"http://127.0.0.1:{port}/metrics")
            until(lambda: live(tmp_path).get("state") == "well", lambda: live(tmp_path))
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
            until(lambda: status[-1]["status"] == "offline", lambda: status)
    assert what(of_all(tmp_path)) == what(single)
    keys = [{one["key"] for one in found} for found in by_worker(tmp_path).values()]
    assert sum(map(len, keys)) == len(set().union(*keys)) == KEYS
    assert len(keys) == 3
    assert all(keys), "a worker without keys proves nothing"
    assert f"\nedge_predictions_total {len(single)}\n" in page
    assert page.count("edge_worker_up{") == 3
    figures = orjson.loads(process.out)
    assert figures["counts"]["predictions_total"] == len(single)
    # By topic, foreign messages are dropped undecoded; by payload, each worker decodes all of them.
    assert figures["counts"]["foreign_messages_total"] == 2 * len(messages)
    assert figures["counts"]["messages_total"] == (1 if topics == BY_TOPIC else 3) * len(messages)
    assert {one.get("workers", {}).get("state") for one in status} >= {"well"}


def test_two_machines_with_one_file_share_the_keys(bundle: Path, tmp_path: Path, single: list[Answer]) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        for folder in folders:
            folder.mkdir()
            app_file(folder, bundle, broker.url)
        with (
            Process(folders[0], "run", "app.toml", "--machine", "1/2", "--workers", "2") as one,
            Process(folders[1], "run", "app.toml", "--machine", "2/2") as two,
        ):
            one.subscribed(broker, 2)
            two.subscribed(broker)
            publisher.send(feed())
            publisher.flush()
            until(lambda: sum(len(of_all(folder)) for folder in folders) >= len(single), lambda: one.err + two.err)
            for process in (one, two):
                process.send(signal.SIGTERM)
            assert (one.wait(), two.wait()) == (0, 0), one.err + two.err
    found = [of_all(folder) for folder in folders]
    assert all(found)
    assert what([*found[0], *found[1]]) == what(single)


# -- kills -------------------------------------------------------------------------------------------------------------


def test_a_killed_worker_comes_back_and_nothing_that_was_accepted_is_lost(
    bundle: Path, tmp_path: Path, single: list[Answer]
) -> None:
    """With durability = "reading", each with a reading log of its own; an id that comes twice says the same twice."""
    messages = feed()
    third = len(messages) // 3
    with (
        Mosquitto("max_queued_messages 100000") as broker,
        Publisher(broker.port) as publisher,
        listening(broker.port, "edge/status") as status,
    ):
        app = app_file(tmp_path, bundle, broker.url, more=STATE + READINGS)
        with Process(tmp_path, "run", app, "--workers", "2") as process:
            process.subscribed(broker, 2)
            for at in range(2):
                publisher.send(messages[at * third : (at + 1) * third])
                until(lambda n=at: len(of_all(tmp_path)) > (n + 0.5) * len(single) / 3, lambda: process.err)  # type: ignore[misc]
                os.kill(live(tmp_path)["pids"][str(at + 1)], signal.SIGKILL)
                until(lambda n=at: process.err.count("of SIGKILL unasked") > n, lambda: process.err)  # type: ignore[misc]
            publisher.send(messages[2 * third :])
            publisher.flush()
            wanted = set(ids(single))
            until(lambda: wanted <= set(ids(of_all(tmp_path))), lambda: process.err)
            until(lambda: live(tmp_path).get("state") == "well", lambda: live(tmp_path))
            process.send(signal.SIGTERM)
            assert process.wait() in {0, exits.LOST}, process.err
    found = of_all(tmp_path)
    assert set(ids(found)) == wanted
    right = {one["id"]: (one["label"], one["confidence"]) for one in single}
    assert {(one["id"], one["label"], one["confidence"]) for one in found} == {(n, *one) for n, one in right.items()}
    states = [one["workers"]["state"] for one in status if "workers" in one]
    assert "degraded" in states[states.index("well") :]


def test_workers_end_when_their_parent_is_killed(bundle: Path, tmp_path: Path) -> None:
    with Mosquitto() as broker:
        app = app_file(tmp_path, bundle, broker.url, more='[observe]\nsocket = "app.sock"\n')
        with Process(tmp_path, "run", app, "--workers", "3") as process:
            process.subscribed(broker, 3)
            pids = [int(pid) for pid in live(tmp_path)["pids"].values()]
            assert all(map(running, pids))
            process.kill()
            until(lambda: not any(map(running, pids)), lambda: process.err)
    assert process.err.count("disconnected") == 3  # in order


def test_a_signal_to_all_processes_at_once_drains_as_one_to_the_parent_does(bundle: Path, tmp_path: Path) -> None:
    """As Ctrl-C in a terminal does it, and a service manager that signals a whole group."""
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        app = app_file(tmp_path, bundle, broker.url, more='[observe]\nsocket = "app.sock"\n')
        with Process(tmp_path, "run", app, "--workers", "2") as process:
            process.subscribed(broker, 2)
            publisher.send(feed(samples=100))
            until(lambda: of_all(tmp_path), lambda: process.err)
            pids = [int(pid) for pid in live(tmp_path)["pids"].values()]
            for pid in [*pids, process.pid, *pids]:  # also one that comes when a worker has nearly ended
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            assert process.wait() == 0, process.err
    assert "Traceback" not in process.err
    assert process.err.count("disconnected") == 3  # the parent's of the status topic is one


def test_a_wrong_configuration_ends_the_parent_with_one_line(bundle: Path, tmp_path: Path) -> None:
    app = app_file(tmp_path, bundle, "mqtt://127.0.0.1:1")
    app.write_text(app.read_text().replace("onnx-fp32", "no-such"))
    done = command("run", app, "--workers", "2", cwd=tmp_path)
    assert done.code != 0
    assert done.err.count("has no variant 'no-such'") <= 5  # tried again, as any start that failed
    serial = tmp_path / "serial.toml"
    serial.write_text(app.read_text() + '[[source]]\ntype = "serial"\nport = "/dev/ttyS0"\n')
    done = command("run", serial, "--workers", "2", cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "source[1] of type serial" in done.err


# -- a change of their number ------------------------------------------------------------------------------------------


def queued(folder: Path) -> dict[str, list[str]]:
    """Ids of the cases that wait, by the folder of their outbox."""
    found = {}
    for path in sorted(folder.glob("**/outbox.db")):
        with Snapshot(OutboxConfig(path=path)) as snapshot:
            found[path.parent.name] = [entry.case.id for entry in snapshot.all()]
    return found


@pytest.mark.parametrize("workers", some([(3, 2), (2, 1), (1, 2)], [(2, 1), (1, 2)]))
def test_full_outboxes_are_drained_by_fewer_or_more_workers(
    bundle: Path, tmp_path: Path, workers: tuple[int, int]
) -> None:
    """The cloud is away while some fill their outboxes; others ask it, then. One is the process without workers."""
    before, after = workers
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:

        def run(workers: int, cloud: str, finished: Callable[[], bool]) -> None:
            app = app_file(tmp_path, bundle, broker.url, more=CLOUD.format(cloud=cloud, threshold=0.9))
            with Process(tmp_path, "run", app, "--workers", str(workers), name=f"of-{workers}") as process:
                process.subscribed(broker, workers)
                if not publisher.sent:
                    publisher.send(feed())
                    publisher.flush()
                until(finished, lambda: f"{queued(tmp_path)} {process.err}")
                process.send(signal.SIGTERM)
                assert process.wait() == 0, process.err

        run(before, f"http://127.0.0.1:{free_port()}", lambda: len(of_all(tmp_path)) >= KEYS * (SAMPLES - 32) // 8)
        waiting = queued(tmp_path)
        hard = sorted(case for cases in waiting.values() for case in cases)
        assert len(waiting) == before
        assert all(waiting.values())
        assert hard == ids([one for one in of_all(tmp_path) if one["route"] == "provisional"])
        answered = {path: len(answers(path)) for path in tmp_path.glob("answers*.jsonl")}

        with serving() as cloud:
            run(after, cloud.url, lambda: not any(queued(tmp_path).values()))
    found = [one for path in tmp_path.glob("answers*.jsonl") for one in corrections(path)]
    assert ids(found) == hard  # none lost, none twice
    for one in found:
        assert_right(one, streams(KEYS, SAMPLES))
    if before == 3:
        gone = tmp_path / "answers.worker-3.jsonl"
        assert len(answers(gone)) == answered[gone]
