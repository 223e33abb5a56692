"""The command as a process: signals, kills, restarts, machine-readable output, mistakes of the user."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.clock import SystemClock
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.tools.demo.broker.broker import Broker, EmbeddedBrokerConfig
from tests.integration.apps import app_file
from tests.integration.cloud import assert_right, serving
from tests.integration.running import (
    PATIENCE_S,
    Answer,
    Process,
    Publisher,
    cut,
    ids,
    interleave,
    listening,
    predictions,
    streams,
    until,
)
from tests.mosquitto import Mosquitto, free_port

# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_drains_and_ends_with_0(bundle: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Everything that had been acknowledged when the signal came is answered: in the file when the process is gone."""
    with Broker() as broker, Publisher(broker.port) as publisher:
        app = app_file(tmp_path, bundle, broker.url)
        with Process(tmp_path, "run", app, "--json") as process:
            process.subscribed(broker)
            rng = np.random.default_rng(5)
            (stream,) = streams(1, 2000)
            messages = cut(stream, lambda: int(rng.integers(5, 15)))
            publisher.send(messages[:20])
            until(lambda: len(predictions(tmp_path / "answers.jsonl")) > 5, lambda: process.err)
            publisher.send(messages[20:])
            process.send(number)
            began = time.monotonic()
            assert process.wait() == 0, process.err
            assert time.monotonic() - began < 10 + 5
            publisher.flush()
            acknowledged = len(messages) - broker.stats().undelivered
            assert acknowledged > 0  # six windows were answered, in however few messages
    figures = json.loads(process.out)
    found = predictions(tmp_path / "answers.jsonl")
    assert len(found) == figures["counts"]["predictions_total"]
    assert figures["counts"]["readings_total"] >= acknowledged
    assert "Traceback" not in process.err


