"""``edge-runtime record`` as a process: a file that replay and auto take, whatever ends it."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from edge_export.recipe.auto import infer_recipe, scan_folder
from edge_export.recipe.auto.hints import Hints
from edge_export.recipe.auto.infer import Order

from edge_runtime.manifest import Channel
from tests.integration.running import PATIENCE_S, Process, Publisher, answers, command, environment, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

CHANNELS = (Channel(name="ax", unit="g"), Channel(name="ay", unit="g"), Channel(name="az", unit="g"))
SOURCES = """
[broker.local]
url = "{url}"

[[source]]
type = "mqtt"
broker = "local"
topics = ["watch/+/imu"]

[source.codec]
type = "json"
time = "t"

[source.codec.channels]
ax = "ax"
ay = "ay"
az = "az"

[source.codec.units]
ax = "m/s2"
ay = "m/s2"
az = "m/s2"
"""
MODEL = '[model]\nbundle = "{bundle}"\nunsigned = "allow"\n[[sink]]\ntype = "stdout"\n'

pytestmark = needs_mosquitto


def send(publisher: Publisher, key: str, start: float, n: int, first: int = 0, turn: int = 10**6) -> None:
    """Samples 20 ms apart, numbered in `ax`, from 0 again each `turn`."""
    for i in range(first, first + n):
        sample = {"t": start + i * 0.02, "ax": i % turn, "ay": 0.5, "az": 9.80665}
        publisher.publish(f"watch/{key}/imu", json.dumps(sample).encode(), 1)
    publisher.flush()


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a recording; each of them is whole."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert all(None not in row and None not in row.values() for row in found), "a row is torn"
    return found


def sources(folder: Path, broker: Mosquitto) -> Path:
    path = folder / "sources.toml"
    path.write_text(SOURCES.format(url=broker.url))
    return path


def subscribed(broker: Mosquitto, process: Process, times: int = 1) -> None:
    until(lambda: broker.log().count("Sending SUBACK") == times, lambda: process.err)


@pytest.mark.slow
def test_what_was_recorded_is_replayed_with_the_live_answers(tmp_path: Path) -> None:
    """Mutations that this finds: units converted twice or not at all, stamps rounded, rows in another order."""
    bundle = tiny_bundle(tmp_path / "watch.edge", sensor=CHANNELS, hop=8)
    with Mosquitto() as broker:
        app = tmp_path / "app.toml"
        sink = f'[[sink]]\ntype = "jsonl"\npath = "{tmp_path}/live.jsonl"\n'
        app.write_text(MODEL.format(bundle=bundle).split("[[sink]]")[0] + sink + SOURCES.format(url=broker.url))
        with (
            Process(tmp_path, "run", app, name="run") as run,
            Process(tmp_path, "record", app, "--out", tmp_path / "w.csv", name="record") as record,
        ):
            subscribed(broker, record, 2)
            with Publisher(broker.port) as publisher:
                send(publisher, "1", 1_700_000_000.0, 200)
                send(publisher, "2", 1_700_000_000.3, 200)
            until(lambda: len(rows(tmp_path / "w.csv")) == 400, lambda: record.err)
            until(lambda: len(answers(tmp_path / "live.jsonl")) >= 44, lambda: run.err)
            for process in (run, record):
                process.send(signal.SIGTERM)
            assert (run.wait(), record.wait()) == (0, 0)
        assert "400 samples of 2 keys" in record.err
    replayed = command("replay", bundle, tmp_path / "w.csv", "--out", tmp_path / "again.jsonl")
    assert replayed.code == 0, replayed.err
    wanted = {answer["id"]: answer["scores"] for answer in answers(tmp_path / "live.jsonl")}
    assert {answer["id"]: answer["scores"] for answer in answers(tmp_path / "again.jsonl")} == wanted


def test_a_killed_recorder_leaves_whole_rows_up_to_the_kill(tmp_path: Path) -> None:
    """Mutation that this finds: rows kept in a buffer of the process."""
    with Mosquitto() as broker:
        out = tmp_path / "w.csv"
        with Process(tmp_path, "record", sources(tmp_path, broker), "--out", out, name="record") as record:
            subscribed(broker, record)
            with Publisher(broker.port) as publisher:
                send(publisher, "1", 1_700_000_000.0, 300)
                until(lambda: len(rows(out)) == 300, lambda: record.err)
                send(publisher, "1", 1_700_000_000.0, 300, 300)
                record.kill()
        found = rows(out)
    assert 300 <= len(found) <= 600
    assert [float(row["ax (m/s2)"]) for row in found] == list(map(float, range(len(found))))


def test_labels_on_a_pipe_hold_from_their_moment_and_an_empty_line_pauses(tmp_path: Path) -> None:
    with Mosquitto() as broker:
        out = tmp_path / "w.csv"
        with subprocess.Popen(
            [sys.executable, "-m", "edge_runtime", "record", str(sources(tmp_path, broker)), "--out", str(out),
             "--label", "walking", "--person", "anna"],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        ) as record:  # fmt: skip
            assert record.stdin is not None
            assert record.stderr is not None
            until(lambda: broker.log().count("Sending SUBACK") == 1)

            def say(line: str) -> None:
                assert record.stdin is not None
                assert record.stderr is not None
                print(line, file=record.stdin, flush=True)
                while "now: " not in record.stderr.readline():
                    pass

            with Publisher(broker.port) as publisher:
                send(publisher, "w1", time.time(), 1)
                until(lambda: len(rows(out)) == 1)
                say("sitting")
                send(publisher, "w1", time.time(), 1, 1)
                until(lambda: len(rows(out)) == 2)
                say("")
                send(publisher, "w1", time.time(), 1, 2)
                say("running")
                send(publisher, "w1", time.time(), 1, 3)
                until(lambda: len(rows(out)) == 3)
            record.send_signal(signal.SIGINT)
            said = record.stderr.read()
            assert record.wait(PATIENCE_S) == 0, said
            assert "left out while paused: 1 samples" in said
    assert [(row["label"], row["person"], float(row["ax (m/s2)"])) for row in rows(out)] == [
        ("walking", "anna", 0.0),
        ("sitting", "anna", 1.0),
        ("running", "anna", 3.0),
    ]


@pytest.mark.slow
def test_parts_on_topics_of_their_own_become_whole_rows(tmp_path: Path) -> None:
    config = """
