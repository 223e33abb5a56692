"""kill -9 in both modes of durability, and a broker that lets few messages be on their way."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.tools.cli import exits
from tests.integration.running import (
    Answer,
    Message,
    Process,
    Publisher,
    answers,
    cut,
    ids,
    interleave,
    load_model,
    predictions,
    running,
    streams,
    until,
)
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto
from tests.stateful import stateful_bundle

APP = """
durability = "{durability}"
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
client_id = "under-test"
{limits}
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[reading_log]
path = "journal.db"
"""
HOP, WINDOW, KEYS = 8, 16, ("watch-0", "watch-2")
KILLS = 2


def feed(seed: int, samples: int = 600, channels: int = 3) -> list[Message]:
    """Without the stream that begins half a period off the epoch's grid: a new segment may number it otherwise."""
    rng = np.random.default_rng(seed)
    recorded = [stream for stream in streams(3, samples, channels=channels, seed=seed) if stream.key in KEYS]
    return interleave(rng, [cut(stream, lambda: int(rng.integers(1, 6))) for stream in recorded])


def expected(bundle: Path, folder: Path, messages: list[Message]) -> list[Answer]:
    """The answers of an application that nobody kills, which lost nothing: the same file, replayed."""
    lines = b"\n".join(b'{"key":"%s",' % message.key.encode() + message.payload[1:] for message in messages)
    (folder / "recording.jsonl").write_bytes(lines + b"\n")
    text = (
        f'[model]\nbundle = "{bundle}"\nunsigned = "allow"\n'
        '[[source]]\ntype = "recording"\nfiles = ["recording.jsonl"]\n'
        '[[sink]]\ntype = "jsonl"\npath = "expected.jsonl"\n'
    )
    with running(text, folder, load_model(bundle, "onnx-fp32")) as app:
        app.until(lambda: app.drained is not None)
    return answers(folder / "expected.jsonl")


def killed(
    tmp_path: Path, bundle: Path, durability: str, messages: list[Message], wanted: Iterable[str]
) -> list[Answer]:
    """Answers of an application that is killed `KILLS` times, and of the one after it."""
    rng = np.random.default_rng(31)
    cuts = [0, *sorted(int(x) for x in rng.choice(np.arange(100, len(messages) - 100), KILLS, replace=False))]
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        app = tmp_path / "app.toml"
        app.write_text(APP.format(durability=durability, bundle=bundle, broker=broker.url, limits=""))
        out = tmp_path / "answers.jsonl"
        for i, (begin, end) in enumerate(itertools.pairwise(cuts)):
            with Process(tmp_path, "run", app, name=f"run-{i}") as process:
                process.subscribed(broker)
                before = len(predictions(out))
                publisher.send(messages[begin:end])
                enough = max(1, (end - begin) // 4)
                until(lambda n=before + enough: len(predictions(out)) >= n, lambda: process.err)  # type: ignore[misc]
                process.kill()
        with Process(tmp_path, "run", app, "--json", name="last") as process:
            process.subscribed(broker)
            publisher.send(messages[cuts[-1] :])
            publisher.flush()
            last = {[name for name in wanted if name.startswith(f"{key}@")][-1] for key in KEYS}
            until(lambda: last <= set(ids(predictions(out))), lambda: process.err)
            process.send(signal.SIGTERM)
            # What the broker sends again was used before: where that is most of what came, the end says so.
            assert process.wait() in {0, exits.LOST}, process.err
    return predictions(out)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["window", "reading"])
def test_a_killed_process_loses_what_its_mode_states_and_nothing_else(
    bundle: Path, tmp_path: Path, durability: str
) -> None:
    """``window``: at most the unfinished window of each key at each kill, seen as a step in the ids. ``reading``: none.

    In either, an id that comes twice says the same twice. Mutation that this finds: acknowledging before the journal
    has committed (kills then lose readings), and a restart that does not recover.
    """
    messages = feed(31)
    wanted = {answer["id"]: answer for answer in expected(bundle, tmp_path, messages)}
    found = killed(tmp_path, bundle, durability, messages, wanted)
    for answer in found:  # repeats included
        assert answer["id"] in wanted, "under another id"
        assert np.abs(np.array(answer["scores"]) - wanted[answer["id"]]["scores"]).max() < 1e-6, answer["id"]
    lost = sorted(set(wanted) - set(ids(found)))
    if durability == "reading":
        assert not lost
    else:
        # A sample lies in two windows here, so a kill can cost two of each key: those that had begun.
        assert 0 < len(lost) <= KILLS * len(KEYS) * (WINDOW // HOP)


@pytest.mark.slow
def test_states_of_a_model_go_on_in_a_process_that_follows_one_that_was_killed(tmp_path: Path) -> None:
    """With ``durability = "reading"``: all answers, repeats too, are those of a process that nothing has killed."""
    bundle = stateful_bundle(tmp_path / "leaky.edge")
    messages = feed(32, samples=900, channels=2)
    wanted = {answer["id"]: answer for answer in expected(bundle, tmp_path, messages)}
    found = killed(tmp_path, bundle, "reading", messages, wanted)
    assert {answer["id"] for answer in found} == set(wanted)
    for answer in found:
        assert np.abs(np.array(answer["scores"]) - wanted[answer["id"]]["scores"]).max() < 1e-6, answer["id"]


@pytest.mark.parametrize("durability", ["window", "reading"])
@pytest.mark.parametrize("limits", ["", "receive_maximum = 1"])
def test_windows_of_more_messages_than_may_be_on_their_way_do_not_wait_for_themselves(
    tmp_path: Path, durability: str, limits: str
) -> None:
    """Mosquitto sends 20 messages and then waits; a window takes 100. Mutation: acknowledging with the window."""
    bundle = tiny_bundle(tmp_path / "long.edge", window=100, hop=50, variants=("onnx-fp32",))
    (stream,) = streams(1, 260)
    with Mosquitto("max_inflight_messages 20") as broker, Publisher(broker.port) as publisher:
        text = APP.format(durability=durability, bundle=bundle, broker=broker.url, limits=limits)
        with running(text, tmp_path, load_model(bundle, "onnx-fp32")) as app:
            app.until(lambda: app.connected)
            publisher.reach(app)
            publisher.send(cut(stream, lambda: 1))
            app.until(lambda: app.counts["samples_total"] >= 260)
            assert app.stop()
    found = predictions(tmp_path / "answers.jsonl")
    assert len(found) == len(set(ids(found))) >= 3
    if durability == "reading":
        assert app.counts["reading_log_skipped_total"] == 0
        assert app.counts["reading_log_iterations_total"] > 0