AWAY = """
[broker.away]
url = "mqtt://127.0.0.1:{port}"
[[sink]]
type = "mqtt"
broker = "away"
required = true
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGTERM, signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT, 130),
    ],
)
def test_a_second_signal_ends_at_once(
    bundle: Path, tmp_path: Path, first: signal.Signals, second: signal.Signals, code: int
) -> None:
    """While answers wait for a broker that is not there, which is worth waiting for unless somebody insists."""
    with Broker() as broker, Publisher(broker.port) as publisher:
        app = app_file(tmp_path, bundle, broker.url, drain=2 * PATIENCE_S, more=AWAY.format(port=free_port()))
        with Process(tmp_path, "run", app) as process:
            process.subscribed(broker)
            publisher.send(cut(streams(1, 200)[0], lambda: 20))
            until(lambda: predictions(tmp_path / "answers.jsonl"), lambda: process.err)
            process.send(first)
            time.sleep(0.7)
            assert process.running(), process.err
            process.send(second)
            assert process.wait(20) == code
            assert "Traceback" not in process.err


@pytest.mark.slow
def test_answers_that_nobody_took_are_asked_for_again(bundle: Path, tmp_path: Path) -> None:
    """Draining ends when the stated time is over, with code 1 and one line; what was not acknowledged comes again."""
    port = free_port()
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        app = app_file(tmp_path, bundle, broker.url, drain=0.5, more=AWAY.format(port=port))
        messages = cut(streams(1, 400)[0], lambda: 20)  # a window in each message
        with Process(tmp_path, "run", app) as process:
            process.subscribed(broker)
            publisher.send(messages[:10])
            until(lambda: len(predictions(tmp_path / "answers.jsonl")) >= 20, lambda: process.err)
            process.send(signal.SIGTERM)
            began = time.monotonic()
            assert process.wait() == 1
            assert time.monotonic() - began < 0.5 + 8
            assert process.err.count("answers not handed over") == 1
        with Broker(EmbeddedBrokerConfig(port=port)) as away, listening(away.port, "edge/+/prediction") as heard:
            with Process(tmp_path, "run", app, name="second") as process:
                publisher.send(messages[10:])
                until(lambda: len(heard) >= 48, lambda: f"{len(heard)} {process.err}")
                process.send(signal.SIGTERM)
                assert process.wait() == 0, process.err
    # Windows may overlap two messages, and context is soft; but each that lies within what came again is there.
    assert len(set(ids(heard))) >= 46


@pytest.mark.slow
def test_a_broker_that_is_not_there_is_tried_until_it_comes(bundle: Path, tmp_path: Path) -> None:
    port = free_port()
    app = app_file(tmp_path, bundle, f"mqtt://127.0.0.1:{port}")
    with Process(tmp_path, "run", app) as process:
        process.says("trying again")
        time.sleep(2.5)  # some more attempts
        assert process.err.count("trying again") == 1, process.err
        with Broker(EmbeddedBrokerConfig(port=port)) as broker, Publisher(broker.port) as publisher:
            process.subscribed(broker)
            publisher.send(cut(streams(1, 100)[0], lambda: 20))
            until(lambda: predictions(tmp_path / "answers.jsonl"), lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0
    assert "Traceback" not in process.err


@pytest.mark.slow
@pytest.mark.parametrize("where", ["refused", "unknown host"])
def test_sigterm_ends_what_never_connected(bundle: Path, tmp_path: Path, where: str) -> None:
    url = f"mqtt://127.0.0.1:{free_port()}" if where == "refused" else "mqtt://no-such-host.invalid"
    with Process(tmp_path, "run", app_file(tmp_path, bundle, url)) as process:
        process.says("trying again")
        process.send(signal.SIGTERM)
        assert process.wait(20) == 0
    errors = [line for line in process.err.splitlines() if not line.startswith("INFO")]
    assert len(errors) == 1
    assert url.removeprefix("mqtt://") in errors[0]


# -- kill -9 -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_process_loses_no_hard_case(bundle: Path, tmp_path: Path) -> None:
    """SIGKILL again and again mid-stream, one outbox: the books balance, and every accepted case has its correction."""
    recorded = streams(3, 1500, seed=11)
    rng = np.random.default_rng(11)
    messages = interleave(rng, [cut(stream, lambda: int(rng.integers(8, 25))) for stream in recorded])
    kills, port = 3, free_port()
    config = OutboxConfig(path=tmp_path / "outbox.db")
    server = serving(port)
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        with listening(broker.port, "answers/+") as heard:
            app = app_file(tmp_path, bundle, broker.url, cloud=f"http://127.0.0.1:{port}", sink="mqtt")
            size = len(messages) // (kills + 1)
            for i in range(kills):
                enough = len(heard) + 20
                with Process(tmp_path, "run", app, name=f"run-{i}") as process:
                    process.subscribed(broker)
                    publisher.send(messages[i * size : (i + 1) * size])
                    until(lambda enough=enough: len(heard) >= enough, lambda: process.err)  # type: ignore[misc]
                    if i == 1:
                        server.start()  # so that one kill meets corrections on their way
                        until(lambda: any(a["route"] == "cloud" for a in heard), lambda: process.err)
                        server.stop()
                    process.kill()
                with Outbox(config, SystemClock()) as outbox:
                    counts = outbox.counts()
                    assert counts.balances()
            server.start()
            with Process(tmp_path, "run", app, "--json", name="last") as process:
                process.subscribed(broker)
                publisher.send(messages[kills * size :])
                publisher.flush()
                until(lambda: settled(heard), lambda: f"{len(heard)} {process.err}")
                process.send(signal.SIGTERM)
                assert process.wait() == 0, process.err
            server.stop()
    with Outbox(config, SystemClock()) as outbox:
        counts = outbox.counts()
    assert counts.balances()
    assert (counts.queued, counts.dead, sum(counts.dropped.values())) == (0, 0, 0)
    corrected = {answer["id"] for answer in heard if answer["route"] == "cloud"}
    promised = {answer["id"] for answer in heard if answer["route"] == "provisional"}
    # A repeat is accepted again when its first answer was through; a window lost with its process is at most the
    # unfinished one of each key, whose provisional answer may have left before the crash.
    assert len(corrected) <= counts.accepted
    assert len(promised - corrected) <= kills * len(recorded)
    for answer in heard:
        if answer["route"] == "cloud":
            assert_right(answer, recorded)


def settled(heard: list[Answer]) -> bool:
    """No answer has come for a while, and the last stretch of the stream is answered."""
    before = len(heard)
    time.sleep(1.5)
    return len(heard) == before and before > 0
