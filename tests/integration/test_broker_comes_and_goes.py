"""A broker that is away, killed or restarted costs time, and no reading that it had."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from edge_runtime.tools.demo.broker.broker import Broker, EmbeddedBrokerConfig
from tests.edge_runtime.io.mqtt.users import User
from tests.integration.broker_runs import APP, KEYS, SAMPLES, feed, undisturbed
from tests.integration.running import (
    Answer,
    Message,
    Publisher,
    assert_same_answers,
    load_model,
    predictions,
    running,
    streams,
    until,
)
from tests.mosquitto import Mosquitto, free_port

pytestmark = pytest.mark.usefixtures("hasty")


# Not mosquitto with QoS 2: version 2.0.11 forgets such messages when it is restarted, whoever the subscriber is. Nor
# mosquitto killed: what it had not written down by then it sends again late or never, and that leg is the broker's own.
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize(("how", "qos"), [("mosquitto stopped", 1), ("embedded stopped", 1), ("embedded stopped", 2)])
def test_no_reading_is_lost_over_restarts_of_the_broker(
    bundle: Path, tmp_path: Path, how: str, protocol: str, qos: int
) -> None:
    messages = feed()
    expected = undisturbed(bundle, tmp_path, messages)
    port = free_port()
    state = tmp_path / "mosquitto"
    state.mkdir()
    mosquitto = Mosquitto("persistence true", f"persistence_location {state}/", "max_queued_messages 100000", port=port)
    embedded = Broker(EmbeddedBrokerConfig(port=port))
    start: Callable[[], object] = embedded.start if how.startswith("embedded") else mosquitto.start
    end: Callable[[], object] = embedded.stop if how.startswith("embedded") else mosquitto.stop
    text = APP.format(port=port, protocol=protocol, qos=qos, path="answers.jsonl")
    try:
        with running(text, tmp_path, load_model(bundle, "onnx-fp32")) as app:
            time.sleep(0.2)  # away at the start
            start()
            app.until(lambda: app.connected)
            with Publisher(port, version=protocol) as publisher:
                publisher.reach(app)
                size = len(messages) // 4
                for at in range(0, len(messages), size):
                    publisher.send(messages[at : at + size], qos)
                    if at + size < len(messages):
                        used = app.counts["samples_total"]
                        app.until(lambda: app.counts["samples_total"] > used)  # noqa: B023 - used within the turn
                        end()
                        until(lambda: not app.connected)
                        start()
                publisher.flush()
                app.until(lambda: app.counts["predictions_total"] >= len(expected))
                assert app.stop()
    finally:
        embedded.stop()
        mosquitto.close()
    found = predictions(tmp_path / "answers.jsonl")
    assert_same_answers(found, expected)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_answers_wait_for_their_broker_and_arrive_once_each(bundle: Path, tmp_path: Path, protocol: str) -> None:
    """Readings from one broker, answers with QoS 2 to another that comes and goes: in order, none missing, none twice.

    The second one keeps its sessions over the restarts, as a broker with persistence does; without them, QoS 2 repeats.
    """
    messages = feed()
    sink_port = free_port()
    text = APP.format(port="{port}", protocol="5", qos=1, path="answers.jsonl") + (
        f'[broker.out]\nurl = "mqtt://127.0.0.1:{sink_port}"\nprotocol = "{protocol}"\n'
        '[[sink]]\ntype = "mqtt"\nbroker = "out"\ntopic = "answers/{key}"\nqos = 2\n'
    )
    out = Broker(EmbeddedBrokerConfig(port=sink_port))
    rng = random.Random(6)
    try:
        with (
            Broker() as broker,
            Publisher(broker.port) as publisher,
            running(text.replace("{port}", str(broker.port)), tmp_path, load_model(bundle, "onnx-fp32")) as app,
        ):
            out.start()
            app.until(lambda: app.connected)
            publisher.reach(app)
            user = User(sink_port, "reader", clean=False)
            user.subscribe("answers/+", 2)
            user.leave()
            size = len(messages) // 5
            for at in range(0, len(messages), size):
                publisher.send(messages[at : at + size])
                time.sleep(rng.uniform(0.05, 0.2))
                out.stop()
                time.sleep(rng.uniform(0.0, 0.1))
                out.start()
            publisher.flush()
            app.until(lambda: app.counts["samples_total"] >= KEYS * SAMPLES)
            app.until(lambda: app.connected and app.app.pipeline.idle)  # its back-off may outlast the draining
            assert app.stop()
            assert not {reason for reason in app.dropped if reason.startswith("publish_")}
        expected = predictions(tmp_path / "answers.jsonl")
        last = User(sink_port, "last")
        last.publish("answers/last", b"{}", 2)  # behind all others, so that nothing hides there
        last.leave()
        user = User(sink_port, "reader", clean=False)
        heard = []
        while (received := user.next())[0] != "answers/last":
            heard.append(orjson.loads(received[1]))
        user.leave()
    finally:
        out.stop()
    assert_same_answers(heard, expected)


def test_a_broker_that_is_killed_and_forgets_everything_is_survived(bundle: Path, tmp_path: Path) -> None:
    """What it had taken and not passed on is gone with it; what comes afterwards is answered, and nothing twice."""
    messages = feed()
    expected = undisturbed(bundle, tmp_path, messages)
    half, before = len(messages) // 2, 10
    text = APP.format(port="{port}", protocol="5", qos=1, path="answers.jsonl")
    with Mosquitto("max_queued_messages 100000") as mosquitto:
        with running(text.format(port=mosquitto.port), tmp_path, load_model(bundle, "onnx-fp32")) as app:
            with Publisher(mosquitto.port) as publisher:
                publisher.reach(app)
                publisher.send(messages[:half])
                app.until(lambda: app.counts["predictions_total"] > before)
                mosquitto.restart(kill=True)
                app.until(lambda: app.connected)
                publisher.flush()
                publisher.reach(app)  # subscribed again, since the session was forgotten
                publisher.send(messages[half:])
                publisher.flush()
                app.until(lambda: app.counts["messages_total"] >= len(messages) - half)
                last = {stream.key: stream.t[-1] for stream in streams(KEYS, SAMPLES)}
                app.until(lambda: all(newest(tmp_path, key) > t - 0.3 for key, t in last.items()))
                assert app.stop()
    found = predictions(tmp_path / "answers.jsonl")
    known = {answer["id"]: answer for answer in expected}
    assert len({answer["id"] for answer in found}) == len(found)
    # The grid begins anew after the gap, a fraction of a sample off; where it is the same, so is the answer.
    same = [(answer, known[answer["id"]]) for answer in found if answer["id"] in known]
    same = [(ours, theirs) for ours, theirs in same if ours["start"] == theirs["start"]]
    assert len(same) > before  # how many more were answered by then is the machine's affair
    # What came after the gap is all answered, but for the window that would reach back across it.
    for key, since in first_times(messages[half:]).items():
        assert later(found, key, since) >= later(expected, key, since) - 1
    for ours, theirs in same:
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-6)


def first_times(messages: list[Message]) -> dict[str, float]:
    """When the first of these begins, by key."""
    return {message.key: orjson.loads(message.payload)["t"][0] for message in reversed(messages)}


def later(found: list[Answer], key: str, since: float) -> int:
    """How many windows of a key begin after a time."""
    return sum(answer["key"] == key and answer["start"] > since for answer in found)


def newest(folder: Path, key: str) -> float:
    """End of the last window that was answered for a key."""
    return max((answer["end"] for answer in predictions(folder / "answers.jsonl") if answer["key"] == key), default=0.0)