[broker.local]
url = "{url}"
[[source]]
type = "mqtt"
broker = "local"
channels = {{ temperature = "room/+/temperature", humidity = "room/+/humidity" }}
[source.codec]
type = "json"
time = "t"
values = "v"
"""
    with Mosquitto() as broker:
        path, out = tmp_path / "sources.toml", tmp_path / "w.csv"
        path.write_text(config.format(url=broker.url))
        assert command("record", path, "--out", out, "--seconds", "1").err.count("--rate") == 1
        with Process(tmp_path, "record", path, "--out", out, "--rate", "1", name="record") as record:
            subscribed(broker, record)
            with Publisher(broker.port) as publisher:
                for i in range(20):
                    for name, value in (("temperature", 20 + i), ("humidity", 40 + i)):
                        message = json.dumps({"t": 1_700_000_000 + i, "v": value}).encode()
                        publisher.publish(f"room/attic/{name}", message, 1)
                publisher.flush()
            until(lambda: len(rows(out)) >= 10, lambda: record.err)
            record.send(signal.SIGTERM)
            assert record.wait() == 0
    found = rows(out)
    assert [(row["temperature"], row["humidity"]) for row in found] == [
        (f"{20 + i}.0", f"{40 + i}.0") for i in range(20)
    ]
    assert {row["key"] for row in found} == {"attic"}


@pytest.mark.slow
def test_auto_makes_a_recipe_of_what_was_recorded(tmp_path: Path) -> None:
    """From a sensor to a recipe: labels, people, rate, channels and units stand in the files."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    with Mosquitto() as broker:
        config = sources(tmp_path, broker)
        for n, person in enumerate(("anna", "bob", "cleo", "dan"), start=1):
            for label in ("walking", "sitting"):
                out = folder / f"{person}-{label}.csv"
                options = ("--out", out, "--label", label, "--person", person)
                with Process(tmp_path, "record", config, *options, name="record") as record:
                    subscribed(broker, record, broker.log().count("Sending SUBACK") + 1)
                    with Publisher(broker.port) as publisher:
                        send(publisher, "w1", 1_700_000_000.0 + 1000 * n, 1000, turn=7)
                    until(lambda out=out: len(rows(out)) == 1000, lambda record=record: record.err)  # type: ignore[misc]
                    record.send(signal.SIGTERM)
                    assert record.wait() == 0
    scan = scan_folder(folder, Hints())
    assert scan.label == "column:label"
    assert scan.group == "column:person"
    assert [(one.name, one.unit) for one in scan.channels] == [("ax", "m/s2"), ("ay", "m/s2"), ("az", "m/s2")]
    assert scan.rate_hz == pytest.approx(50, rel=1e-3)
    assert Counter(piece.label for piece in scan.pieces) == {"walking": 4, "sitting": 4}
    assert "anna" in infer_recipe(scan, Order(name="own", targets=("cpu",), created="2026-11-23")).text + str(scan)


def test_a_file_that_exists_is_refused_before_anything_connects(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("precious")
    (tmp_path / "sources.toml").write_text(SOURCES.format(url="mqtt://127.0.0.1:9"))
    done = command("record", tmp_path / "sources.toml", "--out", tmp_path / "w.csv", "--seconds", "1")
    assert (done.code, (tmp_path / "w.csv").read_text()) == (2, "precious")
    assert "never overwritten" in done.err


def test_messages_that_cannot_become_rows_are_counted_and_end_nothing(tmp_path: Path) -> None:
    """Broken once by one message with several samples and one stamp, where no rate was stated."""
    with Mosquitto() as broker:
        app = sources(tmp_path, broker)
        with (
            Process(tmp_path, "record", app, "--out", "out.csv", "--channel", "ax=g", name="record") as process,
            Publisher(broker.port) as publisher,
        ):
            subscribed(broker, process)
            send(publisher, "a", 1.7e9, 3)
            several = {"t": 1.7e9 + 1, "ax": [1, 2, 3], "ay": [1, 2, 3], "az": [1, 2, 3]}
            publisher.publish("watch/a/imu", json.dumps(several).encode(), 1)
            send(publisher, "a", 1.7e9, 3, first=100)
            publisher.flush()
            until(lambda: len(rows(tmp_path / "out.csv")) == 6, lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0
        assert "refused: 1 bad_time" in process.err
        assert "say --rate HZ" in process.err
