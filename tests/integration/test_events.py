"""Events of a whole application as a process, over kill -9."""

from __future__ import annotations

import itertools
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.integration.running import Answer, Message, Process, Publisher, command, cut, interleave, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

EVENTS = """
[[events]]
name = "moving"
label = "walk"
on = 0.34
off = 0.32
of = [2, 3]
smooth_windows = 2
hold_s = 0.5
[[events]]
name = "stopped-after"
label = "rest"
on = 0.34
refractory_s = 1.0
after = "moving"
within_s = 2.0
"""
LIVE = """
durability = "reading"
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
[reading_log]
path = "readings.db"
"""
RECORDED = """
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[[source]]
type = "recording"
files = ["recording.jsonl"]
[[sink]]
type = "jsonl"
path = "expected.jsonl"
"""
KEYS = ("watch-0", "watch-2")


def events(path: Path) -> list[Answer]:
    """Of the lines of a sink; without those that the end of the stream alone has ended."""
    return [line for line in whole(path) if "event" in line and line["reason"] != "stopped"]


def whole(path: Path) -> list[Answer]:
    """Without a line that a kill has cut at the end of a page; its answer comes again."""
    found = []
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        with suppress(orjson.JSONDecodeError):
            found.append(orjson.loads(line))
    return found


def answered(path: Path) -> set[str]:
    """Ids of the windows."""
    return {line["id"] for line in whole(path) if "event" not in line}


def marks(found: list[Answer]) -> set[tuple[str, str]]:
    return {(one["id"], one["kind"]) for one in found}


def feed(samples: int = 600) -> list[Message]:
    """Without the stream that begins half a period off the epoch's grid: a new segment may number it otherwise."""
    rng = np.random.default_rng(5)
    recorded = [stream for stream in streams(3, samples, seed=5) if stream.key in KEYS]
    return interleave(rng, [cut(stream, lambda: int(rng.integers(1, 6))) for stream in recorded])


@pytest.mark.slow
def test_a_killed_process_makes_the_events_of_one_that_runs_through(tmp_path: Path) -> None:
    """Mutation that this finds: a restart that does not restore open events, scores or pauses."""
    bundle = tiny_bundle(tmp_path / "tiny.edge", hop=8)
    messages = feed()
    lines = b"\n".join(b'{"key":"%s",' % message.key.encode() + message.payload[1:] for message in messages)
    (tmp_path / "recording.jsonl").write_bytes(lines + b"\n")
    (tmp_path / "recorded.toml").write_text(RECORDED.format(bundle=bundle) + EVENTS)
    assert command("run", tmp_path / "recorded.toml", cwd=tmp_path).code == 0
    expected = events(tmp_path / "expected.jsonl")
    assert {(one["event"], one["kind"]) for one in expected} == set(
        itertools.product(("moving", "stopped-after"), ("start", "end"))
    )

    out = tmp_path / "answers.jsonl"
    cuts = [0, 90, 200, len(messages)]
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        app = tmp_path / "app.toml"
        app.write_text(LIVE.format(bundle=bundle, broker=broker.url) + EVENTS)
        for i, (begin, end) in enumerate(itertools.pairwise(cuts)):
            with Process(tmp_path, "run", app, name=f"run-{i}") as process:
                process.subscribed(broker)
                before = len(whole(out))
                publisher.send(messages[begin:end])
                if end < len(messages):
                    until(lambda n=before + 5: len(whole(out)) >= n, lambda: process.err)  # type: ignore[misc]
                    process.kill()
                    continue
                # Not the events alone: if messages before the kill made them all, a stop may find nothing but those.
                until(lambda: answered(tmp_path / "expected.jsonl") <= answered(out), lambda: process.err)
                until(lambda: marks(expected) <= marks(events(out)), lambda: process.err)
                process.send(signal.SIGTERM)
                assert process.wait() == 0, process.err
    found = events(out)
    by_mark = {(one["id"], one["kind"]): one for one in expected}
    for one in found:  # repeats included
        same = by_mark.get((one["id"], one["kind"]))
        assert same is not None, one
        assert one | {"peak": 0} == same | {"peak": 0}
        assert one["peak"] == pytest.approx(same["peak"], abs=1e-6)
